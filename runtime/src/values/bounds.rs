//! Bounds: below what the indices of each data tensor must stay.

use pipe_ir::graph::{Graph, Node, Op};
use pipe_ir::ids::NodeId;
use pipe_ir::program::{Body, Program};
use std::collections::BTreeMap;

/// By data tensor, the number of rows of the smallest table, or of classes, that any stage indexes with it. One that
/// indexes none is absent.
pub(super) fn bounds(program: &Program) -> BTreeMap<String, u64> {
    let mut bounds = BTreeMap::new();
    for exec in &program.execs {
        let Body::Graph(graph) = &exec.body else { continue };
        for (input, rows) in graph.nodes.iter().filter_map(|node| indexed(graph, node)) {
            let Op::Input { operand, offset } = graph.node(input).op else { continue };
            let value = exec.operands.get(operand as usize).map(|operand| program.value(operand.value));
            if let Some(slot) = value.and_then(|value| value.tensors.iter().find(|slot| slot.offset == offset)) {
                let bound: &mut u64 = bounds.entry(slot.name.clone()).or_insert(rows);
                *bound = rows.min(*bound);
            }
        }
    }
    bounds
}

/// Rows of the table that `node` indexes with a tensor in this operand, if it does.
pub(crate) fn indexed_rows(graph: &Graph, node: &Node, operand: u32) -> Option<u64> {
    let (input, rows) = indexed(graph, node)?;
    matches!(graph.node(input).op, Op::Input { operand: from, .. } if from == operand).then_some(rows)
}

/// The indices that `node` takes, if it does, and the rows of what it indexes.
fn indexed(graph: &Graph, node: &Node) -> Option<(NodeId, u64)> {
    match (&node.op, node.inputs.as_slice()) {
        (Op::Gather, [table, indices]) => Some((*indices, *graph.node(*table).ty.shape.first()?)),
        (Op::CrossEntropy, [logits, targets, ..]) => Some((*targets, *graph.node(*logits).ty.shape.last()?)),
        (Op::OwnIndices { all, .. }, [indices]) => Some((*indices, *all)),
        _ => None,
    }
}
