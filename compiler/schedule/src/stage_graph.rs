//! The stage graph: which stages read what other stages compute. A model gives it; otherwise stages form a chain.

use pipe_ir::ids::StageId;
use pipe_ir::program::Edge;
use pipe_ir::task::{Task, TaskKind};

/// The edges between stages. Within a microbatch, all of them lead from a lower stage to a higher one. Others lead to a
/// later microbatch, and to any stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageGraph {
    before: Adjacent,
    after: Adjacent,
    /// Ascending by the stage that reads, then by distance.
    earlier: Vec<Earlier>,
    /// The same, ascending by the stage that computes.
    later: Vec<Earlier>,
}

/// A stage reads what another one, or it itself, computes for an earlier microbatch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Earlier {
    /// The stage that reads.
    pub to: StageId,
    /// How many microbatches before its own; at least 1.
    pub behind: u32,
    /// The stage that computes.
    pub from: StageId,
}

/// The neighbours of every stage on one side, ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Adjacent {
    starts: Vec<usize>,
    stages: Vec<StageId>,
}

impl StageGraph {
    /// Every stage reads the one before it.
    pub fn chain(n_stages: usize) -> Self {
        Self::new(n_stages, (1..n_stages).map(|stage| (StageId::from_index(stage - 1), StageId::from_index(stage))))
    }

    /// A graph with these edges, each from the stage that computes to the stage that reads. Those that are there twice
    /// count once.
    ///
    /// # Panics
    /// If an edge does not lead to a higher stage below `n_stages`.
    pub fn new(n_stages: usize, edges: impl IntoIterator<Item = (StageId, StageId)>) -> Self {
        let mut edges: Vec<(StageId, StageId)> = edges.into_iter().collect();
        assert!(
            edges.iter().all(|(from, to)| from < to && to.index() < n_stages),
            "layers only read layers before them, and stages are ranges of layers"
        );
        edges.sort_unstable();
        edges.dedup();
        let after = Adjacent::new(n_stages, edges.iter().copied());
        let mut reversed: Vec<(StageId, StageId)> = edges.into_iter().map(|(from, to)| (to, from)).collect();
        reversed.sort_unstable();
        Self { before: Adjacent::new(n_stages, reversed.into_iter()), after, earlier: Vec::new(), later: Vec::new() }
    }

    /// The same graph with these edges to later microbatches. Equal edges count once.
    ///
    /// # Panics
    /// If a distance is 0, or a stage is not one of the graph.
    #[must_use]
    pub fn with_earlier(mut self, edges: impl IntoIterator<Item = Earlier>) -> Self {
        self.earlier = edges.into_iter().collect();
        let n_stages = self.n_stages();
        let is_known = |edge: &Earlier| edge.behind > 0 && edge.from.index().max(edge.to.index()) < n_stages;
        assert!(self.earlier.iter().all(is_known), "an earlier microbatch of a stage of the graph");
        self.earlier.sort_unstable();
        self.earlier.dedup();
        self.later.clone_from(&self.earlier);
        self.later.sort_by_key(|edge| edge.from);
        self
    }

    /// Number of stages.
    pub fn n_stages(&self) -> usize {
        self.after.starts.len() - 1
    }

    /// The stages that a stage reads, ascending.
    pub fn before(&self, stage: StageId) -> &[StageId] {
        self.before.of(stage)
    }

    /// The stages that read a stage, ascending.
    pub fn after(&self, stage: StageId) -> &[StageId] {
        self.after.of(stage)
    }

    /// What stages read of earlier microbatches.
    pub fn earlier(&self) -> &[Earlier] {
        &self.earlier
    }

