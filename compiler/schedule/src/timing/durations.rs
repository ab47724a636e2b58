//! How long things take: every task of every stage, transfers, and copies.

use super::latency::Latency;
use super::sharing::Sharing;
use crate::schedule::ScheduledTask;
use crate::swaps::SwapKind;
use crate::units::Ticks;
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use std::sync::Arc;

/// Durations of a stage's tasks, by [`TaskKind::index`].
pub type Times = [Ticks; TaskKind::ALL.len()];

/// How long things take. No verdict about safety reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Duration of one task, by stage, then by [`TaskKind::index`]. Where microbatches differ, the least of them.
    pub tasks: Vec<Times>,
    /// By stage, where its tasks differ between microbatches: their durations by the microbatches of a step, slices
    /// counted.
    pub each: Vec<Option<Arc<[Times]>>>,
    /// What a forward and a backward take together that share a device, by [`TaskKind::index`] of the backward; where
    /// nothing is said, as long as one after the other.
    pub pairs: [Option<Ticks>; TaskKind::ALL.len()],
    /// How long transfers between devices take.
    pub latency: Latency,
    /// How long a copy of 1 MiB between a device and its host takes.
    pub copy: Ticks,
    /// How long it takes to evict an activation, and to fetch it, by the position of [`SwapKind`].
    pub swaps: [Ticks; SwapKind::ALL.len()],
    /// Which devices share processors: their tasks take longer while others run.
    pub sharing: Sharing,
}

impl Costs {
    /// Duration of a task, or of two that share a device.
    pub fn of_node(&self, node: &[ScheduledTask]) -> Ticks {
        let each = node.iter().map(|one| self.of_task(one.task));
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

    /// Duration of a task of a stage, the least of all microbatches.
    pub fn of(&self, kind: TaskKind, stage: StageId) -> Ticks {
        self.tasks[stage.index()][kind.index()]
    }

    /// Duration of a task.
    pub fn of_task(&self, task: Task) -> Ticks {
        match self.each_of(task.stage) {
            Some(each) => each[task.microbatch.index() % each.len()][task.kind.index()],
            None => self.of(task.kind, task.stage),
        }
    }

    /// Duration of a swap.
    pub fn of_swap(&self, kind: SwapKind) -> Ticks {
        self.swaps[kind as usize]
    }

    /// The most that a task of a stage takes.
    pub fn most(&self, kind: TaskKind, stage: StageId) -> Ticks {
        let each = self.each_of(stage).into_iter().flatten();
        each.map(|times| times[kind.index()]).fold(self.of(kind, stage), Ord::max)
    }

    /// What the tasks of a stage take, for each microbatch of a step, slices counted, where these differ; else once.
    pub fn rows(&self, stage: StageId) -> &[Times] {
        self.each_of(stage).unwrap_or(std::slice::from_ref(&self.tasks[stage.index()]))
    }

    /// Whether some stage's tasks differ between microbatches.
    pub fn differ(&self) -> bool {
        self.each.iter().any(Option::is_some)
    }

    fn each_of(&self, stage: StageId) -> Option<&[Times]> {
        self.each.get(stage.index())?.as_deref().filter(|each| !each.is_empty())
    }
}
