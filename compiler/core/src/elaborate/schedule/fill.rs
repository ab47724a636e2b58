//! `fill`: tasks that take the first slots that are free, modulo the period, once their inputs have
//! ended: those that the stage graph of the model says, or of a chain where there is no model.
//!
//! Forwards are filled in from the first stage on, backwards from the last stage on, one microbatch
//! of the block after the other; weight gradients in the order of the slots of their `B`. What
//! recomputes takes the last free slots before its backward instead: nobody else waits for it. So
//! the result depends on nothing but the text.

use super::block::Durations;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::block::period;
use pipe_schedule::parts::StageParts;
use pipe_schedule::placement::{Placement, names};
use pipe_schedule::schedule::{Block, BlockTask};
use pipe_schedule::stage_graph::{ListId, StageGraph};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A line of a block that says `fill`.
#[derive(Clone, Debug)]
pub(super) struct Fill {
    pub(super) kind: TaskKind,
    /// Whether it is about a stage or part, by [`StageId`].
    pub(super) rows: Vec<bool>,
    pub(super) origin: u16,
    pub(super) span: Span,
}

/// What a task of a block works on.
type Work = (StageId, MicrobatchId);

/// Which slots of a period are taken on each device.
pub(super) struct FreeSlots<'p> {
    /// Microbatches of a block, and slots from one block to the next.
    block: (u32, u64),
    /// Blocks until the same devices run the same tasks again, and slots until then.
    turn: (u32, u64),
    durations: Durations,
    /// The same by part. Empty if stages have no parts.
    of_parts: Vec<Durations>,
    parts: &'p StageParts,
    placement: &'p Placement,
    /// By device: starts of runs of taken slots, with their ends; runs do not touch.
    taken: Vec<BTreeMap<u64, u64>>,
    /// By kind, microbatch and stage: where a task starts in the block.
    starts: Vec<Vec<Option<u64>>>,
    /// Whether a line fills in recomputation, for which backwards leave time.
    recomputes: bool,
    /// When all have ended that many tasks of a kind and microbatch wait for.
    joins: BTreeMap<(TaskKind, ListId, MicrobatchId), u64>,
}

impl<'p> FreeSlots<'p> {
    pub(super) fn new(
        block: &Block,
        (placement, parts): (&'p Placement, &'p StageParts),
        (n_queues, n_microbatches): (usize, u32),
    ) -> Self {
        let n_works = placement.n_stages() * block.microbatches as usize;
        // Where a step ends before devices repeat, slots far from its beginning are taken for near ones: that is safe.
        let (blocks, _) = period::blocks(block.microbatches, placement, n_microbatches);
        let mut free = Self {
            block: (block.microbatches, block.period),
            turn: (blocks, block.period.saturating_mul(u64::from(blocks))),
            durations: block.durations,
            of_parts: block.of_parts.clone(),
            parts,
            placement,
            taken: vec![BTreeMap::new(); n_queues],
            starts: vec![vec![None; n_works]; TaskKind::ALL.len()],
            recomputes: false,
            joins: BTreeMap::new(),
        };
        block.slots.iter().for_each(|task| free.take(task.kind, (task.stage, task.microbatch), task.slot));
        free
    }

    /// Finds slots for all these lines, and adds their tasks.
    pub(super) fn fill(mut self, lines: &[Fill], graph: &StageGraph, slots: &mut Vec<BlockTask>, report: &mut Report) {
        self.recomputes = lines.iter().any(|line| line.kind == TaskKind::Recompute);
        let backward = [TaskKind::BackwardInput, TaskKind::Backward];
        for kind in [&[TaskKind::Forward], &backward[..], &[TaskKind::Recompute, TaskKind::BackwardWeight]].concat() {
            let of_kind: Vec<&Fill> = lines.iter().filter(|line| line.kind == kind).collect();
            let mut refused = BTreeSet::new();
            // Parts of a stage may stand in lines of their own: each task goes behind those that it needs.
            for work in self.sequence(kind) {
                let own = of_kind.iter().enumerate().filter(|(_, line)| line.rows[work.0.index()]);
                for (place, line) in own {
                    if refused.contains(&place) {
                        continue;
                    }
                    let earliest = self.inputs_end(kind, work, graph);
                    let slot = match backward.iter().find_map(|kind| self.start(*kind, work)) {
                        Some(end) if kind == TaskKind::Recompute => self.last_free(kind, work, earliest..end),
                        _ => self.first_free(kind, work, earliest),
                    };
                    let Some(slot) = slot else {
                        report.add(self.no_room(line, work));
                        refused.insert(place);
                        continue;
                    };
                    self.take(kind, work, slot);
                    let (stage, microbatch) = work;
                    slots.push(BlockTask { kind, stage, microbatch, slot, origin: line.origin });
                }
            }
        }
    }

