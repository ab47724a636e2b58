//! Sums that a kernel over rows makes itself: what is added to the derivative of a normalisation by
//! its input, as that of what went past it is.
//!
//! In the graph that is planned such a derivative has a fifth input, which the verifier lets no program have.

use super::emit::Liveness;
use crate::graph::{Binary, Graph, Node, Op};
use std::borrow::Cow;

/// The graph without the sums that kernels make.
pub(super) fn joined(graph: Cow<'_, Graph>) -> Cow<'_, Graph> {
    let liveness = Liveness::of(&graph);
    let sums: Vec<(usize, Node)> = (0..graph.nodes.len())
        .filter(|id| liveness.is_live(*id))
        .filter_map(|id| Some((id, derivative_with_sum(&graph, &liveness, &graph.nodes[id])?)))
        .collect();
    if sums.is_empty() {
        return graph;
    }
    let mut graph = graph.into_owned();
    for (id, node) in sums {
        graph.nodes[id] = node;
    }
    Cow::Owned(graph)
}

/// A sum as the derivative that is one of its summands, if nobody else reads that, and the other
/// one is stored as all that it reads.
fn derivative_with_sum(graph: &Graph, liveness: &Liveness, sum: &Node) -> Option<Node> {
    let (Op::Binary(Binary::Add), [a, b]) = (&sum.op, sum.inputs.as_slice()) else { return None };
    [(*a, *b), (*b, *a)].into_iter().find_map(|(derivative, other)| {
        let Node { op, inputs, ty } = graph.node(derivative);
        let x = &graph.node(*inputs.first()?).ty;
        let fits = matches!(op, Op::NormalizeGradInput { .. })
            && inputs.len() == 4
            && *ty == sum.ty
            && graph.node(other).ty == *x;
        (fits && liveness.uses(derivative.index()) == 1).then(|| Node {
            op: op.clone(),
            inputs: inputs.iter().copied().chain([other]).collect(),
            ty: ty.clone(),
        })
    })
}
