//! Floating-point operations of a graph: 2 per multiply-add of a matrix product; elsewhere 1 per element that is
//! computed or added up, 5 per element of a normalisation or a soft-maximum. Views and copies count nothing.

use pipe_ir::graph::{Node, Op, TensorType};

/// Operations of one node.
pub(super) fn of_node(nodes: &[Node], node: &Node) -> u64 {
    let input = |position: usize| node.inputs.get(position).map(|id| &nodes[id.index()].ty);
    let read = input(0).map_or(0, TensorType::elements);
    let written = node.ty.elements();
    match &node.op {
        Op::MatMul { transpose_a, .. } => {
            let shape = input(0).map_or(&[][..], |ty| &ty.shape);
            let inner = shape.iter().rev().nth(usize::from(*transpose_a)).copied().unwrap_or(1);
            written.saturating_mul(inner).saturating_mul(2)
        }
        Op::Unary(_) | Op::Binary(_) => written,
        Op::Sum { .. } => read,
        Op::ScatterAdd => node.inputs.get(1).map_or(0, |id| nodes[id.index()].ty.elements()),
        Op::NormStatistics { .. }
        | Op::Normalize
        | Op::NormalizeGradInput
        | Op::NormalizeGradGain
        | Op::Softmax { .. }
        | Op::SoftmaxGrad
        | Op::CrossEntropy
        | Op::CrossEntropyGrad => read.saturating_mul(5),
        Op::Input { .. } | Op::Constant(_) | Op::Concat { .. } | Op::Gather => 0,
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } => 0,
    }
}

/// Operations of all nodes.
#[must_use]
pub(super) fn flops(nodes: &[Node]) -> u64 {
    nodes.iter().fold(0, |sum, node| sum.saturating_add(of_node(nodes, node)))
}
