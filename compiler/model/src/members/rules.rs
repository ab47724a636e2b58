//! What an operation makes of tensors of which members have parts or summands.

use super::{Along, Dividing, Own, State, loss};
use crate::graph::composed::part;
use crate::graph::tape::to_u32;
use pipe_ir::graph::{Binary, Class, Node, Op, Unary};
use pipe_ir::ids::NodeId;

/// The image of an operation.
pub(super) fn rule(own: &mut Dividing<'_>, node: &Node) -> Own {
    let inputs: Vec<Own> = node.inputs.iter().map(|input| own.image(*input)).collect();
    if inputs.iter().all(|input| input.state == State::Whole) {
        return own.push(&node.op, inputs.iter().map(|input| input.node).collect(), &node.ty, State::Whole);
    }
    divided(own, node, &inputs).unwrap_or_else(|| {
        let whole = node.inputs.iter().zip(&inputs).map(|(id, input)| {
            let shape = own.whole.tape.shape(*id);
            own.whole(*input, shape).node
        });
        let whole = whole.collect();
        own.push(&node.op, whole, &node.ty, State::Whole)
    })
}

/// The operation on parts, if it can work on them.
fn divided(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let first = inputs[0];
    if inputs.iter().any(|input| matches!(input.state, State::Part(along) if along.padding > 0))
        && !allows_padding(node)
    {
        return None;
    }
    match &node.op {
        Op::Unary(function) => unary(own, node, first, *function),
        Op::Convert => Some(own.push(&node.op, vec![first.node], &node.ty, first.state)),
        Op::Binary(function) => binary(own, node, inputs, *function),
        Op::MatMul { transpose_a, transpose_b } => product(own, node, inputs, (*transpose_a, *transpose_b)),
        Op::RoutedMatMul { transpose } => routed(own, node, inputs, *transpose),
        Op::Sum { axis } => sum(own, node, first, *axis as usize),
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } => view(own, node, first),
        Op::Concat { axis } => concat(own, node, inputs, *axis as usize),
        Op::Gather => gather(own, node, inputs),
        Op::Attention { .. } => attention(own, node, inputs),
        Op::CrossEntropy => cross_entropy(own, node, inputs),
        Op::TopK | Op::TakeAlong | Op::AddAlong => largest(own, node, inputs).or_else(|| rows(own, node, inputs)),
        op if op.class() == Class::Rows => normalized(own, node, inputs),
        _ => None,
    }
}

/// Whether what stands behind the end of a divided axis stays there, finite, and apart from all else.
fn allows_padding(node: &Node) -> bool {
    match node.op {
        Op::Unary(function) => match function {
            Unary::Neg | Unary::Tanh | Unary::Relu | Unary::Sin | Unary::Cos | Unary::Detach => true,
            Unary::Exp | Unary::Log | Unary::Sqrt | Unary::Reciprocal | Unary::Step => false,
        },
        Op::Binary(function) => matches!(function, Binary::Add | Binary::Sub | Binary::Mul),
        Op::Convert | Op::Transpose { .. } | Op::MatMul { .. } | Op::Gather | Op::CrossEntropy => true,
        _ => false,
    }
}

fn shape_of<'a>(own: &Dividing<'a>, id: NodeId) -> &'a [u64] {
    own.whole.tape.shape(id)
}

fn unary(own: &mut Dividing<'_>, node: &Node, x: Own, function: Unary) -> Option<Own> {
    let state = match x.state {
        State::Whole | State::Part(_) => x.state,
        State::Summand if matches!(function, Unary::Neg | Unary::Detach) => x.state,
        State::Summand => return None,
        State::Rows { routes, zero } => {
            State::Rows { routes, zero: zero && pipe_ir::reference::unary(function, 0.0) == 0.0 }
        }
    };
    Some(own.push(&node.op, vec![x.node], &node.ty, state))
}

