//! Operations of several tensors, cut in slices.

use super::{Along, Cut, Cutting, State};
use crate::graph::composed::part;
use crate::graph::tape::Leaf;
use pipe_ir::graph::{Binary, Node, broadcast};
use pipe_ir::ids::NodeId;

impl Cutting<'_> {
    /// The part of a tensor without a sequence of its own that meets a slice.
    fn fit(&mut self, id: NodeId, rank: usize, along: Along) -> NodeId {
        let shift = rank - self.rank(id);
        let mut image = self.image(id);
        let columns = along.columns.map(|(columns, _)| (columns, 0, self.slice.seen()));
        for (axis, start, size) in
            [Some((along.axis, self.slice.start(), self.slice.size())), columns].into_iter().flatten()
        {
            let Some(own) = axis.checked_sub(shift) else { continue };
            if self.whole.tape.shape(id)[own] == self.slice.length() {
                image = self.tape.slice(image, own, start, size);
            }
        }
        image
    }

    pub(super) fn binary(&mut self, id: NodeId, node: &Node, function: Binary) -> Cut<(NodeId, State)> {
        let rank = node.ty.shape.len();
        let aligned = |cutting: &Self, input: NodeId| match cutting.state(input) {
            State::Cut(Along { axis, columns }) => {
                let shift = rank - cutting.rank(input);
                Some(Along { axis: axis + shift, columns: columns.map(|(columns, masked)| (columns + shift, masked)) })
            }
            State::Same | State::Mean => None,
        };
        let both = [node.inputs[0], node.inputs[1]].map(|input| aligned(self, input));
        let masked = both.map(|along| along.is_some_and(|along| along.columns.is_some_and(|(_, masked)| masked)));
        let zero = match function {
            Binary::Add | Binary::Sub => masked[0] && masked[1],
            Binary::Mul => masked[0] || masked[1],
            Binary::Mask => masked[0] || masked[1],
            // What is zero in both becomes NaN.
            Binary::Div => masked[0] && !masked[1],
            Binary::Hash => false,
        };
        let mut along = match both {
            [Some(one), Some(other)] => {
                let columns = one.columns.or(other.columns).map(|(columns, _)| columns);
                let is_whole = |along: &Along, input: NodeId| {
                    let own = columns.and_then(|columns| (columns + self.rank(input)).checked_sub(rank));
                    along.columns.is_none() && own.is_some_and(|own| self.whole.tape.shape(input)[own] > 1)
                };
                let differs = one.columns.zip(other.columns).is_some_and(|(one, other)| one.0 != other.0);
                if one.axis != other.axis
                    || differs
                    || is_whole(&one, node.inputs[0])
                    || is_whole(&other, node.inputs[1])
                {
                    return Err(self.refuse(id, "two tensors with the sequence along different axes meet"));
                }
                Along { columns: one.columns.or(other.columns), ..one }
            }
            [Some(along), None] | [None, Some(along)] => along,
            [None, None] => return Err(self.refuse(id, "it mixes positions of the sequence")),
        };
        along.columns = along.columns.map(|(columns, _)| (columns, zero));
        let inputs: Vec<NodeId> = [0, 1]
            .map(|position| match both[position] {
                Some(_) => self.image(node.inputs[position]),
                None => self.fit(node.inputs[position], rank, along),
            })
            .to_vec();
        let shape = broadcast(self.tape.shape(inputs[0]), self.tape.shape(inputs[1])).unwrap_or_default();
        if shape != self.slice.shape(&node.ty.shape, along) {
            return Err(self.refuse(id, "a single position is repeated along the sequence"));
        }
        Ok(self.push(node, inputs, along))
    }

    pub(super) fn product(
        &mut self,
        id: NodeId,
        node: &Node,
        (transpose_a, transpose_b): (bool, bool),
    ) -> Cut<(NodeId, State)> {
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let (rank, rank_b) = (self.rank(a), self.rank(b));
        let [row, inner] = if transpose_a { [rank - 1, rank - 2] } else { [rank - 2, rank - 1] };
        let [inner_b, column] = if transpose_b { [rank_b - 1, rank_b - 2] } else { [rank_b - 2, rank_b - 1] };
        let rows = Along { axis: rank - 2, columns: None };
        let refuse = |reason| Err(self.refuse(id, reason));
        match (self.state(a), self.state(b)) {
            (State::Cut(one), State::Cut(other)) if one.axis == row && other.columns.is_none() => {
                let columns = Some((rank - 1, false));
                if other.axis == column && one.columns.is_none() {
                    let inputs = vec![self.image(a), self.joined(b, other.axis)];
                    return Ok(self.push(node, inputs, Along { columns, ..rows }));
                }
                if other.axis != inner_b {
                    return refuse("two tensors with the sequence along different axes meet");
                }
                if one.columns != Some((inner, true)) {
                    return refuse("a product adds up later positions; `causal_softmax` would hide them");
                }
                let inputs = vec![self.image(a), self.joined(b, other.axis)];
                Ok(self.push(node, inputs, rows))
            }
            (State::Cut(one), State::Same) if one.axis == row && one.columns.is_none() => {
                let inputs = vec![self.image(a), self.image(b)];
                Ok(self.push(node, inputs, rows))
            }
            (State::Cut(one), other) if one.axis + 2 < rank && one.columns.is_none() => {
                if !matches!(other, State::Same | State::Cut(Along { columns: None, .. })) {
                    return refuse("two tensors with the sequence along different axes meet");
                }
                let fitted = match other {
                    State::Cut(other) if other.axis + rank == one.axis + rank_b => self.image(b),
                    State::Same if rank_b == rank => self.fit(b, rank, one),
                    State::Same => self.image(b),
                    State::Cut(_) | State::Mean => {
                        return refuse("two tensors with the sequence along different axes meet");
                    }
                };
                let inputs = vec![self.image(a), fitted];
                Ok(self.push(node, inputs, one))
            }
            (State::Same, State::Cut(other)) if other.axis == column && other.columns.is_none() => {
                let inputs = vec![self.image(a), self.image(b)];
                Ok(self.push(node, inputs, Along { axis: rank - 1, columns: None }))
            }
            _ => refuse("a product adds up positions of the sequence"),
        }
    }

    /// Each slice looks with its queries at the keys of all slices up to its own.
    pub(super) fn attention(
        &mut self,
        id: NodeId,
        node: &Node,
        states: &[State],
        causal: bool,
    ) -> Cut<(NodeId, State)> {
        let rank = self.rank(node.inputs[0]);
        let [State::Cut(along), others @ ..] = states else {
            return Err(self.refuse(id, "`attention` mixes positions of the sequence"));
        };
        // Starts of documents have an axis less than queries, behind the sequence.
        let (factors, starts) = others.split_at(2);
        let differs = factors.iter().chain(starts).any(|other| other != &states[0]);
        if differs || along.columns.is_some() || along.axis + 1 == rank {
            return Err(self.refuse(id, "queries, keys and values have the sequence along different axes"));
        }
        let along = *along;
        if along.axis + 2 < rank {
            let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
            return Ok(self.push(node, inputs, along));
        }
        if !causal {
            return Err(
                self.refuse(id, "every position would depend on later ones; `causal_attention` would hide them")
            );
        }
        let (q, k, v) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let starts = node.inputs.get(3).map(|starts| self.image(*starts));
        let factors = [self.image(q), self.joined(k, along.axis), self.joined(v, along.axis)];
        Ok(self.push(node, factors.into_iter().chain(starts).collect(), along))
    }

    /// A tensor of this slice after those of all slices before it, which carry theirs over.
    fn joined(&mut self, id: NodeId, axis: usize) -> NodeId {
        if let Some(known) = self.joined.get(&id) {
            return *known;
        }
        let (own, port) = (self.image(id), self.carried.len());
        let mut ty = self.tape.ty(own).clone();
        let behind = (1..=u32::try_from(self.slice.index).unwrap_or(u32::MAX)).rev();
        let earlier = behind.zip(self.slice.sizes);
        let past = earlier.map(|(behind, size)| {
            ty.shape[axis] = *size;
            self.tape.leaf(Leaf::Past { port, behind }, ty.clone())
        });
        let mut parts: Vec<NodeId> = past.collect();
        parts.push(own);
        self.carried.push(own);
        let joined = self.tape.concat(&parts, axis);
        self.joined.insert(id, joined);
        joined
    }

    pub(super) fn cross_entropy(&mut self, id: NodeId, node: &Node, states: &[State]) -> Cut<(NodeId, State)> {
        match states {
            [State::Cut(logits), others @ ..]
                if others.iter().all(|other| other == &states[0])
                    && logits.columns.is_none()
                    && logits.axis + 1 < self.rank(node.inputs[0]) =>
            {
                let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
                let mean = self.tape.push(node.op.clone(), inputs, node.ty.clone());
                // The mean over the positions of a slice weighs as much as the slice is long.
                let (weight, whole) = (self.slice.size() * self.slice.count(), self.slice.length());
                let mean = if weight == whole { mean } else { part(&mut self.tape, mean, weight, whole) };
                Ok((mean, State::Mean))
            }
            _ => Err(self.refuse(id, "logits and targets have the sequence along different axes")),
        }
    }

    pub(super) fn concat(&mut self, id: NodeId, node: &Node, axis: usize) -> Cut<(NodeId, State)> {
        let cut = node.inputs.iter().filter_map(|input| match self.state(*input) {
            State::Cut(along) => Some(along),
            State::Same | State::Mean => None,
        });
        let all: Vec<Along> = cut.collect();
        let along = Along { columns: None, ..all[0] };
        if axis == along.axis || all.iter().any(|other| *other != along) {
            return Err(self.refuse(id, "parts are joined along the sequence"));
        }
        let rank = node.ty.shape.len();
        let inputs = node.inputs.iter().map(|input| match self.state(*input) {
            State::Same => self.fit(*input, rank, along),
            State::Cut(_) | State::Mean => self.image(*input),
        });
        let inputs = inputs.collect();
        Ok(self.push(node, inputs, along))
    }

    pub(super) fn gather(&mut self, id: NodeId, node: &Node, states: &[State]) -> Cut<(NodeId, State)> {
        match states {
            [State::Same, State::Cut(along)] if along.columns.is_none() => {
                let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
                Ok(self.push(node, inputs, *along))
            }
            _ => Err(self.refuse(id, "rows are looked up among positions of the sequence")),
        }
    }

    /// What looks at each row alone.
    pub(super) fn along(&mut self, id: NodeId, node: &Node, states: &[State]) -> Cut<(NodeId, State)> {
        let rank = self.rank(node.inputs[0]);
        match states {
            [State::Cut(along), others @ ..]
                if along.axis + 1 < rank
                    && along.columns.is_none()
                    && others.iter().all(|state| *state == states[0]) =>
            {
                let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
                Ok(self.push(node, inputs, *along))
            }
            _ => Err(self.refuse(id, "columns are looked up along the sequence")),
        }
    }

    pub(super) fn routed(&mut self, id: NodeId, node: &Node, states: &[State]) -> Cut<(NodeId, State)> {
        match states {
            [State::Cut(rows), State::Same, State::Cut(routes)] if rows == routes && rows.columns.is_none() => {
                let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
                Ok(self.push(node, inputs, *rows))
            }
            _ => Err(self.refuse(id, "rows and their routes have the sequence along different axes")),
        }
    }
}
