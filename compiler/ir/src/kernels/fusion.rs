//! Fusion: groups element-wise nodes into one kernel each, and orders all work.
//!
//! Rule: two groups of the same shape and type of arithmetic merge where one reads the other,
//! unless a path between them leaves the group and comes back (such a group could not run at any
//! one time).

use super::emit::Liveness;
use super::rows::{Extent, RowOp};
use crate::graph::{Class, DType, Graph, Op};
use crate::ids::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Whether element-wise nodes share kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fusion {
    /// As many as possible.
    On,
    /// Every node is a kernel.
    Off,
}

/// What is emitted at once.
#[derive(Debug)]
pub(super) enum Unit {
    /// A node that is not element-wise.
    Single(NodeId),
    /// Element-wise nodes of one shape and type of arithmetic, in order.
    Group(Vec<NodeId>),
}

/// Limits that keep compiled functions small.
const MAX_NODES: usize = 64;
const MAX_INPUTS: usize = 12;

/// The live nodes of a graph as units, in an order in which every input comes first.
pub(super) fn units(graph: &Graph, fusion: Fusion) -> Vec<Unit> {
    let liveness = Liveness::of(graph);
    let mut groups = Groups::singletons(graph.nodes.len());
    if fusion == Fusion::On {
        let is_fused = |id: usize| is_elementwise(&graph.nodes[id].op) && !rounds_result(graph, &liveness, id);
        for id in (0..graph.nodes.len()).filter(|&id| liveness.is_live(id) && is_fused(id)) {
            for input in graph.nodes[id].inputs.iter().map(|input| input.index()) {
                let (ty, other) = (&graph.nodes[id].ty, &graph.nodes[input].ty);
                let is_alike = ty.shape == other.shape && ty.dtype.arithmetic() == other.dtype.arithmetic();
                if is_alike && is_fused(input) {
                    groups.try_merge(graph, input, id);
                }
            }
        }
    }
    ordered(graph, &liveness, &groups)
}

/// Whether a node can be part of a fused expression.
pub(super) fn is_elementwise(op: &Op) -> bool {
    op.class() == Class::Elementwise
}

/// Whether a node only rounds what nobody else reads, a product or attention of bfloat16 or the
/// result of a kernel over rows: then that is stored so.
pub(super) fn rounds_result(graph: &Graph, liveness: &Liveness, id: usize) -> bool {
    let node = &graph.nodes[id];
    let Some(source) = node.inputs.first().filter(|_| node.op == Op::Convert && node.ty.dtype == DType::BF16) else {
        return false;
    };
    let node = graph.node(*source);
    let can_round = match node.op.class() {
        Class::Product if matches!(node.op, Op::RoutedMatMul { .. } | Op::RoutedMatMulGrad) => false,
        Class::Product => node.inputs.iter().all(|input| graph.node(*input).ty.dtype == DType::BF16),
        Class::Rows | Class::Indexed => RowOp::of(graph, node).is_some_and(|op| op.signature().result == Extent::Rows),
        Class::Source | Class::Elementwise | Class::Sum | Class::View | Class::Join | Class::Exchange => false,
    };
    can_round && liveness.uses(source.index()) == 1
}

/// A partition of the nodes.
struct Groups {
    /// The group of each node: the smallest index in it.
    of: Vec<usize>,
    /// The nodes of each group, ascending.
    members: Vec<Vec<usize>>,
}

impl Groups {
    fn singletons(n: usize) -> Self {
        Self { of: (0..n).collect(), members: (0..n).map(|id| vec![id]).collect() }
    }

    fn try_merge(&mut self, graph: &Graph, a: usize, b: usize) {
        let (a, b) = (self.of[a], self.of[b]);
        if a == b {
            return;
        }
        let mut union: Vec<usize> = [self.members[a].as_slice(), self.members[b].as_slice()].concat();
        union.sort_unstable();
        let inputs = self.inputs_from_outside(graph, &union, (a, b));
        if union.len() > MAX_NODES || inputs.len() > MAX_INPUTS || self.comes_back(graph, &inputs, &union, (a, b)) {
            return;
        }
        let (keep, drop) = (a.min(b), a.max(b));
        for &member in &union {
            self.of[member] = keep;
        }
        self.members[drop].clear();
        self.members[keep] = union;
    }

    fn inputs_from_outside(&self, graph: &Graph, union: &[usize], pair: (usize, usize)) -> BTreeSet<usize> {
        let inputs = union.iter().flat_map(|&member| &graph.nodes[member].inputs).map(|input| input.index());
        inputs.filter(|&input| self.of[input] != pair.0 && self.of[input] != pair.1).collect()
    }

    /// Whether any of these inputs depends on a member of the pair.
    fn comes_back(&self, graph: &Graph, inputs: &BTreeSet<usize>, union: &[usize], pair: (usize, usize)) -> bool {
        let first = union.first().copied().unwrap_or(0);
        let mut visited = BTreeSet::new();
        let mut pending: Vec<usize> = inputs.iter().map(|&input| self.of[input]).collect();
        while let Some(group) = pending.pop() {
            if group == pair.0 || group == pair.1 {
                return true;
            }
            let is_later = self.members[group].last().is_some_and(|&last| last > first);
            if is_later && visited.insert(group) {
                let inputs = self.members[group].iter().flat_map(|&member| &graph.nodes[member].inputs);
                pending.extend(inputs.map(|input| self.of[input.index()]));
            }
        }
        false
    }
}

/// Topological order of the groups; of those that are ready, the one whose last node comes first.
fn ordered(graph: &Graph, liveness: &Liveness, groups: &Groups) -> Vec<Unit> {
    let n = graph.nodes.len();
    let mut waiting_for = vec![0_usize; n];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); n];
    for id in (0..n).filter(|&id| liveness.is_live(id)) {
        for input in graph.nodes[id].inputs.iter().map(|input| groups.of[input.index()]) {
            if input != groups.of[id] {
                waiting_for[groups.of[id]] += 1;
                readers[input].push(groups.of[id]);
            }
        }
    }
    let last = |group: usize| groups.members[group].last().copied().unwrap_or(group);
    let is_ready = |group: &usize| groups.of[*group] == *group && liveness.is_live(*group) && waiting_for[*group] == 0;
    let mut ready: BinaryHeap<_> = (0..n).filter(is_ready).map(|group| Reverse((last(group), group))).collect();
    let mut units = Vec::new();
    while let Some(Reverse((_, group))) = ready.pop() {
        units.push(unit(graph, liveness, &groups.members[group]));
        for &reader in &readers[group] {
            waiting_for[reader] -= 1;
            if waiting_for[reader] == 0 {
                ready.push(Reverse((last(reader), reader)));
            }
        }
    }
    units
}

fn unit(graph: &Graph, liveness: &Liveness, members: &[usize]) -> Unit {
    let is_alone = |id: usize| !is_elementwise(&graph.nodes[id].op) || rounds_result(graph, liveness, id);
    match members {
        [single] if is_alone(*single) => Unit::Single(NodeId::from_index(*single)),
        _ => Unit::Group(members.iter().map(|&member| NodeId::from_index(member)).collect()),
    }
}
