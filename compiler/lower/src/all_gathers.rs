//! Gatherings: when weights are there as a whole that devices keep in shares.
//!
//! A device has a run of such weights from a task that reads them to the last one before a task
//! that reads others instead; tasks that read none may stand in between. All devices with shares
//! gather together, so that the n-th gathering is for the n-th run of each: where one has more runs
//! than another, its last ones are one. Runs that begin on one device before those of the gathering
//! before have ended on all are one with these, and so are those between which no device would be
//! without the weights for a task.
//!
//! A gathering has a place in the global order: all have joined it when everything before that
//! place is done, and none waits for it before. So nobody waits for who waits. That is the first
//! task that reads the weights, or, where memory is left for it, the one before that.

use super::index32;
use super::order::GlobalOrder;
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{DeviceId, ValueId};
use pipe_schedule::schedule::Schedule;
use std::collections::BTreeMap;

/// Tasks of a device, by position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TaskRange {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// One gathering of some weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Round {
    pub(super) weights: ValueId,
    /// The rank before which all join.
    pub(super) joins: u32,
    /// The rank of the first task that reads the weights.
    pub(super) first: u32,
    /// Who takes part, ascending: with the share that it keeps, and the tasks that it needs the
    /// weights for, if it has any.
    pub(super) members: Vec<(DeviceId, ValueId, Option<TaskRange>)>,
}

/// All gatherings, by weights and then in their order; with each a task ahead of its first use, or not.
pub(super) fn rounds(schedule: &Schedule, work: &ProgramTables, order: &GlobalOrder, ahead: bool) -> Vec<Round> {
    let mut all = Vec::new();
    if work.kept().next().is_none() {
        return all;
    }
    let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
    let runs: Vec<_> = devices.map(|device| runs(schedule, work, device)).collect();
    for (weights, shares) in work.kept() {
        let own = |device: &DeviceId| runs[device.index()].get(&weights).map_or(&[][..], Vec::as_slice);
        let members: Vec<_> = shares.iter().map(|(device, share)| (*device, *share, own(device))).collect();
        all.extend(Aligned { schedule, order, ahead, weights, members }.rounds());
    }
    all
}

/// The runs of a device, by weights.
fn runs(schedule: &Schedule, work: &ProgramTables, device: DeviceId) -> BTreeMap<ValueId, Vec<TaskRange>> {
    let mut runs: BTreeMap<ValueId, Vec<TaskRange>> = BTreeMap::new();
    let (mut position, mut held) = (0, Vec::new());
    loop {
        // Two tasks that share the device have what both read.
        let node = schedule.node(device, position);
        if node.is_empty() {
            return runs;
        }
        let mut read: Vec<ValueId> = node.iter().flat_map(|one| work.gathered_for(one.task)).collect();
        read.sort_unstable();
        read.dedup();
        let last = position + node.len() - 1;
        for weights in &read {
            let own = runs.entry(*weights).or_default();
            match own.last_mut().filter(|_| held.contains(weights)) {
                Some(run) => run.last = index32(last),
                None => own.push(TaskRange { first: index32(position), last: index32(last) }),
            }
        }
        if !read.is_empty() {
            held = read;
        }
        position = last + 1;
    }
}

/// The runs of some weights on all devices that hold them.
struct Aligned<'a> {
    schedule: &'a Schedule,
    order: &'a GlobalOrder,
    ahead: bool,
    weights: ValueId,
    members: Vec<(DeviceId, ValueId, &'a [TaskRange])>,
}

impl Aligned<'_> {
    fn rounds(&self) -> Vec<Round> {
        let counts = self.members.iter().map(|(_, _, runs)| runs.len());
        let count = counts.filter(|count| *count > 0).min().unwrap_or(0);
        let mut rounds: Vec<Round> = Vec::new();
        for turn in 0..count {
            let is_last = turn + 1 == count;
            let run = |runs: &[TaskRange]| {
                let run = *runs.get(turn)?;
                Some(TaskRange { last: if is_last { runs.last()?.last } else { run.last }, ..run })
            };
            let members = self.members.iter().map(|(device, share, runs)| (*device, *share, run(runs))).collect();
            let next = self.round(members);
            match rounds.last_mut().map(|before| (self.behind(before, &next), before)) {
                None => rounds.push(next),
                Some((Some(joins), _)) => rounds.push(Round { joins, ..next }),
                Some((None, before)) => before.extend(&next),
            }
        }
        rounds
    }

    /// A gathering for these runs, as early as it may be.
    fn round(&self, members: Vec<(DeviceId, ValueId, Option<TaskRange>)>) -> Round {
        let firsts = || members.iter().filter_map(|(device, _, run)| Some((*device, (*run)?.first)));
        let first = firsts().map(|(device, first)| self.rank(device, first)).min().unwrap_or(0);
        let before = |(device, first): (DeviceId, u32)| match first.checked_sub(1) {
            Some(before) => self.rank(device, self.begin(device, before)),
            None => 0,
        };
        let joins = if self.ahead { firsts().map(before).min().unwrap_or(0) } else { first };
        Round { weights: self.weights, joins: joins.min(first), first, members }
    }

    /// Where a gathering may be joined that is another one than the one before; none where both are one.
    fn behind(&self, before: &Round, next: &Round) -> Option<u32> {
        let lasts = || before.members.iter().filter_map(|(device, _, run)| Some((*device, (*run)?.last)));
        let ended = lasts().map(|(device, last)| self.rank(device, last)).max()?;
        let joins = next.joins.max(ended + 1);
        let is_without = |(device, last): (DeviceId, u32)| self.order.before(device, joins) > last + 1;
        (next.first > ended && lasts().any(is_without)).then_some(joins)
    }

    fn rank(&self, device: DeviceId, position: u32) -> u32 {
        self.order.ranks[device.index()][position as usize]
    }

    /// The first task of a pair for the second.
    fn begin(&self, device: DeviceId, position: u32) -> u32 {
        let before = position.checked_sub(1);
        let is_second = |before: &u32| self.schedule.orders[device.index()][*before as usize].with_next;
        before.filter(is_second).unwrap_or(position)
    }
}

impl Round {
    /// Goes on for later runs.
    fn extend(&mut self, next: &Self) {
        for ((_, _, run), (_, _, other)) in self.members.iter_mut().zip(&next.members) {
            if let (Some(run), Some(other)) = (run, other) {
                run.last = other.last;
            }
        }
    }
}
