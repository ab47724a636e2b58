//! Derivatives: what one use of a tensor contributes to its gradient, operation by operation.

use super::tape::{Tape, is_number};
use pipe_ir::graph::{Binary, Node, Op, Unary};
use pipe_ir::ids::NodeId;

/// A summand of a gradient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contribution {
    /// The tensor.
    pub node: NodeId,
    /// Where it lies in the gradient; `None` covers all of it.
    pub part: Option<AxisRange>,
}

/// A range of one axis, as long as the contribution's tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AxisRange {
    /// Which axis.
    pub axis: usize,
    /// First element.
    pub start: u64,
}

impl Contribution {
    /// A summand of the whole gradient.
    pub(super) const fn whole(node: NodeId) -> Self {
        Self { node, part: None }
    }
}

/// What `node`, whose gradient is `dy`, contributes to the gradient of its input number `position`.
pub(super) fn derivative(tape: &mut Tape, node: NodeId, position: usize, dy: NodeId) -> Option<Contribution> {
    let Node { op, inputs, .. } = tape.node(node).clone();
    let x = inputs[position];
    if !is_number(tape.ty(x)) {
        return None;
    }
    let whole = |node| Some(Contribution::whole(node));
    match op {
        Op::Unary(function) => unary(tape, function, x, node, dy).and_then(whole),
        Op::Binary(function) => binary(tape, function, (inputs[0], inputs[1]), position, dy).and_then(whole),
        // Whoever adds up contributions converts them.
        Op::Convert => whole(dy),
        Op::MatMul { transpose_a, transpose_b } => {
            let product = Product { a: inputs[0], transpose_a, b: inputs[1], transpose_b };
            let dy = tape.stored(dy);
            whole(if position == 0 { product.by_a(tape, dy) } else { product.by_b(tape, dy) })
        }
        Op::RoutedMatMul { transpose } => {
            let shape = tape.shape(x).to_vec();
            let (dy, routes) = (tape.stored(dy), inputs[2]);
            whole(match (position, transpose) {
                (0, _) => tape.shaped(Op::RoutedMatMul { transpose: !transpose }, &[dy, inputs[1], routes], &shape),
                (_, false) => tape.shaped(Op::RoutedMatMulGrad, &[inputs[0], dy, routes], &shape),
                (_, true) => tape.shaped(Op::RoutedMatMulGrad, &[dy, inputs[0], routes], &shape),
            })
        }
        Op::TakeAlong => {
            let shape = tape.shape(x).to_vec();
            whole(tape.shaped(Op::AddAlong, &[inputs[1], dy], &shape))
        }
        Op::AddAlong => whole(tape.take_along(dy, inputs[0])),
        Op::ScatterAdd => whole(tape.gather(dy, inputs[0])),
        Op::Sum { .. } => whole(repeat_to(tape, dy, x)),
        Op::Reshape => {
            let shape = tape.shape(x).to_vec();
            whole(tape.reshape(dy, &shape))
        }
        Op::Transpose { permutation } => whole(tape.transpose(dy, &inverse(&permutation))),
        Op::Slice { axis, start } => {
            Some(Contribution { node: dy, part: Some(AxisRange { axis: axis as usize, start }) })
        }
        Op::Concat { axis } => {
            let axis = axis as usize;
            let start = inputs[..position].iter().map(|input| tape.shape(*input)[axis]).sum();
            let size = tape.shape(x)[axis];
            whole(tape.slice(dy, axis, start, size))
        }
        Op::Gather => {
            let shape = tape.shape(x).to_vec();
            whole(tape.shaped(Op::ScatterAdd, &[inputs[1], dy], &shape))
        }
        // The derivative by the statistics is part of the one by x.
        Op::Normalize if position == 1 => None,
        Op::Normalize => whole(normalize(tape, &inputs, position, dy)),
        Op::NormStatistics { .. } => None,
        Op::Softmax { .. } => {
            let shape = tape.shape(x).to_vec();
            // As it is stored: what the forward pass goes on with.
            let y = tape.stored(node);
            let y = tape.computed(y);
            whole(tape.shaped(Op::SoftmaxGrad, &[y, dy], &shape))
        }
        Op::Attention { causal, window } => {
            let dy = tape.stored(dy);
            whole(attention(tape, Op::AttentionGrad { causal, window }, &inputs, position, dy))
        }
        Op::CrossEntropy => {
            let shape = tape.shape(x).to_vec();
            // No gradient flows back to weights: the language detaches them.
            let inputs = [&inputs[..2], &[dy], &inputs[2..]].concat();
            whole(tape.shaped(Op::CrossEntropyGrad, &inputs, &shape))
        }
        Op::Vary => {
            let dy = tape.unrounded(dy);
            let shape = tape.shape(dy).to_vec();
            whole(tape.shaped(Op::AllReduce, &[dy], &shape))
        }
        Op::AllReduce => whole(dy),
        Op::AllGather { shared: true, .. } => {
            let (shape, own) = (tape.shape(x).to_vec(), tape.own_part(dy));
            whole(tape.reshape(own, &shape))
        }
        Op::AllGather { shared: false, .. } => whole(tape.reduce_scatter(dy)),
        Op::ReduceScatter => {
            let members = tape.shape(x)[0];
            whole(tape.all_gather(dy, members, true))
        }
        Op::AllToAll => whole(tape.all_to_all(dy)),
        Op::OwnPart => {
            let shape = tape.shape(dy)[1..].to_vec();
            let (members, part) = (tape.shape(x)[0], tape.reshape(dy, &shape));
            whole(tape.all_gather(part, members, true))
        }
        Op::Input { .. } | Op::Constant(_) | Op::Positions | Op::Powers { .. } | Op::TopK | Op::OwnIndices { .. } => {
            None
        }
        Op::NormalizeGradInput { .. }
        | Op::RoutedMatMulGrad
        | Op::NormalizeGradGain
        | Op::SoftmaxGrad
        | Op::CrossEntropyGrad
        | Op::AttentionGrad { .. } => {
            unreachable!("the language has no way to write a derivative")
        }
    }
}