    /// Stages and microbatches in the order in which their tasks of a kind are filled in.
    fn sequence(&self, kind: TaskKind) -> Vec<Work> {
        let microbatches = (0..self.block.0).map(MicrobatchId);
        let mut works: Vec<Work> =
            microbatches.flat_map(|microbatch| self.placement.stages().map(move |stage| (stage, microbatch))).collect();
        match kind {
            TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => {}
            TaskKind::BackwardInput | TaskKind::Backward => works.sort_by_key(|(stage, of)| (*of, Reverse(*stage))),
            TaskKind::BackwardWeight => works.sort_by_key(|work| self.start(TaskKind::BackwardInput, *work)),
        }
        works
    }

    fn index(&self, (stage, microbatch): Work) -> usize {
        microbatch.index() * self.placement.n_stages() + stage.index()
    }

    fn start(&self, kind: TaskKind, work: Work) -> Option<u64> {
        let is_there = work.0.index() < self.placement.n_stages();
        is_there.then(|| self.starts[kind.index()].get(self.index(work)).copied().flatten()).flatten()
    }

    fn duration(&self, kind: TaskKind, stage: StageId) -> u64 {
        self.of_parts.get(stage.index()).unwrap_or(&self.durations)[kind.index()]
    }

    fn end(&self, kind: TaskKind, work: Work) -> u64 {
        self.start(kind, work).map_or(0, |start| start + self.duration(kind, work.0))
    }

    /// The end of a task that is `ahead` microbatches later, in slots of this block.
    fn end_of(&self, kind: TaskKind, (stage, microbatch): Work, ahead: i64) -> u64 {
        let (own, later) = period::position(i64::from(microbatch.0) + ahead, u64::from(self.block.0));
        let end = i128::from(self.end(kind, (stage, own))) + i128::from(later) * i128::from(self.block.1);
        u64::try_from(end).unwrap_or(0)
    }

    /// The first slot at which a task's inputs are there; slot 0 for those that the block does not compute.
    fn inputs_end(&mut self, kind: TaskKind, work: Work, graph: &StageGraph) -> u64 {
        let (stage, microbatch) = work;
        let last_of = |own: &Self, kinds: &[TaskKind], inputs: &mut dyn Iterator<Item = (StageId, i64)>| {
            let end = |(stage, ahead), kind: &TaskKind| own.end_of(*kind, (stage, microbatch), ahead);
            inputs.flat_map(|input| kinds.iter().map(move |kind| end(input, kind))).max().unwrap_or(0)
        };
        let mut of_microbatch = |kinds: &[TaskKind], stages: &[StageId], join: Option<ListId>| {
            let mut same = stages.iter().map(|stage| (*stage, 0));
            let Some(list) = join else { return last_of(self, kinds, &mut same) };
            let key = (kind, list, microbatch);
            let end = self.joins.get(&key).copied().unwrap_or_else(|| last_of(self, kinds, &mut same));
            *self.joins.entry(key).or_insert(end)
        };
        match kind {
            TaskKind::Forward => {
                let mut earlier = graph.earlier_before(stage).map(|edge| (edge.from, -i64::from(edge.behind)));
                let same = of_microbatch(&[kind], graph.before(stage), graph.join_before(stage));
                same.max(last_of(self, &[kind], &mut earlier))
            }
            TaskKind::Recompute => self.end(TaskKind::Forward, work),
            TaskKind::BackwardInput | TaskKind::Backward => {
                let kinds = [TaskKind::BackwardInput, TaskKind::Backward];
                let mut later = graph.earlier_after(stage).map(|edge| (edge.to, i64::from(edge.behind)));
                let same = of_microbatch(&kinds, graph.after(stage), graph.join_after(stage));
                let gradients = same.max(last_of(self, &kinds, &mut later));
                let forward = self.end(TaskKind::Forward, work);
                let again = if self.recomputes { self.duration(TaskKind::Recompute, stage) } else { 0 };
                gradients.max(forward + again).max(self.end(TaskKind::Recompute, work))
            }
            TaskKind::BackwardWeight | TaskKind::Update => {
                self.end(TaskKind::BackwardInput, work).max(self.end(TaskKind::Forward, work))
            }
        }
    }

    /// The first slot from `earliest` on at which a task would meet none of its device, in any period.
    fn first_free(&self, kind: TaskKind, work: Work, earliest: u64) -> Option<u64> {
        let (duration, period) = (self.duration(kind, work.0), self.turn.1);
        if duration > self.block.1 {
            return None;
        }
        let mut slot = earliest;
        while slot < earliest + period {
            let blocked = self.places(work, slot).find_map(|(device, start)| {
                blocker(&self.taken[device.index()], start, duration, period).map(|(_, end)| (start, end))
            });
            match blocked {
                None => return Some(slot),
                // A run that ends at the end of the period may go on at its beginning: the next round sees to it.
                Some((start, end)) => slot += if end > start { end - start } else { end + period - start },
            }
        }
        None
    }

