//! Functions of images: convolution and pooling, as slices, a matrix product and reductions.

use super::evaluator::{Evaluator, Reported};
use super::functions::Arguments;
use super::value::{Operand, Value};
use crate::graph::composed;
use crate::graph::tape::Tape;
use pipe_ir::ids::NodeId;
use pipe_syntax::diagnostic::{Code, Diagnostic};

type Made = Result<Value, Reported>;

/// The largest stride, and the most zeros at each end of an axis.
const MOST_STEPS: u64 = 1 << 16;
/// The most places of a kernel: each is a slice of its own.
const MOST_PLACES: u64 = 1 << 12;

/// The axes of images: `[rows, height, width, channels]`.
const HEIGHT: usize = 1;
const WIDTH: usize = 2;
const CHANNELS: usize = 3;

/// Sums over windows of `x[rows, height, width, from]`, each weighed by `kernel[high, wide, from, to]`.
pub(super) fn conv2d(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let (x, kernel) = (given.numbers(evaluator, 0)?, given.numbers(evaluator, 1)?);
    let stride = small_or(evaluator, given, 2, (1, 1))?;
    let padding = small_or(evaluator, given, 3, (0, 0))?;
    let (image, window) = (image(evaluator, "conv2d", x)?, evaluator.tape.shape(kernel.node).to_vec());
    let [high, wide, from, to] = window[..] else {
        let message = "a kernel of `conv2d` has four axes: `[high, wide, from, to]`";
        return evaluator.fail(kernel.error(evaluator.tape, Code::ShapeMismatch, message));
    };
    let padded = [image[HEIGHT], image[WIDTH]].map(|size| size + 2 * padding);
    if from != image[CHANNELS] || high > padded[0] || wide > padded[1] {
        let message = format!(
            "`conv2d` cannot move a kernel {} over {}",
            evaluator.tape.ty(kernel.node),
            evaluator.tape.ty(x.node)
        );
        let help = "the third size of the kernel is the last one of `x`, and it is no larger than the padded image";
        let error = kernel.label(evaluator.tape, x.error(evaluator.tape, Code::ShapeMismatch, message));
        return evaluator.fail(error.help(help));
    }
    let [rows, columns] = [(HEIGHT, high, padded[0]), (WIDTH, wide, padded[1])].map(|(axis, window, size)| Windows {
        axis,
        window,
        stride,
        count: (size - window) / stride + 1,
    });
    if high.saturating_mul(wide) > MOST_PLACES {
        let message = format!("a kernel has at most {MOST_PLACES} places, and this one has {high} by {wide}");
        return evaluator.fail(kernel.error(evaluator.tape, Code::TooLarge, message));
    }
    let each = high * wide * from;
    evaluator.check_elements(&[image[0], padded[0] + stride, padded[1] + stride, from], given.span)?;
    evaluator.check_elements(&[image[0], rows.count, columns.count, each], given.span)?;
    let tape = &mut *evaluator.tape;
    let x = rows.padded(tape, x.node, padding);
    let x = columns.padded(tape, x, padding);
    let mut places = Vec::new();
    for row in 0..high {
        let band = rows.from(tape, x, row);
        for column in 0..wide {
            places.push(columns.from(tape, band, column));
        }
    }
    let joined = if places.len() == 1 { places[0] } else { tape.concat(&places, CHANNELS) };
    let n_windows = image[0] * rows.count * columns.count;
    let windows = tape.reshape(joined, &[n_windows, each]);
    let weights = tape.reshape(kernel.node, &[each, to]);
    let sums = tape.matmul(windows, false, weights, false);
    let made = tape.reshape(sums, &[image[0], rows.count, columns.count, to]);
    evaluator.made(made, given.span)
}

/// The largest element of each square of an image.
pub(super) fn max_pool(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    pool(evaluator, given, "max_pool", composed::amax)
}

/// The mean of each square of an image.
pub(super) fn mean_pool(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    pool(evaluator, given, "mean_pool", composed::mean)
}

