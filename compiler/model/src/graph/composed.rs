//! Functions composed of the operations of a graph. The compiler fuses what is element-wise.

use super::tape::Tape;
use pipe_ir::graph::{Binary, Op, Unary};
use pipe_ir::ids::NodeId;

/// sqrt(2 / pi)
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
/// 0.044715 * sqrt(2 / pi)
const GELU_CUBIC: f64 = 0.035_677_408_136_300_125;

/// The Gaussian error linear unit in its tanh form (arXiv 1606.08415):
/// x * (0.5 + 0.5 * tanh(x * (sqrt(2 / pi) + 0.044715 * sqrt(2 / pi) * x^2))).
pub(crate) fn gelu(tape: &mut Tape, x: NodeId) -> NodeId {
    let square = tape.binary(Binary::Mul, x, x);
    let cubic = tape.scale(square, GELU_CUBIC);
    let slope = tape.shift(cubic, GELU_SCALE);
    let inner = tape.binary(Binary::Mul, x, slope);
    let tanh = tape.unary(Unary::Tanh, inner);
    let half = tape.scale(tanh, 0.5);
    let gate = tape.shift(half, 0.5);
    tape.binary(Binary::Mul, x, gate)
}

/// The sum over one axis, which keeps its place with size 1, so many times.
#[expect(clippy::cast_precision_loss, reason = "the constant is an element of a tensor")]
pub(crate) fn scaled_sum(tape: &mut Tape, x: NodeId, axis: usize, times: u64) -> NodeId {
    let sum = tape.sum(x, axis);
    tape.scale(sum, times as f64)
}

/// A tensor times `above / below`.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "the constant is an element of a tensor")]
pub(crate) fn part(tape: &mut Tape, x: NodeId, above: u64, below: u64) -> NodeId {
    tape.scale(x, above as f64 / below as f64)
}

/// The mean over one axis, which keeps its place with size 1.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "the constant is an element of a tensor")]
pub(crate) fn mean(tape: &mut Tape, x: NodeId, axis: usize) -> NodeId {
    let size = tape.shape(x)[axis] as f64;
    let sum = tape.sum(x, axis);
    tape.scale(sum, 1.0 / size)
}

/// 1 / (1 + e^-x), as 0.5 + 0.5 * tanh(x / 2): no power of e is infinite.
pub(crate) fn sigmoid(tape: &mut Tape, x: NodeId) -> NodeId {
    let half = tape.scale(x, 0.5);
    let tanh = tape.unary(Unary::Tanh, half);
    let half = tape.scale(tanh, 0.5);
    tape.shift(half, 0.5)
}

/// x * sigmoid(x) (arXiv 1702.03118).
pub(crate) fn silu(tape: &mut Tape, x: NodeId) -> NodeId {
    let gate = sigmoid(tape, x);
    tape.binary(Binary::Mul, x, gate)
}

/// 1 where a > b, else 0.
pub(crate) fn greater(tape: &mut Tape, a: NodeId, b: NodeId) -> NodeId {
    let difference = tape.binary(Binary::Sub, a, b);
    tape.step(difference)
}

/// 1 where a >= b, else 0.
pub(crate) fn at_least(tape: &mut Tape, a: NodeId, b: NodeId) -> NodeId {
    let below = greater(tape, b, a);
    let otherwise = tape.complement(below);
    let (a, b) = (is_number(tape, a), is_number(tape, b));
    let both = tape.binary(Binary::Mul, a, b);
    tape.binary(Binary::Mul, otherwise, both)
}

/// 0 where an element is no number, else 1.
fn is_number(tape: &mut Tape, x: NodeId) -> NodeId {
    let square = tape.binary(Binary::Mul, x, x);
    let above = tape.shift(square, 1.0);
    tape.step(above)
}

/// 1 where a = b, else 0.
pub(crate) fn equal(tape: &mut Tape, a: NodeId, b: NodeId) -> NodeId {
    let (above, below) = (at_least(tape, a, b), at_least(tape, b, a));
    tape.binary(Binary::Mul, above, below)
}

/// Elements of a where the condition is more than 0, and of b elsewhere.
pub(crate) fn choose(tape: &mut Tape, condition: NodeId, a: NodeId, b: NodeId) -> NodeId {
    let yes = tape.binary(Binary::Mask, a, condition);
    let is_true = tape.step(condition);
    let otherwise = tape.complement(is_true);
    let no = tape.binary(Binary::Mask, b, otherwise);
    tape.binary(Binary::Add, yes, no)
}