fn binary(own: &mut Dividing<'_>, node: &Node, inputs: &[Own], function: Binary) -> Option<Own> {
    let rank = node.ty.shape.len();
    let shift = |input: usize| rank - shape_of(own, node.inputs[input]).len();
    let along = (0..2).find_map(|input| match inputs[input].state {
        State::Part(along) => Some(Along { axis: along.axis + shift(input), ..along }),
        _ => None,
    });
    if let Some(along) = along {
        let mut parts = Vec::with_capacity(2);
        for (id, input) in node.inputs.iter().zip(inputs) {
            let shape = shape_of(own, *id);
            let axis = (along.axis + shape.len()).checked_sub(rank).filter(|axis| shape[*axis] > 1);
            parts.push(match axis {
                Some(axis) => own.part(*input, Along { axis, ..along }, shape).node,
                None => own.varied(*input, shape),
            });
        }
        return Some(own.push(&node.op, parts, &node.ty, State::Part(along)));
    }
    let routes = inputs.iter().find_map(|input| match input.state {
        State::Rows { routes, .. } => Some(routes),
        _ => None,
    });
    if let Some(routes) = routes {
        return of_rows(own, node, inputs, (function, routes));
    }
    // What is left has summands.
    let are_both = inputs.iter().all(|input| input.state == State::Summand);
    match function {
        Binary::Add | Binary::Sub if are_both => {
            Some(own.push(&node.op, inputs.iter().map(|input| input.node).collect(), &node.ty, State::Summand))
        }
        Binary::Mul if !are_both => {
            let factors = node.inputs.iter().zip(inputs).map(|(id, input)| match input.state {
                State::Summand => input.node,
                _ => own.varied(*input, own.whole.tape.shape(*id)),
            });
            let factors = factors.collect();
            Some(own.push(&node.op, factors, &node.ty, State::Summand))
        }
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Mask | Binary::Hash => None,
    }
}

/// Of rows that members have: with rows of the same routes, or with what every member has.
fn of_rows(own: &mut Dividing<'_>, node: &Node, inputs: &[Own], (function, routes): (Binary, NodeId)) -> Option<Own> {
    let is_alike = |input: &Own| match input.state {
        State::Whole => true,
        State::Rows { routes: other, .. } => other == routes,
        State::Part(_) | State::Summand => false,
    };
    // A row of the result is one of these rows.
    let is_row = own.tape.shape(routes).len() + 1 == node.ty.shape.len()
        && own.tape.shape(routes) == &node.ty.shape[..node.ty.shape.len() - 1];
    if !inputs.iter().all(is_alike) || !is_row {
        return None;
    }
    let zero = |input: &Own| matches!(input.state, State::Rows { zero: true, .. });
    let zero = match function {
        Binary::Add | Binary::Sub => inputs.iter().all(zero),
        Binary::Mul => inputs.iter().any(zero),
        Binary::Hash => false,
        Binary::Div | Binary::Mask => zero(&inputs[0]) && inputs[1].state == State::Whole,
    };
    let operands = node.inputs.iter().zip(inputs).map(|(id, input)| match input.state {
        State::Whole => own.varied(*input, own.whole.tape.shape(*id)),
        _ => input.node,
    });
    let operands = operands.collect();
    Some(own.push(&node.op, operands, &node.ty, State::Rows { routes, zero }))
}

/// Axes of a factor of a matrix product.
struct Factor {
    state: State,
    rank: usize,
    /// The axis over which products are added up.
    inner: usize,
    /// The other one of the matrix.
    outer: usize,
}

impl Factor {
    fn along(&self) -> Option<Along> {
        if let State::Part(along) = self.state { Some(along) } else { None }
    }

    fn is_inner(&self) -> bool {
        self.along().is_some_and(|along| along.axis == self.inner)
    }

    fn is_outer(&self) -> bool {
        self.along().is_some_and(|along| along.axis == self.outer)
    }

    fn batch(&self) -> Option<Along> {
        self.along().filter(|along| along.axis + 2 < self.rank)
    }
}

