//! Dropout, and keys: what the dropouts of a layer follow from, which a run fills for each microbatch.

use super::evaluator::{Evaluator, Reported};
use super::functions::{Arguments, MOST_POSITIONS, Made, number_or};
use super::value::Value;
use crate::graph::composed;
use crate::{DataTensor, Leaf, Tape};
use pipe_ir::graph::TensorType;
use pipe_ir::ids::NodeId;
use pipe_ir::value::DROPOUT;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

/// Keys of a layer, which are data of the model.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Whether dropouts drop anything.
    pub drops: bool,
    /// The name of the layer.
    pub layer: String,
    /// The model's data tensors so far, with the places of their declarations.
    pub data: Vec<(DataTensor, Span)>,
    /// The leaf of the key, and how many dropouts have it, once there is one.
    own: Option<(NodeId, u64)>,
}

impl Keys {
    /// Keys of a layer. `data` are the model's data tensors so far.
    pub(super) fn new(drops: bool, layer: &str, data: Vec<(DataTensor, Span)>) -> Self {
        Self { drops, layer: layer.to_owned(), data, own: None }
    }

    /// The key of the next dropout, and which dropout of the layer that is.
    pub(super) fn next(&mut self, tape: &mut Tape, span: Span) -> (NodeId, u64) {
        let (key, nth) = self.own.unwrap_or_else(|| {
            let ty = TensorType::new(tape.precision(), &[1]);
            let name = format!("{DROPOUT}{}", self.layer);
            self.data.push((DataTensor { name, ty: ty.clone() }, span));
            (tape.leaf(Leaf::Data(self.data.len() - 1), ty), 0)
        });
        self.own = Some((key, nth + 1));
        (key, nth)
    }
}

/// The rate of dropout at a position of a call, if anything is dropped.
pub(super) fn rate_of(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    position: usize,
) -> Result<Option<f64>, Reported> {
    let rate = number_or(evaluator, given, position, 0.0)?;
    if !(0.0..1.0).contains(&rate) {
        let message = format!("a rate of dropout is 0 or more and below 1, and this one is {rate}");
        return evaluator.fail(Diagnostic::error(Code::OutOfRange, given.values[position].1, "this rate", message));
    }
    Ok((rate > 0.0 && evaluator.keys.drops).then_some(rate))
}

/// A rate of 0 leaves the tensor as it is.
pub(super) fn dropout(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let rate = rate_of(evaluator, given, 1)?;
    if let Some(size) = evaluator.tape.shape(x.node).iter().find(|size| **size > MOST_POSITIONS) {
        let message = format!("`dropout` counts {MOST_POSITIONS} places along an axis, and one of these has {size}");
        return evaluator.fail(x.error(evaluator.tape, Code::OutOfRange, message).help("reshape it to more axes"));
    }
    let Some(rate) = rate else { return Ok(Value::Tensor(x.node)) };
    let (key, nth) = evaluator.keys.next(evaluator.tape, given.span);
    Ok(Value::Tensor(composed::dropout(evaluator.tape, x.node, key, nth, rate)))
}
