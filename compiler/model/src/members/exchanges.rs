//! What members exchange so that a tensor is in another state.

use super::{Along, Dividing, Own, State};
use pipe_ir::graph::{Binary, DType, Op, TensorType};
use pipe_ir::ids::NodeId;

impl Dividing<'_> {
    /// The tensor as a whole, with which all members go on alike. `shape` is that of the whole.
    pub(super) fn whole(&mut self, own: Own, shape: &[u64]) -> Own {
        let node = match own.state {
            State::Whole => own.node,
            State::Summand => self.tape.all_reduce(own.node),
            State::Rows { .. } => {
                let summand = self.summand(own);
                self.tape.all_reduce(summand.node)
            }
            State::Part(along) => self.gathered(own.node, along, shape, true),
        };
        Own { node, state: State::Whole }
    }

    /// The tensor as a whole, with which each member does something else: gradients are summands.
    pub(super) fn varied(&mut self, own: Own, shape: &[u64]) -> NodeId {
        match own.state {
            State::Part(along) if self.is_number(own.node) => self.gathered(own.node, along, shape, false),
            _ => {
                let whole = self.whole(own, shape);
                self.vary(whole.node)
            }
        }
    }

    /// A whole tensor, with which each member does something else.
    pub(super) fn vary(&mut self, node: NodeId) -> NodeId {
        let is_given = matches!(self.tape.node(node).op, Op::Constant(_) | Op::Positions | Op::Powers { .. });
        if is_given || !self.is_number(node) { node } else { self.tape.vary(node) }
    }

    /// The member's part along an axis.
    pub(super) fn part(&mut self, own: Own, along: Along, shape: &[u64]) -> Own {
        let state = State::Part(along);
        if own.state == state {
            return own;
        }
        let ty = TensorType { dtype: self.tape.ty(own.node).dtype, shape: self.shape(shape, state) };
        let source = self.tape.node(own.node);
        if let (State::Whole, Op::Constant(_)) = (own.state, &source.op) {
            return Own { node: self.tape.push(source.op.clone(), Vec::new(), ty), state };
        }
        if let State::Part(from) = own.state
            && from.axis != along.axis
            && along.padding == 0
        {
            return Own { node: self.turned(own.node, from, along, shape), state };
        }
        let is_summand = own.state == State::Summand;
        let own = if is_summand { own } else { self.whole(own, shape) };
        let padded = self.padded(own.node, along, 0.0);
        let all = self.tape.shape(padded).to_vec();
        let parts = self.parts(padded, along, &all);
        let part = match is_summand {
            true => self.tape.reduce_scatter(parts),
            false => self.tape.own_part(parts),
        };
        Own { node: self.tape.reshape(part, &ty.shape), state }
    }

    /// A summand where each member has its own rows.
    pub(super) fn summand(&mut self, own: Own) -> Own {
        let State::Rows { routes, zero } = own.state else { return own };
        let mut node = own.node;
        if !zero {
            // 1 where the row is the member's own, else 0.
            let rows = self.tape.shape(routes).to_vec();
            let one = [&rows[..], &[1]].concat();
            let (size, ty) = (self.tape.shape(node).len(), TensorType::new(DType::I32, &one));
            let columns = self.tape.push(Op::Reshape, vec![routes], ty);
            let matrices = self.own_size(routes);
            let ones = self.tape.constant(1.0, &[&rows[..], &[matrices]].concat());
            let is_own = self.tape.take_along(ones, columns);
            debug_assert_eq!(size, rows.len() + 1, "a row for each route");
            node = self.tape.binary(Binary::Mask, node, is_own);
        }
        Own { node, state: State::Summand }
    }

    /// How many matrices a member has, of routes that were counted from its first.
    fn own_size(&self, routes: NodeId) -> u64 {
        match self.tape.node(routes).op {
            Op::OwnIndices { size, .. } => size,
            _ => 1,
        }
    }

    /// Indices below `all`, counted from the first of those that the member has.
    pub(super) fn own_indices(&mut self, indices: NodeId, all: u64) -> NodeId {
        let (size, members) = (all.div_ceil(self.members), self.members);
        let ty = self.tape.ty(indices).clone();
        self.tape.push(Op::OwnIndices { size, all, members, member: 0 }, vec![indices], ty)
    }

    /// A whole tensor with a number at the places beyond its own that members have.
    pub(super) fn padded(&mut self, node: NodeId, along: Along, number: f64) -> NodeId {
        if along.padding == 0 {
            return node;
        }
        let mut shape = self.tape.shape(node).to_vec();
        shape[along.axis] = along.padding;
        let beyond = self.tape.constant(number, &shape);
        self.tape.concat(&[node, beyond], along.axis)
    }

    pub(super) fn is_number(&self, node: NodeId) -> bool {
        self.tape.ty(node).dtype.is_number()
    }

    /// A part along another axis: each member gives every other one the part of its own part that is meant for it.
    fn turned(&mut self, node: NodeId, from: Along, to: Along, shape: &[u64]) -> NodeId {
        let own = self.shape(shape, State::Part(from));
        let parts = self.parts(node, to, &own);
        let parts = self.tape.all_to_all(parts);
        self.joined(parts, from, &self.shape(shape, State::Part(to)))
    }

    /// The parts of all members side by side along a new first axis.
    fn parts(&mut self, node: NodeId, along: Along, shape: &[u64]) -> NodeId {
        let (axis, blocks, members) = (along.axis, along.blocks, self.members);
        let each = shape[axis] / blocks / members;
        let apart = [&shape[..axis], &[blocks, members, each], &shape[axis + 1..]].concat();
        let apart = self.tape.reshape(node, &apart);
        let rank = self.tape.shape(apart).len();
        let others = (0..rank).filter(|from| *from != axis + 1);
        let order: Vec<u32> = [axis + 1].into_iter().chain(others).map(crate::graph::tape::to_u32).collect();
        let parts = self.tape.transpose(apart, &order);
        let part = [&[members][..], &shape[..axis], &[blocks * each], &shape[axis + 1..]].concat();
        self.tape.reshape(parts, &part)
    }

    /// A tensor from the parts of all members.
    fn gathered(&mut self, node: NodeId, along: Along, shape: &[u64], shared: bool) -> NodeId {
        let all = self.tape.all_gather(node, self.members, shared);
        self.joined(all, along, shape)
    }

    /// A tensor from its parts side by side along the first axis.
    fn joined(&mut self, all: NodeId, along: Along, shape: &[u64]) -> NodeId {
        let (axis, blocks, members) = (along.axis, along.blocks, self.members);
        let mut padded = shape.to_vec();
        padded[axis] += along.padding;
        let each = padded[axis] / blocks / members;
        let apart = [&[members][..], &shape[..axis], &[blocks, each], &shape[axis + 1..]].concat();
        let apart = self.tape.reshape(all, &apart);
        let rank = self.tape.shape(apart).len();
        // The members come behind the blocks.
        let order = (1..=axis + 1).chain([0]).chain(axis + 2..rank);
        let order: Vec<u32> = order.map(crate::graph::tape::to_u32).collect();
        let joined = self.tape.transpose(apart, &order);
        let joined = self.tape.reshape(joined, &padded);
        self.tape.slice(joined, axis, 0, shape[axis])
    }
}