fn product(own: &mut Dividing<'_>, node: &Node, inputs: &[Own], (of_a, of_b): (bool, bool)) -> Option<Own> {
    let ranks = [0, 1].map(|input| shape_of(own, node.inputs[input]).len());
    let factor = |input: usize, inner_is_last: bool| {
        let (last, other) = (ranks[input] - 1, ranks[input] - 2);
        let (inner, outer) = if inner_is_last { (last, other) } else { (other, last) };
        Factor { state: inputs[input].state, rank: ranks[input], inner, outer }
    };
    let (a, b) = (factor(0, !of_a), factor(1, of_b));
    let [to_a, to_b] = [0, 1].map(|input| shape_of(own, node.inputs[input]));
    let rank = node.ty.shape.len();
    let is_shared = b.rank == 2 && a.rank > 2;
    // Nothing may be added up over padding.
    let is_padded = |factor: &Factor| factor.along().is_some_and(|along| along.padding > 0);
    if is_padded(&a) || is_padded(&b) && !b.is_outer() {
        return None;
    }
    let push = |own: &mut Dividing<'_>, a, b, state| Some(own.push(&node.op, vec![a, b], &node.ty, state));
    // Summed over an axis that is divided, unless the other factor has some of the matrices.
    let has_matrices = !is_shared && ranks[0] == ranks[1] && (a.batch().is_some() || b.batch().is_some());
    if !has_matrices && (a.is_inner() || b.is_inner()) {
        let along = a.along().filter(|_| a.is_inner()).or(b.along()).unwrap_or(Along::axis(0));
        let [own_a, own_b] = [(0, a.inner, to_a), (1, b.inner, to_b)]
            .map(|(input, axis, shape)| own.part(inputs[input], Along { axis, ..along }, shape).node);
        return push(own, own_a, own_b, State::Summand);
    }
    if b.is_outer() && !matches!(a.state, State::Part(along) if along.axis + 2 < a.rank && !is_shared) {
        let along = Along { axis: rank - 1, ..b.along()? };
        let a = own.varied(inputs[0], to_a);
        return push(own, a, inputs[1].node, State::Part(along));
    }
    let batch = a.batch().or(b.batch());
    if let Some(along) = batch.filter(|_| !is_shared && a.rank == b.rank && rank == a.rank) {
        let [own_a, own_b] = [(0, to_a), (1, to_b)].map(|(input, shape)| own.part(inputs[input], along, shape).node);
        return push(own, own_a, own_b, State::Part(along));
    }
    let rows = a.along().filter(|along| along.axis == a.outer || is_shared && along.axis + 2 < a.rank);
    if let Some(along) = rows {
        let axis = if along.axis == a.outer { rank - 2 } else { along.axis };
        let b = own.varied(inputs[1], to_b);
        return push(own, inputs[0].node, b, State::Part(Along { axis, ..along }));
    }
    None
}

/// Rows go to matrices, of which each member has some, or a part of each.
fn routed(own: &mut Dividing<'_>, node: &Node, inputs: &[Own], transpose: bool) -> Option<Own> {
    let [x, weights, routes] = *inputs else { return None };
    let [to_x, of_weights] = [0, 1].map(|input| shape_of(own, node.inputs[input]));
    if routes.state != State::Whole {
        return None;
    }
    let last = node.ty.shape.len() - 1;
    let (inner, outer) = if transpose { (2, 1) } else { (1, 2) };
    match (weights.state, x.state) {
        (State::Part(Along { axis: 0, blocks: 1, padding: 0 }), _) => {
            let routes = own.own_indices(routes.node, of_weights[0]);
            let x = match x.state {
                State::Rows { routes: other, .. } if other == routes => x.node,
                _ => own.varied(x, to_x),
            };
            Some(own.push(&node.op, vec![x, weights.node, routes], &node.ty, State::Rows { routes, zero: true }))
        }
        (State::Part(along), _) if along.axis == outer => {
            let x = own.varied(x, to_x);
            let state = State::Part(Along { axis: last, ..along });
            Some(own.push(&node.op, vec![x, weights.node, routes.node], &node.ty, state))
        }
        (State::Part(along), _) if along.axis == inner => {
            let x = own.part(x, Along { axis: last, ..along }, to_x);
            Some(own.push(&node.op, vec![x.node, weights.node, routes.node], &node.ty, State::Summand))
        }
        _ => None,
    }
}

fn sum(own: &mut Dividing<'_>, node: &Node, x: Own, axis: usize) -> Option<Own> {
    let x = match x.state {
        // Each row keeps its place, or is added to others.
        State::Rows { .. } => own.summand(x),
        _ => x,
    };
    let state = match x.state {
        State::Part(along) if along.axis == axis => State::Summand,
        state => state,
    };
    Some(own.push(&node.op, vec![x.node], &node.ty, state))
}

