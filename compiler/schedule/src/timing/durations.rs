//! How long things take: every task of every stage, transfers, and copies.

use super::latency::Latency;
use super::sharing::Sharing;
use crate::schedule::ScheduledTask;
use crate::units::Ticks;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;

/// How long things take. No verdict about safety reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Duration of one task, by stage, then by [`TaskKind::index`].
    pub tasks: Vec<[Ticks; TaskKind::ALL.len()]>,
    /// What a forward and a backward take together that share a device, by [`TaskKind::index`] of the backward; where
    /// nothing is said, as long as one after the other.
    pub pairs: [Option<Ticks>; TaskKind::ALL.len()],
    /// How long transfers between devices take.
    pub latency: Latency,
    /// How long a copy of 1 MiB between a device and its host takes.
    pub copy: Ticks,
    /// Which devices share processors: their tasks take longer while others run.
    pub sharing: Sharing,
}

impl Costs {
    /// Duration of a task, or of two that share a device.
    pub fn of_node(&self, node: &[ScheduledTask]) -> Ticks {
        let each = node.iter().map(|one| self.of(one.task.kind, one.task.stage));
        let sum = each.fold(Ticks::ZERO, |sum, duration| sum + duration);
        match node {
            [_, backward] => self.pairs[backward.task.kind.index()].unwrap_or(sum),
            _ => sum,
        }
    }

    /// How much longer the two halves of a backward take than both at once, if they do.
    pub fn saved_by_fusing(&self, stage: StageId) -> Ticks {
        let halves = self.of(TaskKind::BackwardInput, stage) + self.of(TaskKind::BackwardWeight, stage);
        halves - self.of(TaskKind::Backward, stage)
    }

    /// By stage: whether both halves of a backward take longer at once than one after the other.
    pub fn are_slower_at_once(&self) -> Vec<bool> {
        let is_slower = |stage: StageId| {
            let halves = self.of(TaskKind::BackwardInput, stage) + self.of(TaskKind::BackwardWeight, stage);
            self.of(TaskKind::Backward, stage) > halves
        };
        (0..self.tasks.len()).map(StageId::from_index).map(is_slower).collect()
    }

    /// Duration of a task.
    pub fn of(&self, kind: TaskKind, stage: StageId) -> Ticks {
        self.tasks[stage.index()][kind.index()]
    }
}
