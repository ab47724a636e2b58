//! Frozen stages: which gradients each stage computes, and so which tasks it has.
//!
//! A stage that trains computes the gradients of its input and its weights. A frozen stage computes
//! no weight gradients: its backward is `B`. It has a backward only if it reads, directly or through
//! other stages, a stage that trains. Every stage that reads a stage with a backward has one too, so
//! each backward gets its gradients.

use crate::stage_graph::StageGraph;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;

/// Which gradients a stage computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gradients {
    /// Those of its input and its weights: it trains.
    Both,
    /// Those of its input: it is frozen, and reads, directly or not, a stage that trains.
    OfInput,
    /// None: it runs forward only.
    None,
}

impl Gradients {
    /// Whether a stage has tasks of a kind.
    pub const fn need(self, kind: TaskKind) -> bool {
        match self {
            Self::Both => true,
            Self::OfInput => matches!(kind, TaskKind::Forward | TaskKind::Recompute | TaskKind::BackwardInput),
            Self::None => matches!(kind, TaskKind::Forward),
        }
    }
}

/// Which gradients each stage computes, by [`StageId`]. Empty if every stage trains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frozen(Vec<Gradients>);

impl Frozen {
    /// With these stages frozen, by [`StageId`].
    pub fn new(frozen: &[bool], graph: &StageGraph) -> Self {
        if !frozen.contains(&true) {
            return Self::default();
        }
        let of = |is_frozen: &bool| if *is_frozen { Gradients::None } else { Gradients::Both };
        let mut all: Vec<Gradients> = frozen.iter().map(of).collect();
        // Edges from earlier microbatches may close cycles: repeat until nothing changes.
        let reach = |all: &mut [Gradients]| {
            let before = all.to_vec();
            for stage in (0..all.len()).map(StageId::from_index) {
                let earlier = graph.earlier_before(stage).map(|edge| edge.from);
                let mut read = graph.before(stage).iter().copied().chain(earlier);
                if frozen[stage.index()] && read.any(|read| all[read.index()] != Gradients::None) {
                    all[stage.index()] = Gradients::OfInput;
                }
            }
            before != all
        };
        while reach(&mut all) {}
        Self(all)
    }

    /// Which gradients a stage computes.
    pub fn gradients(&self, stage: StageId) -> Gradients {
        self.0.get(stage.index()).copied().unwrap_or(Gradients::Both)
    }

    /// The kind that a task has once its stage is frozen: `BW` becomes `B`. None if the task drops out.
    pub fn kind(&self, kind: TaskKind, stage: StageId) -> Option<TaskKind> {
        match (self.gradients(stage), kind) {
            (Gradients::OfInput, TaskKind::Backward) => Some(TaskKind::BackwardInput),
            (gradients, kind) => gradients.need(kind).then_some(kind),
        }
    }

    /// Whether a stage has tasks of a kind.
    pub fn needs(&self, kind: TaskKind, stage: StageId) -> bool {
        self.gradients(stage).need(kind)
    }

    /// Whether a stage has a backward.
    pub fn has_backward(&self, stage: StageId) -> bool {
        self.gradients(stage) != Gradients::None
    }

    /// Whether the weights of a stage stay as they are.
    pub fn is_frozen(&self, stage: StageId) -> bool {
        self.gradients(stage) != Gradients::Both
    }

    /// Whether any stage is frozen.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether no stage has a backward.
    pub fn is_forward_only(&self) -> bool {
        self.any() && self.0.iter().all(|stage| *stage == Gradients::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradients(frozen: &[bool]) -> Vec<Gradients> {
        let all = Frozen::new(frozen, &StageGraph::chain(frozen.len()));
        (0..frozen.len()).map(|stage| all.gradients(StageId::from_index(stage))).collect()
    }

    #[test]
    fn gradients_go_back_as_far_as_something_trains() {
        use Gradients::{Both, None, OfInput};
        assert_eq!(gradients(&[false, false]), [Both, Both]);
        assert_eq!(gradients(&[true, false, true, false]), [None, Both, OfInput, Both]);
        assert_eq!(gradients(&[false, true, true]), [Both, OfInput, OfInput]);
        assert_eq!(gradients(&[true, true]), [None, None]);
        // Stage 2 reads stage 0 only, and stage 3 both.
        let edges = [(0, 2), (1, 3), (2, 3)].map(|(from, to)| (StageId(from), StageId(to)));
        let all = Frozen::new(&[true, false, true, true], &StageGraph::new(4, edges));
        assert_eq!([0, 1, 2, 3].map(|stage| all.gradients(StageId(stage))), [None, Both, None, OfInput]);
        assert!(!all.is_forward_only() && !Frozen::default().is_forward_only() && !Frozen::default().any());
    }
}