    /// The last slot in a range at which a task would meet none of its device, in any period, and end within the range.
    fn last_free(&self, kind: TaskKind, work: Work, slots: Range<u64>) -> Option<u64> {
        let (duration, period) = (self.duration(kind, work.0), self.turn.1);
        let last = slots.end.checked_sub(duration).filter(|_| duration <= self.block.1)?;
        let mut slot = last;
        while slot >= slots.start && last - slot < period {
            let blocked = self.places(work, slot).find_map(|(device, start)| {
                let (first, _) = blocker(&self.taken[device.index()], start, duration, period)?;
                // What begins after the end was met at the beginning of the next period.
                Some(if first < start + duration { start + duration - first } else { 1 })
            });
            match blocked {
                None => return Some(slot),
                Some(back) => slot = slot.checked_sub(back)?,
            }
        }
        None
    }

    /// The devices and the start, modulo the period, of a task in each block of a turn.
    fn places(&self, (stage, microbatch): Work, slot: u64) -> impl Iterator<Item = (DeviceId, u64)> {
        (0..self.turn.0).flat_map(move |index| {
            let start = slot.saturating_add(self.block.1.saturating_mul(u64::from(index)));
            let microbatch = MicrobatchId(microbatch.0 + index * self.block.0);
            let devices = self.placement.devices(stage, microbatch).iter();
            devices.map(move |device| (*device, start % self.turn.1))
        })
    }

    /// Marks the slots of a task.
    fn take(&mut self, kind: TaskKind, work: Work, slot: u64) {
        let period = self.turn.1;
        let duration = self.duration(kind, work.0).min(period);
        let places: Vec<(DeviceId, u64)> = self.places(work, slot).collect();
        for (device, start) in places {
            let taken = &mut self.taken[device.index()];
            mark(taken, start, (start + duration).min(period));
            if start + duration > period {
                mark(taken, 0, start + duration - period);
            }
        }
        let index = self.index(work);
        self.starts[kind.index()][index].get_or_insert(slot);
    }

    fn no_room(&self, line: &Fill, (stage, microbatch): Work) -> Diagnostic {
        let used = |device: &DeviceId| self.taken[device.index()].iter().map(|(start, end)| end - start).sum::<u64>();
        // Of several devices, the fullest.
        let devices = self.placement.devices(stage, microbatch).iter().rev().copied();
        let device = devices.max_by_key(used).unwrap_or(DeviceId(0));
        let used = used(&device);
        let (kind, period, duration) = (line.kind.letters(), self.turn.1, self.duration(line.kind, stage));
        let name = self.parts.name(stage);
        let which = if self.block.0 == 1 { name } else { format!("{name} {microbatch}") };
        let own = self.placement.devices(stage, microbatch);
        let taken = match own.len() {
            1 => format!("{used} of the {period} slots of {device} are taken"),
            _ => format!("in a period of {period}, {} are never free at once for as long", names(own)),
        };
        let message = format!("no free slot for `{kind}` of {which}: it takes {duration}, and {taken}");
        let here = self.placement.stages().filter(|other| self.placement.is_home(*other, device));
        let here: BTreeSet<StageId> = here.map(|row| self.parts.stage_of(row)).collect();
        let live = match here.len() {
            1 => "1 stage lives".to_owned(),
            n_stages => format!("{n_stages} stages live"),
        };
        let error = Diagnostic::error(Code::NoFreeSlot, line.span, format!("no room for {which}"), message)
            .note(format!("{live} on {device}, and every task of each needs slots of its own"));
        if line.kind == TaskKind::Recompute {
            let end = self.end(TaskKind::Forward, (stage, microbatch));
            return error
                .note(format!("it goes between its forward, which ends at {end}, and its backward"))
                .help("start the backward later, or repeat the block less often");
        }
        error.help("repeat the block less often: give `every` more slots")
    }
}

/// A run of taken slots that a task from `start` on would meet.
fn blocker(taken: &BTreeMap<u64, u64>, start: u64, duration: u64, period: u64) -> Option<(u64, u64)> {
    let before = taken.range(..=start).next_back().filter(|(_, end)| **end > start);
    let within = || taken.range(start..start + duration).next();
    let wrapped = || (start + duration > period).then(|| taken.range(..start + duration - period).next()).flatten();
    before.or_else(within).or_else(wrapped).map(|(start, end)| (*start, *end))
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
        assert_eq!(blocker(&taken, 2, 2, 12), Some((3, 6)));
        assert_eq!(blocker(&taken, 10, 2, 12), None);
        assert_eq!(blocker(&taken, 10, 3, 12), Some((0, 1)));
    }
}
