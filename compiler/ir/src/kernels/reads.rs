//! Reads of what is stored as bfloat16: whoever computes with it widens it as it is read, so that
//! no widened copy lies in memory.
//!
//! In the graph that is planned such nodes read bfloat16 themselves, which the verifier lets no program do.

use super::rows::RowOp;
use crate::graph::{DType, Graph, Node, Op};
use crate::ids::NodeId;
use std::borrow::Cow;

/// The graph without the conversions that readers do themselves.
pub(super) fn direct(graph: &Graph) -> Cow<'_, Graph> {
    if graph.nodes.iter().all(|node| node.op != Op::Convert) {
        return Cow::Borrowed(graph);
    }
    let mut direct = graph.clone();
    for node in &mut direct.nodes {
        let readable = readable(graph, node);
        let narrow = readable.iter().map(|position| widened(graph, node.inputs[*position]));
        let narrow: Vec<Option<NodeId>> = narrow.collect();
        // Kernels over rows have one type for all of these.
        if matches!(node.op, Op::Unary(_) | Op::Binary(_)) || narrow.iter().all(Option::is_some) {
            for (position, source) in readable.into_iter().zip(narrow) {
                node.inputs[position] = source.unwrap_or(node.inputs[position]);
            }
        }
    }
    Cow::Owned(direct)
}

/// What a node widens, if it does.
fn widened(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let node = graph.node(id);
    (node.op == Op::Convert && node.ty.dtype != DType::BF16).then(|| node.inputs[0])
}

/// Which inputs a node's kernel can widen.
fn readable(graph: &Graph, node: &Node) -> Vec<usize> {
    match node.op {
        Op::Unary(_) | Op::Binary(_) => (0..node.inputs.len()).collect(),
        Op::Sum { .. } => vec![0],
        _ => RowOp::of(graph, node).map_or_else(Vec::new, |op| op.large_inputs().collect()),
    }
}