fn unary(tape: &mut Tape, function: Unary, x: NodeId, y: NodeId, dy: NodeId) -> Option<NodeId> {
    Some(match function {
        Unary::Neg => tape.unary(Unary::Neg, dy),
        Unary::Exp => tape.binary(Binary::Mul, dy, y),
        Unary::Log => tape.binary(Binary::Div, dy, x),
        Unary::Tanh => {
            let square = tape.binary(Binary::Mul, y, y);
            let one = tape.constant(1.0, &[]);
            let slope = tape.binary(Binary::Sub, one, square);
            tape.binary(Binary::Mul, dy, slope)
        }
        Unary::Sqrt => {
            let half = tape.scale(dy, 0.5);
            tape.binary(Binary::Div, half, y)
        }
        Unary::Reciprocal => {
            let square = tape.binary(Binary::Mul, y, y);
            let product = tape.binary(Binary::Mul, dy, square);
            tape.unary(Unary::Neg, product)
        }
        Unary::Relu => {
            let step = tape.unary(Unary::Step, x);
            tape.binary(Binary::Mul, dy, step)
        }
        Unary::Sin => {
            let slope = tape.unary(Unary::Cos, x);
            tape.binary(Binary::Mul, dy, slope)
        }
        Unary::Cos => {
            let slope = tape.unary(Unary::Sin, x);
            let product = tape.binary(Binary::Mul, dy, slope);
            tape.unary(Unary::Neg, product)
        }
        Unary::Step | Unary::Detach => return None,
    })
}

fn binary(tape: &mut Tape, function: Binary, (a, b): (NodeId, NodeId), position: usize, dy: NodeId) -> Option<NodeId> {
    let full = match (function, position) {
        (Binary::Add, _) | (Binary::Sub, 0) => dy,
        (Binary::Sub, _) => {
            let sum = fold_to(tape, dy, b);
            return Some(tape.unary(Unary::Neg, sum));
        }
        (Binary::Mul, 0) => tape.binary(Binary::Mul, dy, b),
        (Binary::Mul, _) => tape.binary(Binary::Mul, dy, a),
        (Binary::Div, 0) => tape.binary(Binary::Div, dy, b),
        (Binary::Div, _) => {
            let product = tape.binary(Binary::Mul, dy, a);
            let square = tape.binary(Binary::Mul, b, b);
            let quotient = tape.binary(Binary::Div, product, square);
            tape.unary(Unary::Neg, quotient)
        }
        (Binary::Mask, 0) => tape.binary(Binary::Mask, dy, b),
        (Binary::Mask, _) | (Binary::Hash, _) => return None,
    };
    Some(fold_to(tape, full, if position == 0 { a } else { b }))
}

/// A matrix product whose operands are stored as they are or transposed.
struct Product {
    a: NodeId,
    transpose_a: bool,
    b: NodeId,
    transpose_b: bool,
}

impl Product {
    fn by_a(&self, tape: &mut Tape, dy: NodeId) -> NodeId {
        if self.transpose_a {
            tape.matmul(self.b, self.transpose_b, dy, true)
        } else {
            tape.matmul(dy, false, self.b, !self.transpose_b)
        }
    }

