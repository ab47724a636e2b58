//! The stage graph: which stages read what other stages compute. A model gives it; otherwise stages form a chain.

use pipe_ir::ids::StageId;

/// The edges between stages. All of them lead from a lower stage to a higher one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageGraph {
    before: Adjacent,
    after: Adjacent,
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
        Self { before: Adjacent::new(n_stages, reversed.into_iter()), after }
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

    /// All edges, each from the stage that computes to the stage that reads.
    pub fn edges(&self) -> impl Iterator<Item = (StageId, StageId)> + '_ {
        let stages = (0..self.n_stages()).map(StageId::from_index);
        stages.flat_map(|from| self.after(from).iter().map(move |to| (from, *to)))
    }

    /// Whether every stage reads the one before it, and nothing else.
    pub fn is_chain(&self) -> bool {
        self.after.stages.len() + 1 == self.n_stages().max(1) && self.edges().all(|(from, to)| from.0 + 1 == to.0)
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
}
