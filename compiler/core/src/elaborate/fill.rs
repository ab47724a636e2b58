//! `fill`: tasks that take the first slots that are free, modulo the period, once their inputs have ended.
//!
//! Forwards are filled in from the first stage on, backwards from the last stage on, weight gradients in the order of
//! the slots of their `B`. So the result depends on nothing but the text.

use super::block::Durations;
use super::limits::Report;
use crate::diagnostic::{Code, Diagnostic};
use crate::placement::Placement;
use crate::schedule::BlockTask;
use crate::source::Span;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use std::collections::BTreeMap;

/// A line of a block that says `fill`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) kind: TaskKind,
    pub(super) origin: u16,
    pub(super) span: Span,
}

/// Which slots of a period are taken on each device.
pub(super) struct FreeSlots<'p> {
    /// Slots from one microbatch to the next.
    every: u64,
    /// Slots until the same devices run the same tasks again.
    period: u64,
    durations: Durations,
    placement: &'p Placement,
    /// By device: starts of runs of taken slots, with their ends; runs do not touch.
    taken: Vec<BTreeMap<u64, u64>>,
    /// By kind and stage: where a task starts in the block.
    starts: Vec<Vec<Option<u64>>>,
}

impl<'p> FreeSlots<'p> {
    pub(super) fn new(
        every: u64,
        durations: Durations,
        placement: &'p Placement,
        n_devices: u32,
        slots: &[BlockTask],
    ) -> Self {
        let taken = vec![BTreeMap::new(); n_devices as usize];
        let starts = vec![vec![None; placement.n_stages()]; TaskKind::ALL.len()];
        let period = every.saturating_mul(u64::from(placement.period()));
        let mut free = Self { every, period, durations, placement, taken, starts };
        slots.iter().for_each(|task| free.take(task.kind, task.stage, task.slot));
        free
    }

    /// Finds slots for all these lines, and adds their tasks.
    pub(super) fn fill(&mut self, lines: &[Fill], slots: &mut Vec<BlockTask>, report: &mut Report) {
        let order = [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::Backward, TaskKind::BackwardWeight];
        for kind in order {
            for line in lines.iter().filter(|line| line.kind == kind) {
                for stage in self.sequence(kind) {
                    let earliest = self.inputs_end(kind, stage);
                    let Some(slot) = self.first_free(kind, stage, earliest) else {
                        report.add(self.no_room(*line, stage));
                        break;
                    };
                    self.take(kind, stage, slot);
                    slots.push(BlockTask { kind, stage, slot, origin: line.origin });
                }
            }
        }
    }

    /// Stages in the order in which their tasks of a kind are filled in.
    fn sequence(&self, kind: TaskKind) -> Vec<StageId> {
        let mut stages: Vec<StageId> = self.placement.stages().collect();
        match kind {
            TaskKind::Forward | TaskKind::Update => {}
            TaskKind::BackwardInput | TaskKind::Backward => stages.reverse(),
            TaskKind::BackwardWeight => stages.sort_by_key(|stage| self.start(TaskKind::BackwardInput, *stage)),
        }
        stages
    }

    fn start(&self, kind: TaskKind, stage: StageId) -> Option<u64> {
        self.starts[kind.index()].get(stage.index()).copied().flatten()
    }

    fn end(&self, kind: TaskKind, stage: StageId) -> u64 {
        self.start(kind, stage).map_or(0, |start| start + self.durations[kind.index()])
    }

    /// The first slot at which a task's inputs are there; slot 0 for those that the block does not compute.
    fn inputs_end(&self, kind: TaskKind, stage: StageId) -> u64 {
        let next = StageId(stage.0 + 1);
        match kind {
            TaskKind::Forward if stage.0 == 0 => 0,
            TaskKind::Forward => self.end(TaskKind::Forward, StageId(stage.0 - 1)),
            TaskKind::BackwardInput | TaskKind::Backward => {
                let ends = [TaskKind::BackwardInput, TaskKind::Backward].map(|kind| self.end(kind, next));
                ends.into_iter().fold(self.end(TaskKind::Forward, stage), u64::max)
            }
            TaskKind::BackwardWeight | TaskKind::Update => {
                self.end(TaskKind::BackwardInput, stage).max(self.end(TaskKind::Forward, stage))
            }
        }
    }