fn view(own: &mut Dividing<'_>, node: &Node, x: Own) -> Option<Own> {
    let x = own.summand(x);
    let State::Part(along) = x.state else {
        return Some(own.push(&node.op, vec![x.node], &node.ty, x.state));
    };
    let whole = shape_of(own, node.inputs[0]);
    let next = match &node.op {
        Op::Transpose { permutation } => {
            let axis = permutation.iter().position(|from| *from as usize == along.axis)?;
            Along { axis, ..along }
        }
        Op::Slice { axis, start } if *axis as usize == along.axis => {
            // Some of the blocks, each of which is divided.
            let (block, size) = (whole[along.axis] / along.blocks, node.ty.shape[along.axis]);
            if start % block != 0 || size % block != 0 {
                return None;
            }
            let op = Op::Slice { axis: *axis, start: start / own.members };
            return Some(own.push(&op, vec![x.node], &node.ty, State::Part(Along { blocks: size / block, ..along })));
        }
        Op::Slice { .. } => along,
        _ => reshaped(whole, &node.ty.shape, along, own.members)?,
    };
    if node.op == Op::Reshape {
        let shape = own.shape(&node.ty.shape, State::Part(next));
        return Some(Own { node: own.tape.reshape(x.node, &shape), state: State::Part(next) });
    }
    Some(own.push(&node.op, vec![x.node], &node.ty, State::Part(next)))
}

/// Where the parts of a tensor lie under another shape: along the axis with as many elements before it.
fn reshaped(from: &[u64], to: &[u64], along: Along, members: u64) -> Option<Along> {
    let before: u64 = from[..along.axis].iter().product();
    let rest: u64 = from[along.axis..].iter().product();
    let block = rest / along.blocks;
    // As blocks of an axis, or as an axis behind one of blocks.
    (0..to.len()).find_map(|axis| {
        let own_before: u64 = to[..axis].iter().product();
        let own_rest: u64 = to[axis..].iter().product();
        if own_before == before && own_rest == rest && to[axis].is_multiple_of(along.blocks * members) {
            return Some(Along { axis, ..along });
        }
        let is_inside = own_before == before * along.blocks && own_rest == block && to[axis].is_multiple_of(members);
        is_inside.then_some(Along::axis(axis))
    })
}

fn concat(own: &mut Dividing<'_>, node: &Node, inputs: &[Own], axis: usize) -> Option<Own> {
    if inputs.iter().all(|input| input.state == State::Summand) {
        return Some(own.push(&node.op, inputs.iter().map(|input| input.node).collect(), &node.ty, State::Summand));
    }
    let along = inputs.iter().find_map(|input| match input.state {
        State::Part(along) if along.axis != axis => Some(along),
        _ => None,
    })?;
    Some(on_parts(own, node, inputs, along))
}

/// The operation on the parts of all its inputs along an axis.
fn on_parts(own: &mut Dividing<'_>, node: &Node, inputs: &[Own], along: Along) -> Own {
    let parts =
        node.inputs.iter().zip(inputs).map(|(id, input)| own.part(*input, along, own.whole.tape.shape(*id)).node);
    let parts = parts.collect();
    own.push(&node.op, parts, &node.ty, State::Part(along))
}

/// Rows of a table of which members have rows, or columns.
fn gather(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let [table, indices] = *inputs else { return None };
    let whole = shape_of(own, node.inputs[0]);
    if indices.state != State::Whole {
        return None;
    }
    match table.state {
        State::Part(Along { axis: 0, blocks: 1, .. }) => {
            let indices = own.own_indices(indices.node, whole[0]);
            Some(own.push(&node.op, vec![table.node, indices], &node.ty, State::Summand))
        }
        State::Part(along) if along.axis == 1 => {
            let state = State::Part(Along { axis: node.ty.shape.len() - 1, ..along });
            Some(own.push(&node.op, vec![table.node, indices.node], &node.ty, state))
        }
        _ => None,
    }
}

/// Some of the heads. Of parts of the sequence members make heads of the whole one (arXiv 2309.14509, section 3).
fn attention(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let State::Part(given) = inputs[0].state else { return None };
    let rank = node.ty.shape.len();
    let along = if given.axis + 2 < rank {
        given
    } else {
        // Heads that keys have as well, else heads that share keys, else rows.
        let (queries, keys) = (&node.ty.shape[..rank - 2], shape_of(own, node.inputs[1]));
        let can = |axis: &usize| queries[*axis].is_multiple_of(own.members);
        let has_keys = |axis: &usize| keys[*axis] == queries[*axis];
        let heads = || (1..rank - 2).filter(can);
        Along::axis(heads().find(has_keys).or_else(|| heads().next()).or_else(|| (0..1).find(can))?)
    };
    let is_whole_or_factor = |(position, input): (usize, &Own)| position < 3 || input.state == State::Whole;
    if !inputs.iter().enumerate().all(is_whole_or_factor) {
        return None;
    }
    let factors = node.inputs.iter().zip(inputs).enumerate().map(|(position, (id, input))| {
        let shape = own.whole.tape.shape(*id);
        match shape[along.axis] {
            // Starts have no gradient.
            1 if position > 2 => input.node,
            1 => own.varied(*input, shape),
            _ => own.part(*input, along, shape).node,
        }
    });
    let factors = factors.collect();
    Some(own.push(&node.op, factors, &node.ty, State::Part(along)))
}