/// Squares that do not overlap; what is left over at the end is left out.
fn pool(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    function: &str,
    reduce: fn(&mut Tape, NodeId, usize) -> NodeId,
) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let size = evaluator.size(given.values[1])?;
    let [rows, height, width, channels] = image(evaluator, function, x)?;
    let (high, wide) = (height / size, width / size);
    if high == 0 || wide == 0 {
        let message = format!("no square of {size} by {size} is in an image of {height} by {width}");
        let error = Diagnostic::error(Code::OutOfRange, given.values[1].1, "this size", message);
        return evaluator.fail(x.label(evaluator.tape, error));
    }
    let tape = &mut *evaluator.tape;
    let x = if high * size < height { tape.slice(x.node, HEIGHT, 0, high * size) } else { x.node };
    let x = if wide * size < width { tape.slice(x, WIDTH, 0, wide * size) } else { x };
    let squares = tape.reshape(x, &[rows, high, size, wide, size, channels]);
    let squares = tape.transpose(squares, &[0, 1, 3, 5, 2, 4]);
    let squares = tape.reshape(squares, &[rows, high, wide, channels, size * size]);
    let reduced = reduce(tape, squares, 4);
    let made = tape.reshape(reduced, &[rows, high, wide, channels]);
    evaluator.made(made, given.span)
}

/// Where windows are along an axis.
#[derive(Clone, Copy)]
struct Windows {
    axis: usize,
    window: u64,
    stride: u64,
    count: u64,
}

impl Windows {
    /// Zeros at both ends, and as many more behind as [`Self::from`] slices.
    fn padded(self, tape: &mut Tape, x: NodeId, padding: u64) -> NodeId {
        let size = tape.shape(x)[self.axis] + 2 * padding;
        let read = self.window - 1 + self.count * self.stride;
        let zeros = |tape: &mut Tape, count: u64| {
            let mut shape = tape.shape(x).to_vec();
            shape[self.axis] = count;
            tape.constant(0.0, &shape)
        };
        let behind = padding + if self.stride > 1 { read.saturating_sub(size) } else { 0 };
        let mut parts = vec![x];
        if padding > 0 {
            parts.insert(0, zeros(tape, padding));
        }
        if behind > 0 {
            parts.push(zeros(tape, behind));
        }
        if parts.len() == 1 { x } else { tape.concat(&parts, self.axis) }
    }

    /// The element at this place of each window.
    fn from(self, tape: &mut Tape, x: NodeId, place: u64) -> NodeId {
        let all = tape.slice(x, self.axis, place, self.count * self.stride);
        if self.stride == 1 {
            return all;
        }
        let shape = tape.shape(all).to_vec();
        let mut apart = shape.clone();
        apart.splice(self.axis..=self.axis, [self.count, self.stride]);
        let mut firsts = shape;
        firsts[self.axis] = self.count;
        let steps = tape.reshape(all, &apart);
        let first = tape.slice(steps, self.axis + 1, 0, 1);
        tape.reshape(first, &firsts)
    }
}

/// The sizes of a tensor of images.
fn image(evaluator: &mut Evaluator<'_>, function: &str, x: Operand) -> Result<[u64; 4], Reported> {
    match *evaluator.tape.shape(x.node) {
        [rows, height, width, channels] => Ok([rows, height, width, channels]),
        _ => {
            let message = format!("`{function}` wants images: `[rows, height, width, channels]`");
            evaluator.fail(x.error(evaluator.tape, Code::ShapeMismatch, message))
        }
    }
}

/// A small whole number by its place, which is at least `least`; or what stands for it where it is not given.
fn small_or(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    position: usize,
    (usual, least): (u64, u64),
) -> Result<u64, Reported> {
    let Some(value) = given.values.get(position) else { return Ok(usual) };
    let number = evaluator.integer(*value)?;
    match u64::try_from(number).ok().filter(|number| (least..=MOST_STEPS).contains(number)) {
        Some(number) => Ok(number),
        None => {
            let what = if position == 2 { "stride" } else { "padding" };
            let message = format!("the {what} is {number}; it must be {least} to {MOST_STEPS}");
            evaluator.fail(Diagnostic::error(Code::OutOfRange, value.1, format!("this is {number}"), message))
        }
    }
}