    /// The first slot from `earliest` on at which a task would meet none of its device, in any period.
    fn first_free(&self, kind: TaskKind, stage: StageId, earliest: u64) -> Option<u64> {
        let duration = self.durations[kind.index()];
        if duration > self.every {
            return None;
        }
        let mut slot = earliest;
        while slot < earliest + self.period {
            let blocked = self.turns(stage, slot).find_map(|(device, start)| {
                blocker(&self.taken[device.index()], start, duration, self.period).map(|end| (start, end))
            });
            match blocked {
                None => return Some(slot),
                // A run that ends at the end of the period may go on at its beginning: the next turn sees to it.
                Some((start, end)) => slot += if end > start { end - start } else { end + self.period - start },
            }
        }
        None
    }

    /// The device and the start, modulo the period, of a task for each microbatch of a period.
    fn turns(&self, stage: StageId, slot: u64) -> impl Iterator<Item = (DeviceId, u64)> {
        (0..self.placement.period()).map(move |microbatch| {
            let start = slot.saturating_add(self.every.saturating_mul(u64::from(microbatch)));
            (self.placement.device(stage, MicrobatchId(microbatch)), start % self.period)
        })
    }

    /// Marks the slots of a task.
    fn take(&mut self, kind: TaskKind, stage: StageId, slot: u64) {
        let duration = self.durations[kind.index()].min(self.period);
        let turns: Vec<(DeviceId, u64)> = self.turns(stage, slot).collect();
        for (device, start) in turns {
            let taken = &mut self.taken[device.index()];
            mark(taken, start, (start + duration).min(self.period));
            if start + duration > self.period {
                mark(taken, 0, start + duration - self.period);
            }
        }
        self.starts[kind.index()][stage.index()].get_or_insert(slot);
    }

    fn no_room(&self, line: Fill, stage: StageId) -> Diagnostic {
        let device = self.placement.device(stage, MicrobatchId(0));
        let used: u64 = self.taken[device.index()].iter().map(|(start, end)| end - start).sum();
        let (kind, period, duration) = (line.kind.letters(), self.period, self.durations[line.kind.index()]);
        let message = format!(
            "no free slot for {kind} of {stage}: it takes {duration}, and {used} of the {period} slots of {device} are taken"
        );
        let live = match self.placement.stages().filter(|other| self.placement.is_home(*other, device)).count() {
            1 => "1 stage lives".to_owned(),
            n_stages => format!("{n_stages} stages live"),
        };
        Diagnostic::error(Code::NoFreeSlot, line.span, format!("no room for {stage}"), message)
            .note(format!("{live} on {device}, and every task of each needs slots of its own"))
            .help("repeat the block less often: give `every` more slots")
    }
}

/// The end of a run of taken slots that a task from `start` on would meet.
fn blocker(taken: &BTreeMap<u64, u64>, start: u64, duration: u64, period: u64) -> Option<u64> {
    let before = taken.range(..=start).next_back().filter(|(_, end)| **end > start);
    let within = || taken.range(start..start + duration).next();
    let wrapped = || (start + duration > period).then(|| taken.range(..start + duration - period).next()).flatten();
    before.or_else(within).or_else(wrapped).map(|(_, end)| *end)
}

/// Adds a run of taken slots, and joins it with those that it touches.
fn mark(taken: &mut BTreeMap<u64, u64>, mut start: u64, mut end: u64) {
    while let Some((&first, &last)) = taken.range(..=end).next_back() {
        if last < start {
            break;
        }
        taken.remove(&first);
        start = start.min(first);
        end = end.max(last);
    }
    taken.insert(start, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_taken_slots_are_joined() {
        let mut taken = BTreeMap::new();
        for (start, end) in [(5, 6), (0, 1), (3, 4), (4, 5), (9, 10)] {
            mark(&mut taken, start, end);
        }
        assert_eq!(taken, BTreeMap::from([(0, 1), (3, 6), (9, 10)]));
        assert_eq!(blocker(&taken, 2, 1, 12), None);
        assert_eq!(blocker(&taken, 2, 2, 12), Some(6));
        assert_eq!(blocker(&taken, 10, 2, 12), None);
        assert_eq!(blocker(&taken, 10, 3, 12), Some(1));
    }
}