/// The largest element along an axis, which keeps its place with size 1. Of equal ones, the first has the gradient.
pub(crate) fn amax(tape: &mut Tape, x: NodeId, axis: usize) -> NodeId {
    let last = tape.shape(x).len() - 1;
    let mut swapped: Vec<u32> = (0..).take(last + 1).collect();
    swapped.swap(axis, last);
    let rows = tape.transpose(x, &swapped);
    let column = tape.top_k(rows, 1);
    let top = tape.take_along(rows, column);
    tape.transpose(top, &swapped)
}

/// Turns the pairs (i, n / 2 + i) of each row by angles (arXiv 2104.09864): `x[.., m, n]`, `angles[m, n / 2]`.
pub(crate) fn rotary(tape: &mut Tape, x: NodeId, angles: NodeId) -> NodeId {
    let axis = tape.shape(x).len() - 1;
    let half = tape.shape(x)[axis] / 2;
    let (sine, cosine) = (tape.unary(Unary::Sin, angles), tape.unary(Unary::Cos, angles));
    let (first, second) = (tape.slice(x, axis, 0, half), tape.slice(x, axis, half, half));
    let products = [(first, cosine), (second, sine), (second, cosine), (first, sine)];
    let [a, b, c, d] = products.map(|(part, factor)| tape.binary(Binary::Mul, part, factor));
    let turned = [tape.binary(Binary::Sub, a, b), tape.binary(Binary::Add, c, d)];
    tape.concat(&turned, axis)
}

/// The logarithm of the sum of e^x along the last axis, which keeps its place with size 1. No power is above 1. Its
/// gradient is that of the sum alone: the largest element is taken off and added again.
pub(crate) fn log_sum_exp(tape: &mut Tape, x: NodeId) -> NodeId {
    let last = tape.shape(x).len() - 1;
    let column = tape.top_k(x, 1);
    let top = tape.take_along(x, column);
    let top = tape.unary(Unary::Detach, top);
    let below = tape.binary(Binary::Sub, x, top);
    let powers = tape.unary(Unary::Exp, below);
    let sum = tape.sum(powers, last);
    let logarithm = tape.unary(Unary::Log, sum);
    tape.binary(Binary::Add, logarithm, top)
}

/// The mean over all rows of the square of [`log_sum_exp`], as a number (arXiv 2204.02311, section 5; of routers
/// arXiv 2202.08906, equation 5).
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "the constant is an element of a tensor")]
pub(crate) fn z_loss(tape: &mut Tape, logits: NodeId) -> NodeId {
    let z = log_sum_exp(tape, logits);
    let count = tape.ty(z).elements();
    let mut sum = tape.binary(Binary::Mul, z, z);
    for axis in (0..tape.shape(z).len() - 1).rev() {
        sum = tape.sum(sum, axis);
    }
    let mean = tape.scale(sum, 1.0 / count as f64);
    tape.reshape(mean, &[])
}

/// Elements of x times `1 / (1 - rate)`, or 0 with the probability `rate` (arXiv 1207.0580). Which are 0 follows from a
/// key, `[1]`, from which dropout of its layer this is, and from the place of each element.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "constants are elements of tensors")]
pub(crate) fn dropout(tape: &mut Tape, x: NodeId, key: NodeId, nth: u64, rate: f64) -> NodeId {
    let nth = tape.constant(nth as f64, &[]);
    let mut first = tape.binary(Binary::Hash, key, nth);
    let mut second = tape.binary(Binary::Hash, first, key);
    let shape = tape.shape(x).to_vec();
    let places = shape.iter().enumerate().map(|(axis, size)| {
        let positions = tape.shaped(Op::Positions, &[], &[*size]);
        let mut along = vec![1; shape.len()];
        along[axis] = *size;
        tape.reshape(positions, &along)
    });
    let places: Vec<NodeId> = places.collect();
    // Two numbers for each row, so that rows with one of them in common still differ.
    let (last, before) = places.split_last().map_or((key, &[][..]), |(last, before)| (*last, before));
    for place in before {
        first = tape.binary(Binary::Hash, first, *place);
        second = tape.binary(Binary::Hash, *place, second);
    }
    let own = tape.binary(Binary::Hash, first, last);
    let number = tape.binary(Binary::Hash, own, second);
    // Numbers are multiples of 2^-24: those from the rate on are kept.
    let above = tape.shift(number, HALF_UNIT - rate);
    let kept = tape.binary(Binary::Mask, x, above);
    tape.scale(kept, 1.0 / (1.0 - rate))
}

/// 2^-25
const HALF_UNIT: f64 = 1.0 / 33_554_432.0;
