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
//!
//! Where the list of a device says `gather` and the weights are not there, the device joins the next gathering
//! there, or earlier if another device may wait before that. Members then join one by one, and the place in the
//! global order is where the last one does.

use super::index32;
use super::order::GlobalOrder;
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{DeviceId, ValueId};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
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
    /// The rank before which all have joined.
    pub(super) joins: u32,
    /// The rank of the first task that reads the weights.
    pub(super) first: u32,
    /// The devices that join, ascending.
    pub(super) members: Vec<Member>,
}

/// A device that joins a gathering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) device: DeviceId,
    /// The share that it keeps.
    pub(super) share: ValueId,
    /// The tasks that it needs the weights for, if it has any.
    pub(super) run: Option<TaskRange>,
    /// How many of its tasks come before it joins.
    pub(super) position: u32,
}

/// A device that keeps a share of some weights.
struct Holder<'a> {
    device: DeviceId,
    share: ValueId,
    /// The tasks that it needs the weights for.
    runs: &'a [TaskRange],
    /// How many of its tasks stand before each `gather` of these weights.
    places: Vec<u32>,
}

impl Holder<'_> {
    /// Where its list lets it join the gathering for a run: the first place behind the run before.
    fn place(&self, turn: usize) -> Option<u32> {
        let first = self.runs.get(turn)?.first;
        let before = turn.checked_sub(1).map(|before| self.runs[before].last);
        self.places.iter().copied().find(|place| Some(*place) > before && *place <= first)
    }
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
        let stage = work.only_stage_of(weights);
        let holder = |(device, share): &(DeviceId, ValueId)| {
            let placed = schedule.step_tasks.of(*device).iter();
            let placed = placed.filter(|one| one.kind == StepTaskKind::Gather && Some(one.stage) == stage);
            Holder {
                device: *device,
                share: *share,
                runs: runs[device.index()].get(&weights).map_or(&[][..], Vec::as_slice),
                places: placed.map(|one| index32(schedule.tasks_before(*device, one))).collect(),
            }
        };
        let holders = shares.iter().map(holder).collect();
        all.extend(Aligned { schedule, order, ahead, weights, holders }.rounds());
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

/// Some weights on all devices that hold them.
struct Aligned<'a> {
    schedule: &'a Schedule,
    order: &'a GlobalOrder,
    ahead: bool,
    weights: ValueId,
    holders: Vec<Holder<'a>>,
}

impl Aligned<'_> {
    fn rounds(&self) -> Vec<Round> {
        let counts = self.holders.iter().map(|holder| holder.runs.len());
        let count = counts.filter(|count| *count > 0).min().unwrap_or(0);
        let mut rounds: Vec<Round> = Vec::new();
        for turn in 0..count {
            let is_last = turn + 1 == count;
            let run = |holder: &Holder<'_>| {
                let run = *holder.runs.get(turn)?;
                Some(TaskRange { last: if is_last { holder.runs.last()?.last } else { run.last }, ..run })
            };
            let runs: Vec<_> = self.holders.iter().map(run).collect();
            match (self.round(turn, &runs, rounds.last()), rounds.last_mut()) {
                (Some(next), _) => rounds.push(next),
                (None, before) => before.into_iter().for_each(|before| before.extend(&runs)),
            }
        }
        rounds
    }

    /// A gathering for these runs of all holders, as early as it may be; none if it is one with the gathering before.
    fn round(&self, turn: usize, runs: &[Option<TaskRange>], before: Option<&Round>) -> Option<Round> {
        let each = || self.holders.iter().zip(runs);
        let firsts = || each().filter_map(|(holder, run)| Some((holder.device, (*run)?.first)));
        let first = firsts().map(|(device, first)| self.rank(device, first)).min().unwrap_or(0);
        let lasts = before.iter().flat_map(|round| &round.members);
        let lasts = lasts.filter_map(|member| Some(self.rank(member.device, member.run?.last)));
        let ended = lasts.max();
        if ended.is_some_and(|ended| first <= ended) {
            return None;
        }
        let task_before = |(device, first): (DeviceId, u32)| match first.checked_sub(1) {
            Some(before) => self.rank(device, self.begin(device, before)),
            None => 0,
        };
        let ahead = self.ahead.then(|| firsts().map(task_before).min()).flatten().unwrap_or(first);
        let joins = ahead.min(first).max(ended.map_or(0, |ended| ended + 1));
        let mut is_without = before.is_none();
        let mut is_placed = false;
        let member = |(nth, (holder, run)): (usize, (&Holder<'_>, &Option<TaskRange>))| {
            let device = holder.device;
            let free = before.and_then(|round| Some(round.members[nth].run?.last + 1));
            let place = holder.place(turn);
            is_placed |= place.is_some();
            let most = self.order.before(device, first);
            let position = place.map_or_else(|| self.order.before(device, joins), |place| place.min(most));
            let position = position.max(free.unwrap_or(0));
            is_without |= free.is_some_and(|free| position > free);
            Member { device, share: holder.share, run: *run, position }
        };
        let members: Vec<Member> = each().enumerate().map(member).collect();
        let before = |member: &Member| Some(self.rank(member.device, member.position.checked_sub(1)?) + 1);
        let joins = if is_placed { members.iter().filter_map(before).max().unwrap_or(0) } else { joins };
        is_without.then_some(Round { weights: self.weights, joins, first, members })
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
    fn extend(&mut self, runs: &[Option<TaskRange>]) {
        for (member, other) in self.members.iter_mut().zip(runs) {
            if let (Some(run), Some(other)) = (&mut member.run, other) {
                run.last = other.last;
            }
        }
    }
}
