//! What one pass keeps for a later one: the cheapest set of tensors from which everything needed can be had again.
//!
//! A minimum cut (as in the partitioner of PyTorch's AOTAutograd): keeping a tensor costs its
//! bytes, cheap operations may be repeated for free, and products, soft-maxima and reductions never
//! are. Of several cheapest sets the one nearest to the uses is taken, which repeats least. Views
//! are never kept themselves: their source is.

use crate::graph::tape::{Leaf, Tape};
use petgraph::Direction;
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use pipe_ir::graph::{Class, Op};
use pipe_ir::ids::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// How a later pass can come by a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Supply {
    /// It is at hand: a weight, a constant, something kept anyway.
    Free,
    /// It can be kept, or computed again from its inputs.
    Cheap,
    /// It is seen again through its input, and never kept.
    View,
    /// It can only be kept.
    Dear,
    /// It can be neither kept nor computed again.
    Gone,
}

/// How a tensor of the forward pass can be had in a later one.
pub(super) fn supply(tape: &Tape, id: NodeId) -> Supply {
    let op = &tape.node(id).op;
    match (op.class(), op) {
        (_, Op::Constant(_) | Op::Positions | Op::Powers { .. }) => Supply::Free,
        (_, Op::Input { .. }) if matches!(tape.leaf_of(id), Some(Leaf::Weight(_))) => Supply::Free,
        (Class::View, _) => Supply::View,
        // As in arXiv 2205.05198, section 4.2.2: what is gathered once more is not kept as a whole.
        (_, Op::AllGather { shared: false, .. }) => Supply::Cheap,
        (Class::Elementwise | Class::Join, _) | (_, Op::Normalize | Op::Gather | Op::TakeAlong) => Supply::Cheap,
        (Class::Source | Class::Product | Class::Sum | Class::Rows | Class::Indexed | Class::Exchange, _) => {
            Supply::Dear
        }
    }
}

/// More than all tensors of a stage together, and far from overflowing when a few are added.
const UNBOUNDED: u64 = 1 << 61;

/// The vertices of a tensor: flow through it costs its bytes.
#[derive(Clone, Copy)]
struct Vertices {
    before: NodeIndex,
    after: NodeIndex,
}

/// The cheapest tensors to keep so that all of `needed` can be had.
pub(super) fn cheapest(tape: &Tape, needed: &BTreeSet<NodeId>, supply: impl Fn(NodeId) -> Supply) -> BTreeSet<NodeId> {
    cheapest_by(tape, needed, supply, |id| tape.ty(id).bytes().0)
}

/// The same where keeping a tensor costs what is said.
pub(super) fn cheapest_by(
    tape: &Tape,
    needed: &BTreeSet<NodeId>,
    supply: impl Fn(NodeId) -> Supply,
    cost: impl Fn(NodeId) -> u64,
) -> BTreeSet<NodeId> {
    let mut network: DiGraph<(), u64> = DiGraph::new();
    let (source, sink) = (network.add_node(()), network.add_node(()));
    let mut vertices: BTreeMap<NodeId, Vertices> = BTreeMap::new();
    let mut open: Vec<NodeId> = needed.iter().copied().filter(|id| supply(*id) != Supply::Free).collect();
    let mut uses: Vec<(NodeId, NodeId)> = Vec::new();
    while let Some(id) = open.pop() {
        if vertices.contains_key(&id) {
            continue;
        }
        let own = Vertices { before: network.add_node(()), after: network.add_node(()) };
        vertices.insert(id, own);
        let kind = supply(id);
        let keeping = if matches!(kind, Supply::View | Supply::Gone) { UNBOUNDED } else { cost(id) };
        network.add_edge(own.before, own.after, keeping);
        if matches!(kind, Supply::Dear | Supply::Gone) {
            network.add_edge(source, own.before, UNBOUNDED);
            continue;
        }
        for input in &tape.node(id).inputs {
            if supply(*input) != Supply::Free {
                uses.push((*input, id));
                open.push(*input);
            }
        }
    }
    for (from, to) in uses {
        network.add_edge(vertices[&from].after, vertices[&to].before, UNBOUNDED);
    }
    for own in needed.iter().filter_map(|id| vertices.get(id)) {
        network.add_edge(own.after, sink, UNBOUNDED);
    }
    let reaches = reaches_sink(&network, source, sink);
    let is_cut = |own: &Vertices| reaches[own.after.index()] && !reaches[own.before.index()];
    vertices.iter().filter(|(_, own)| is_cut(own)).map(|(id, _)| *id).collect()
}

/// Which vertices reach the sink in what a maximum flow leaves: the sink's side of the minimum cut nearest to it.
fn reaches_sink(network: &DiGraph<(), u64>, source: NodeIndex, sink: NodeIndex) -> Vec<bool> {
    let (_, flows) = dinics(network, source, sink);
    let mut reaches = vec![false; network.node_count()];
    reaches[sink.index()] = true;
    let mut open = vec![sink];
    while let Some(vertex) = open.pop() {
        let entering = network.edges_directed(vertex, Direction::Incoming);
        let forward = entering.filter(|edge| flows[edge.id().index()] < *edge.weight()).map(|edge| edge.source());
        let leaving = network.edges_directed(vertex, Direction::Outgoing);
        let back = leaving.filter(|edge| flows[edge.id().index()] > 0).map(|edge| edge.target());
        for next in forward.chain(back) {
            if !reaches[next.index()] {
                reaches[next.index()] = true;
                open.push(next);
            }
        }
    }
    reaches
}
