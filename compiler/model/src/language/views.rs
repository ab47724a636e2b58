//! Functions that arrange elements, and how devices divide tensors.

use super::evaluator::{Evaluator, Reported};
use super::functions::{Arguments, sizes};
use super::value::Value;
use pipe_ir::graph::TensorType;
use pipe_ir::value::Split;
use pipe_syntax::ast::WeightSplit;
use pipe_syntax::diagnostic::{Code, Diagnostic};

type Made = Result<Value, Reported>;

/// The same elements in another shape.
pub(super) fn reshape(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let shape = sizes(evaluator, given, "reshape")?;
    let (before, after) = (evaluator.tape.ty(x.node).elements(), shape.iter().product::<u64>());
    if before != after {
        let message = format!("{} has {before} elements, but the new shape has {after}", evaluator.tape.ty(x.node));
        let diagnostic =
            Diagnostic::error(Code::ShapeMismatch, given.written[1].span, format!("{after} elements"), message);
        return evaluator.fail(diagnostic.label(x.span, format!("{before} elements")));
    }
    Ok(Value::Tensor(evaluator.tape.reshape(x.node, &shape)))
}

/// The axes in another order.
pub(super) fn transpose(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let rank = evaluator.tape.shape(x.node).len();
    let mut permutation = Vec::with_capacity(rank);
    for position in 1..given.values.len() {
        let axis = given.axis(evaluator, position, x)?;
        permutation.push(crate::graph::tape::to_u32(axis));
    }
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != rank || permutation.len() != rank {
        let message = format!("`transpose` must name each of the {rank} axes of {} once", evaluator.tape.ty(x.node));
        let diagnostic = Diagnostic::error(Code::ShapeMismatch, given.span, "called here", message);
        return evaluator.fail(x.label(evaluator.tape, diagnostic));
    }
    Ok(Value::Tensor(evaluator.tape.transpose(x.node, &permutation)))
}

/// Some elements along an axis.
pub(super) fn slice(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let axis = given.axis(evaluator, 1, x)?;
    let start = evaluator.integer(given.values[2])?;
    let size = evaluator.size(given.values[3])?;
    let whole = evaluator.tape.shape(x.node)[axis];
    match u64::try_from(start) {
        Ok(start) if start.checked_add(size).is_some_and(|end| end <= whole) => {
            Ok(Value::Tensor(evaluator.tape.slice(x.node, axis, start, size)))
        }
        _ => {
            let message = format!("{size} elements from {start} on are not all in an axis of size {whole}");
            let diagnostic = Diagnostic::error(Code::OutOfRange, given.span, "this slice", message);
            evaluator.fail(x.label(evaluator.tape, diagnostic))
        }
    }
}

/// Tensors side by side.
pub(super) fn concat(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let first = given.numbers(evaluator, 1)?;
    let axis = given.axis(evaluator, 0, first)?;
    let mut parts = vec![first.node];
    for position in 2..given.values.len() {
        let part = given.numbers(evaluator, position)?;
        let mut expected = evaluator.tape.shape(first.node).to_vec();
        expected[axis] = evaluator.tape.shape(part.node).get(axis).copied().unwrap_or(0);
        if evaluator.tape.shape(part.node) != expected {
            let message = format!("tensors that are joined along axis {axis} must agree in all others");
            let diagnostic = part.error(evaluator.tape, Code::ShapeMismatch, message);
            return evaluator.fail(first.label(evaluator.tape, diagnostic));
        }
        parts.push(part.node);
    }
    let joined = evaluator.tape.concat(&parts, axis);
    evaluator.made(joined, given.span)
}

/// The same tensor, which the devices that stand behind one device divide along an axis.
pub(super) fn split(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let axis = given.axis(evaluator, 1, x)?;
    evaluator.tape.split(x.node, axis);
    Ok(Value::Tensor(x.node))
}

/// How devices divide a weight of this type.
pub(super) fn split_of_weight(
    evaluator: &mut Evaluator<'_>,
    written: &WeightSplit,
    ty: &TensorType,
) -> Result<Split, Reported> {
    let value = evaluator.value(&written.axis);
    let axis = evaluator.integer((value, written.axis.span))?;
    let rank = i64::try_from(ty.shape.len()).unwrap_or(i64::MAX);
    let counted = if axis < 0 { rank.saturating_add(axis) } else { axis };
    let Some(axis) = u32::try_from(counted).ok().filter(|axis| i64::from(*axis) < rank) else {
        let message = format!("there is no axis {axis} in a weight with {rank} of them");
        let error = Diagnostic::error(Code::OutOfRange, written.axis.span, "this axis", message);
        return evaluator.fail(error.help("axes count from 0, and from -1 backwards"));
    };
    let Some(expr) = &written.blocks else { return Ok(Split { axis, blocks: 1, members: 1, padding: 0 }) };
    let value = evaluator.value(expr);
    let blocks = evaluator.size((value, expr.span))?;
    let size = ty.shape[axis as usize];
    if size.is_multiple_of(blocks) {
        return Ok(Split { axis, blocks, members: 1, padding: 0 });
    }
    let message = format!("an axis of size {size} has no {blocks} blocks of equal size");
    evaluator.fail(Diagnostic::error(Code::OutOfRange, expr.span, "so many blocks", message))
}
