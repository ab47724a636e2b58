//! The stage graph: which stages read what other stages compute. A model gives it; otherwise stages form a chain.

use pipe_ir::ids::StageId;
use pipe_ir::program::Edge;
use pipe_ir::task::{Task, TaskKind};

/// How many neighbours make a join.
const JOIN: usize = 4;

/// The edges between stages. Within a microbatch, all of them lead from a lower stage to a higher one. Others lead to a
/// later microbatch, and to any stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageGraph {
    before: Neighbours,
    after: Neighbours,
    /// Whether some list of neighbours is long.
    has_joins: bool,
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

/// The neighbours of every stage on one side, ascending. Stages in a row with the same neighbours share one list: where
/// all devices that have a stage at once wait for all of them, there are as many edges as pairs of devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbours {
    /// By stage: its list.
    lists: Vec<u32>,
    /// By list: where it ends in `stages`.
    ends: Vec<usize>,
    stages: Vec<StageId>,
}

/// A list of neighbours that stages share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListId(u32);

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
        let after = Neighbours::of_pairs(n_stages, &edges);
        let mut reversed: Vec<(StageId, StageId)> = edges.into_iter().map(|(from, to)| (to, from)).collect();
        reversed.sort_unstable();
        Self::of_neighbours(Neighbours::of_pairs(n_stages, &reversed), after)
    }

    /// A graph in which each stage reads those `before` it, and is read by those `after` it: both say the same.
    pub fn of_neighbours(before: Neighbours, after: Neighbours) -> Self {
        let has_joins = before.are_many() || after.are_many();
        Self { before, after, has_joins, earlier: Vec::new(), later: Vec::new() }
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
        self.after.lists.len()
    }

    /// The stages that a stage reads, ascending.
    pub fn before(&self, stage: StageId) -> &[StageId] {
        self.before.of(stage)
    }

    /// The stages that read a stage, ascending.
    pub fn after(&self, stage: StageId) -> &[StageId] {
        self.after.of(stage)
    }

    /// Whether some stage has many neighbours.
    pub const fn has_joins(&self) -> bool {
        self.has_joins
    }

    /// The list of the stages that a stage reads, if it is long. Stages with the same list read the same.
    pub fn join_before(&self, stage: StageId) -> Option<ListId> {
        self.before.list(stage).filter(|_| self.has_joins && is_join(self.before(stage)))
    }

    /// The list of the stages that read a stage, likewise.
    pub fn join_after(&self, stage: StageId) -> Option<ListId> {
        self.after.list(stage).filter(|_| self.has_joins && is_join(self.after(stage)))
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
            && (0..self.n_stages()).map(StageId::from_index).all(|stage| match self.after(stage) {
                [] => stage.index() + 1 == self.n_stages(),
                [only] => stage.0 + 1 == only.0,
                _ => false,
            })
    }
}

impl Default for StageGraph {
    /// The graph without stages.
    fn default() -> Self {
        Self::chain(0)
    }
}

/// Whether so many neighbours are looked at once for all stages that have them.
const fn is_join(neighbours: &[StageId]) -> bool {
    neighbours.len() >= JOIN
}

impl Neighbours {
    /// Whether some list is long.
    fn are_many(&self) -> bool {
        (0..self.ends.len()).any(|list| is_join(&self.stages[self.range(list)]))
    }

    /// From sorted pairs of a stage and its neighbour.
    fn of_pairs(n_stages: usize, pairs: &[(StageId, StageId)]) -> Self {
        let mut all = Self::default();
        let mut rest = pairs;
        for stage in (0..n_stages).map(StageId::from_index) {
            let (own, others) = rest.split_at(rest.partition_point(|(of, _)| *of <= stage));
            all.push(1, own.iter().map(|(_, neighbour)| *neighbour));
            rest = others;
        }
        all
    }

    /// Adds stages that have these neighbours, ascending.
    pub fn push(&mut self, n_stages: usize, neighbours: impl IntoIterator<Item = StageId>) {
        let start = self.stages.len();
        self.stages.extend(neighbours);
        let before = self.ends.len().checked_sub(1).map(|last| &self.stages[self.range(last)]);
        if before == Some(&self.stages[start..]) {
            self.stages.truncate(start);
        } else {
            self.ends.push(self.stages.len());
        }
        let list = u32::try_from(self.ends.len() - 1).expect("there are far fewer stages than 2^32");
        self.lists.extend(std::iter::repeat_n(list, n_stages));
    }

    fn range(&self, list: usize) -> std::ops::Range<usize> {
        list.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[list]
    }

    fn list(&self, stage: StageId) -> Option<ListId> {
        self.lists.get(stage.index()).map(|list| ListId(*list))
    }

    fn of(&self, stage: StageId) -> &[StageId] {
        self.lists.get(stage.index()).map_or(&[], |list| &self.stages[self.range(*list as usize)])
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
