//! The loss of logits that are split along the classes (arXiv 1909.08053, section 3, end): members exchange two numbers
//! for each row, not the logits.

use super::{Along, Dividing, Own, State};
use crate::graph::composed::log_sum_exp;
use pipe_ir::graph::{Binary, Node, Op};
use pipe_ir::ids::NodeId;

/// The mean of `log sum e^logits - logit of the target` over all rows, times their weights, if there are any.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "the constant is an element of a tensor")]
pub(super) fn cross_entropy(
    dividing: &mut Dividing<'_>,
    node: &Node,
    (logits, along): (NodeId, Along),
    (targets, weights): (NodeId, Option<NodeId>),
) -> Own {
    let whole = dividing.whole.tape.shape(node.inputs[0]).to_vec();
    let (classes, rows) = whole.split_last().map_or((1, &[][..]), |(classes, rows)| (*classes, rows));
    let one = [rows, &[1]].concat();
    let columns = dividing.own_indices(targets, classes);
    let members = dividing.members;
    let logits = without_padding(dividing, (logits, along), classes);
    let tape = &mut dividing.tape;
    let own = log_sum_exp(tape, logits);
    // [members, rows, 1] -> [rows, members]
    let all = tape.all_gather(own, members, true);
    let all = tape.reshape(all, &[&[members], rows].concat());
    let order: Vec<u32> = (1..=rows.len()).chain([0]).map(crate::graph::tape::to_u32).collect();
    let all = tape.transpose(all, &order);
    let all = log_sum_exp(tape, all);
    let ty = pipe_ir::graph::TensorType::new(pipe_ir::graph::DType::I32, &one);
    let columns = tape.push(Op::Reshape, vec![columns], ty);
    let chosen = tape.take_along(logits, columns);
    let chosen = tape.all_reduce(chosen);
    let mut loss = tape.binary(Binary::Sub, all, chosen);
    if let Some(weights) = weights {
        let weights = tape.reshape(weights, &one);
        loss = tape.binary(Binary::Mul, loss, weights);
    }
    let count = tape.ty(loss).elements();
    for axis in (0..rows.len()).rev() {
        loss = tape.sum(loss, axis);
    }
    loss = tape.scale(loss, 1.0 / count as f64);
    Own { node: tape.reshape(loss, &[]), state: State::Whole }
}

/// Logits in which no class is likely that only padding has.
fn without_padding(dividing: &mut Dividing<'_>, (logits, along): (NodeId, Along), classes: u64) -> NodeId {
    if along.padding == 0 {
        return logits;
    }
    let width = (classes + along.padding) / dividing.members;
    let zeros = dividing.tape.constant(0.0, &[classes]);
    let all = dividing.padded(zeros, Along { axis: 0, ..along }, NEVER);
    let tape = &mut dividing.tape;
    let all = tape.reshape(all, &[dividing.members, width]);
    let own = tape.own_part(all);
    let own = tape.reshape(own, &[width]);
    tape.binary(Binary::Add, logits, own)
}

/// What is added to the logit of a class that is not there: its exponential is zero, and no precision overflows.
const NEVER: f64 = -1e30;
