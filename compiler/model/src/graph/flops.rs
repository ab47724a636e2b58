//! Floating-point operations of a graph: 2 per multiply-add of a matrix product; elsewhere 1 per
//! element that is computed or added up, 5 per element of a normalisation or a soft-maximum, and of
//! the scores of attention that are seen. Views, copies and conversions count nothing.

use pipe_ir::graph::{Graph, Node, Op, TensorType};
use pipe_ir::ids::NodeId;
use pipe_ir::kernels;
use pipe_ir::program::Operand;
use pipe_ir::units::Bytes;
use pipe_ir::value::Value;

/// Operations of one node.
pub(crate) fn of_node(nodes: &[Node], node: &Node) -> u64 {
    let input = |position: usize| node.inputs.get(position).map(|id| &nodes[id.index()].ty);
    let read = input(0).map_or(0, TensorType::elements);
    let written = node.ty.elements();
    match &node.op {
        Op::MatMul { transpose_a, .. } => {
            let shape = input(0).map_or(&[][..], |ty| &ty.shape);
            let inner = shape.iter().rev().nth(usize::from(*transpose_a)).copied().unwrap_or(1);
            written.saturating_mul(inner).saturating_mul(2)
        }
        Op::RoutedMatMul { .. } => {
            let inner = input(0).and_then(|ty| ty.shape.last()).copied().unwrap_or(1);
            written.saturating_mul(inner).saturating_mul(2)
        }
        Op::RoutedMatMulGrad => {
            let width = node.inputs.get(1).and_then(|id| nodes[id.index()].ty.shape.last()).copied().unwrap_or(1);
            read.saturating_mul(width).saturating_mul(2)
        }
        Op::Unary(_) | Op::Binary(_) | Op::Powers { .. } => written,
        Op::Sum { .. } => read,
        Op::ScatterAdd | Op::AddAlong => node.inputs.get(1).map_or(0, |id| nodes[id.index()].ty.elements()),
        Op::NormStatistics { .. }
        | Op::Normalize
        | Op::NormalizeGradInput { .. }
        | Op::NormalizeGradGain
        | Op::Softmax { .. }
        | Op::SoftmaxGrad
        | Op::CrossEntropy
        | Op::CrossEntropyGrad => read.saturating_mul(5),
        Op::TopK => read.saturating_mul(node.ty.shape.last().copied().unwrap_or(1)),
        Op::Attention { causal, window } => attention(nodes, node, (*causal, *window), 2),
        Op::AttentionGrad { causal, window } => attention(nodes, node, (*causal, *window), 5),
        Op::Input { .. } | Op::Constant(_) | Op::Concat { .. } => 0,
        Op::Positions | Op::Gather | Op::TakeAlong => 0,
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Convert | Op::Vary | Op::OwnPart => 0,
        Op::AllReduce | Op::AllGather { .. } | Op::ReduceScatter | Op::AllToAll | Op::OwnIndices { .. } => 0,
    }
}

/// 2 per multiply-add of the products, and 5 for each score, for the scores that are seen.
fn attention(nodes: &[Node], node: &Node, (causal, window): (bool, Option<u64>), products: u64) -> u64 {
    let shape = |position: usize| node.inputs.get(position).map_or(&[][..], |id| &nodes[id.index()].ty.shape);
    let ([leading @ .., rows, width], [.., columns, _]) = (shape(0), shape(1)) else { return 0 };
    let seen = kernels::seen(*rows, *columns, causal, window);
    let matrices = leading.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    matrices.saturating_mul(seen).saturating_mul(products.saturating_mul(2).saturating_mul(*width).saturating_add(5))
}

/// Operations of all nodes.
pub(crate) fn flops(nodes: &[Node]) -> u64 {
    nodes.iter().fold(0, |sum, node| sum.saturating_add(of_node(nodes, node)))
}

/// Operations of one member of a device. Members divide the matrices of routed products; routing is known only at run
/// time, so every member counts the same share of the rows.
pub(crate) fn of_member(values: &[Value], operands: &[Operand], graph: &Graph) -> u64 {
    let members = |operand: u32, offset: Bytes| {
        let value = values.get(operands.get(operand as usize)?.value.index())?;
        let split = value.tensors.iter().find(|slot| slot.offset == offset)?.split?;
        (split.axis == 0).then_some(split.members)
    };
    let members_of = |id: NodeId, node: &Node| match node.op {
        Op::RoutedMatMul { .. } => match graph.node(source(graph, node.inputs[1])).op {
            Op::Input { operand, offset } => members(operand, offset),
            _ => None,
        },
        Op::RoutedMatMulGrad => {
            let mut stores = graph.stores.iter().filter(|store| source(graph, store.node) == id);
            stores.find_map(|store| members(store.operand, store.offset))
        }
        _ => None,
    };
    (0..).map(NodeId).zip(&graph.nodes).fold(0, |sum: u64, (id, node)| {
        sum.saturating_add(of_node(&graph.nodes, node) / members_of(id, node).unwrap_or(1).max(1))
    })
}

/// The node behind views and conversions.
fn source(graph: &Graph, mut id: NodeId) -> NodeId {
    while let Node { op: Op::Convert | Op::Reshape | Op::Transpose { .. } | Op::Vary, inputs, .. } = graph.node(id) {
        id = inputs[0];
    }
    id
}