fn cross_entropy(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let [logits, targets, ref weights @ ..] = *inputs else { return None };
    let whole = shape_of(own, node.inputs[0]);
    let State::Part(along) = logits.state else { return None };
    if along.axis + 1 < whole.len() {
        // The mean over the own rows, of as many as all members have.
        let of_rows = [&[targets], weights].concat().into_iter();
        let of_rows = of_rows.map(|input| own.part(input, along, shape_of(own, node.inputs[1])).node);
        let inputs = [logits.node].into_iter().chain(of_rows).collect();
        let mean = own.push(&node.op, inputs, &node.ty, State::Summand);
        return Some(Own { node: part(&mut own.tape, mean.node, 1, own.members), ..mean });
    }
    if along.blocks > 1 || [&[targets], weights].concat().iter().any(|input| input.state != State::Whole) {
        return None;
    }
    Some(loss::cross_entropy(
        own,
        node,
        (logits.node, along),
        (targets.node, weights.first().map(|weights| weights.node)),
    ))
}

/// Operations on whole rows, of which each member has some.
fn rows(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let along = inputs.iter().find_map(|input| match input.state {
        State::Part(along) if along.axis + 1 < node.ty.shape.len() => Some(along),
        _ => None,
    })?;
    Some(on_parts(own, node, inputs, along))
}

/// The largest element of each row, of which members have columns: that of their largest ones. Nobody else may read the
/// columns of these.
fn largest(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let (tape, members) = (&own.whole.tape, own.members);
    let x = node.inputs[0];
    let rank = tape.shape(x).len();
    let along = |state| matches!(state, State::Part(along) if along.axis + 1 == rank);
    if !along(inputs[0].state) || node.ty.shape[rank - 1] != 1 {
        return None;
    }
    let is_top = |id: NodeId| tape.node(id).op == Op::TopK && tape.node(id).inputs[0] == x;
    let takes = |reader: &Node| reader.op == Op::TakeAlong && reader.inputs[0] == x;
    match node.op {
        Op::TopK => {
            let is_this = |id: &NodeId| tape.node(*id) == node;
            let ids: Vec<NodeId> = tape.ids().filter(is_this).collect();
            let mut readers =
                tape.nodes().iter().filter(|reader| reader.inputs.iter().any(|input| ids.contains(input)));
            // Columns of a part are those of the whole for nobody but `TakeAlong`, below.
            readers.all(takes).then(|| own.push(&node.op, vec![inputs[0].node], &node.ty, State::Whole))
        }
        Op::TakeAlong if is_top(node.inputs[1]) => {
            let tops = own.tape.take_along(inputs[0].node, inputs[1].node);
            // [members, rows, 1] -> [rows, members]
            let all = own.tape.all_gather(tops, members, true);
            let rows = &node.ty.shape[..rank - 1];
            let all = own.tape.reshape(all, &[&[members], rows].concat());
            let order: Vec<u32> = (1..rank).chain([0]).map(to_u32).collect();
            let all = own.tape.transpose(all, &order);
            let column = own.tape.top_k(all, 1);
            Some(Own { node: own.tape.take_along(all, column), state: State::Whole })
        }
        _ => None,
    }
}

/// The same with gains and biases, which every member has, and masked softmax.
fn normalized(own: &mut Dividing<'_>, node: &Node, inputs: &[Own]) -> Option<Own> {
    let rank = shape_of(own, node.inputs[0]).len();
    let along = match inputs[0].state {
        State::Part(along) if along.axis + 1 < rank => along,
        _ => return None,
    };
    let is_masked = matches!(node.op, Op::Softmax { causal: true });
    if is_masked && along.axis + 2 == rank
        || !matches!(node.op, Op::Softmax { .. } | Op::NormStatistics { .. } | Op::Normalize)
    {
        return None;
    }
    let operands = node.inputs.iter().zip(inputs).map(|(id, input)| {
        let shape = own.whole.tape.shape(*id);
        if shape.len() == rank { own.part(*input, along, shape).node } else { own.varied(*input, shape) }
    });
    let operands = operands.collect();
    Some(own.push(&node.op, operands, &node.ty, State::Part(along)))
}
