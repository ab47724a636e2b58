//! Functions composed of the operations of a graph. The compiler fuses what is element-wise.

use super::tape::Tape;
use pipe_ir::graph::{Binary, Unary};
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