    fn by_b(&self, tape: &mut Tape, dy: NodeId) -> NodeId {
        let shared = tape.shape(self.b).len() < tape.shape(self.a).len();
        // A shared b adds up over all rows of a: one product of matrices with as many rows.
        let (a, dy) = if shared { (as_matrix(tape, self.a), as_matrix(tape, dy)) } else { (self.a, dy) };
        if self.transpose_b {
            tape.matmul(dy, true, a, self.transpose_a)
        } else {
            tape.matmul(a, !self.transpose_a, dy, false)
        }
    }
}

/// All rows of a tensor, as one matrix.
fn as_matrix(tape: &mut Tape, x: NodeId) -> NodeId {
    let shape = tape.shape(x);
    let columns = shape.last().copied().unwrap_or(1);
    let rows = shape.iter().rev().skip(1).product();
    tape.reshape(x, &[rows, columns])
}

fn normalize(tape: &mut Tape, inputs: &[NodeId], position: usize, dy: NodeId) -> NodeId {
    let (x, statistics, gain) = (inputs[0], inputs[1], inputs[2]);
    let shape = tape.shape(inputs[position]).to_vec();
    match position {
        0 => {
            let rms = matches!(tape.node(statistics).op, Op::NormStatistics { rms: true, .. });
            tape.shaped(Op::NormalizeGradInput { rms }, &[x, statistics, gain, dy], &shape)
        }
        2 => tape.shaped(Op::NormalizeGradGain, &[x, statistics, dy], &shape),
        _ => fold_to(tape, dy, inputs[3]),
    }
}

/// All derivatives at once, of which this is one: weights are made again from queries and keys, so
/// that no pass keeps them (arXiv 2205.14135, algorithm 4).
fn attention(tape: &mut Tape, op: Op, inputs: &[NodeId], position: usize, dy: NodeId) -> NodeId {
    let (inputs, starts) = inputs.split_at(3);
    let rows: Vec<u64> =
        inputs.iter().map(|input| tape.shape(*input).iter().rev().nth(1).copied().unwrap_or(1)).collect();
    let mut shape = tape.shape(dy).to_vec();
    let axis = shape.len() - 2;
    shape[axis] = rows.iter().sum();
    let all = tape.shaped(op, &[inputs, &[dy], starts].concat(), &shape);
    let own = tape.slice(all, axis, rows[..position].iter().sum(), rows[position]);
    // Keys and values may be repeated for several heads of queries.
    fold_to(tape, own, inputs[position])
}

/// Adds up a gradient over the dimensions along which `of` was repeated, in single precision, from
/// what is stored of it.
fn fold_to(tape: &mut Tape, gradient: NodeId, of: NodeId) -> NodeId {
    let target = tape.shape(of).to_vec();
    let full = tape.shape(gradient).to_vec();
    if target == full {
        return gradient;
    }
    let gradient = tape.stored(gradient);
    let extra = full.len() - target.len();
    // The leading dimensions that are all repeated are added up in one go.
    let ones = target.iter().take_while(|size| **size == 1).count();
    let leading = extra + ones;
    let rows = full[..leading].iter().product();
    let mut sum = gradient;
    if rows > 1 {
        let mut folded = vec![rows];
        folded.extend(&full[leading..]);
        let matrix = tape.reshape(gradient, &folded);
        let matrix = tape.computed(matrix);
        sum = tape.sum(matrix, 0);
        let mut shape = vec![1; ones];
        shape.extend(&full[leading..]);
        sum = tape.reshape(sum, &shape);
    } else if extra > 0 {
        sum = tape.reshape(sum, &full[extra..]);
    }
    for (axis, size) in target.iter().enumerate().skip(ones) {
        if *size == 1 && tape.shape(sum)[axis] > 1 {
            let wide = tape.computed(sum);
            sum = tape.sum(wide, axis);
        }
    }
    tape.computed(sum)
}

/// Repeats a gradient to the shape of `of`, by a product with ones: element-wise, so it costs no memory of its own.
fn repeat_to(tape: &mut Tape, gradient: NodeId, of: NodeId) -> NodeId {
    let shape = tape.shape(of).to_vec();
    let ones = tape.constant(1.0, &shape);
    tape.binary(Binary::Mul, gradient, ones)
}

fn inverse(permutation: &[u32]) -> Vec<u32> {
    let mut inverse: Vec<u32> = (0..).take(permutation.len()).collect();
    inverse.sort_unstable_by_key(|to| permutation[*to as usize]);
    inverse
}