    /// What a stage reads of earlier microbatches, the nearest first.
    pub fn earlier_before(&self, stage: StageId) -> impl Iterator<Item = Earlier> + Clone + '_ {
        let start = self.earlier.partition_point(|edge| edge.to < stage);
        self.earlier[start..].iter().copied().take_while(move |edge| edge.to == stage)
    }

    /// The edges to stages that read a stage for a later microbatch, by stage.
    pub fn earlier_after(&self, stage: StageId) -> impl Iterator<Item = Earlier> + Clone + '_ {
        let start = self.later.partition_point(|edge| edge.from < stage);
        self.later[start..].iter().copied().take_while(move |edge| edge.from == stage)
    }

    /// What a task leaves out because its step has no such microbatch. None if it leaves out nothing.
    pub fn edge(&self, task: Task, n_microbatches: u32) -> Option<Edge> {
        if self.earlier.is_empty() {
            return None;
        }
        let count = |is_lacking: &mut dyn Iterator<Item = bool>| {
            u32::try_from(is_lacking.filter(|lacking| *lacking).count()).unwrap_or(u32::MAX)
        };
        let (stage, own) = (task.stage, task.microbatch.0);
        let before = count(&mut self.earlier_before(stage).map(|edge| own < edge.behind));
        let after = count(&mut self.earlier_after(stage).map(|edge| n_microbatches.saturating_sub(edge.behind) <= own));
        let edge = match task.kind {
            TaskKind::Forward | TaskKind::Recompute => Edge { before, after: 0 },
            TaskKind::BackwardInput | TaskKind::Backward => Edge { before, after },
            TaskKind::BackwardWeight | TaskKind::Update => return None,
        };
        (edge != Edge { before: 0, after: 0 }).then_some(edge)
    }

    /// All edges, each from the stage that computes to the stage that reads, of whatever microbatch.
    pub fn edges(&self) -> impl Iterator<Item = (StageId, StageId)> + '_ {
        let stages = (0..self.n_stages()).map(StageId::from_index);
        let same = stages.flat_map(|from| self.after(from).iter().map(move |to| (from, *to)));
        same.chain(self.earlier.iter().map(|edge| (edge.from, edge.to)))
    }

    /// Whether every stage reads the one before it, and nothing else.
    pub fn is_chain(&self) -> bool {
        self.earlier.is_empty()
            && self.after.stages.len() + 1 == self.n_stages().max(1)
            && self.edges().all(|(from, to)| from.0 + 1 == to.0)
    }
}

impl Default for StageGraph {
    /// The graph without stages.
    fn default() -> Self {
        Self::chain(0)
    }
}

impl Adjacent {
    /// From sorted pairs of a stage and its neighbour.
    fn new(n_stages: usize, pairs: impl Iterator<Item = (StageId, StageId)>) -> Self {
        let mut adjacent = Self { starts: vec![0; n_stages + 1], stages: Vec::new() };
        for (stage, neighbour) in pairs {
            adjacent.starts[stage.index() + 1] += 1;
            adjacent.stages.push(neighbour);
        }
        for stage in 0..n_stages {
            adjacent.starts[stage + 1] += adjacent.starts[stage];
        }
        adjacent
    }

    fn of(&self, stage: StageId) -> &[StageId] {
        match self.starts.get(stage.index()..stage.index() + 2) {
            Some([start, end]) => &self.stages[*start..*end],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(stages: &[u32]) -> Vec<StageId> {
        stages.iter().map(|stage| StageId(*stage)).collect()
    }

    #[test]
    fn a_chain_is_one() {
        for n_stages in 0..5 {
            let graph = StageGraph::chain(n_stages);
            assert!(graph.is_chain() && graph.n_stages() == n_stages);
        }
        assert_eq!(StageGraph::chain(3).before(StageId(2)), ids(&[1]));
        assert_eq!(StageGraph::chain(3).after(StageId(2)), []);
    }

    #[test]
    fn neighbours_are_sorted_and_counted_once() {
        let edges = [(0, 3), (1, 2), (0, 1), (0, 3), (2, 3)].map(|(from, to)| (StageId(from), StageId(to)));
        let graph = StageGraph::new(4, edges);
        assert!(!graph.is_chain());
        assert_eq!(graph.after(StageId(0)), ids(&[1, 3]));
        assert_eq!(graph.before(StageId(3)), ids(&[0, 2]));
        assert_eq!(graph.before(StageId(9)), []);
        assert_eq!(graph.edges().count(), 4);
    }

    #[test]
    fn edges_from_earlier_microbatches_are_found_from_both_sides() {
        let edge = |from, to, behind| Earlier { from: StageId(from), to: StageId(to), behind };
        let edges = [edge(2, 0, 4), edge(1, 0, 2), edge(2, 2, 1), edge(2, 0, 4)];
        let graph = StageGraph::chain(3).with_earlier(edges);
        assert!(!graph.is_chain());
        assert_eq!(graph.earlier_before(StageId(0)).collect::<Vec<_>>(), [edge(1, 0, 2), edge(2, 0, 4)]);
        assert_eq!(graph.earlier_before(StageId(1)).count(), 0);
        assert_eq!(graph.earlier_after(StageId(2)).collect::<Vec<_>>(), [edge(2, 0, 4), edge(2, 2, 1)]);
        assert_eq!(graph.edges().count(), 5);
    }
}
