//! Schedules from priorities: every device runs, of what is ready and fits in its memory, the task that is most urgent. A
//! microbatch is as urgent as the one before it was a period earlier; what is annealed is how urgent the lanes are, and how
//! much memory they must leave to others. That is a small space, and any point of it is a whole schedule, so it leads to
//! good warm-ups and cool-downs between which single tasks would have to move by the dozen.

use super::Objective;
use super::anneal::{PARTS, most};
use super::fusion::Part;
use super::job::{Job, Orders, Time};
use super::plan::Plan;
use super::random::Random;

/// Parts of a unit of time in which priorities are counted.
const FINE: Time = 4;
/// Between two questions whether to go on.
const TRIES_AT_ONCE: u64 = 32;

/// What decides.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    /// By lane: the less, the more urgent.
    ranks: Vec<Time>,
    /// By lane: memory that a task must leave, on each of its devices.
    spare: Vec<i64>,
    /// By fusion: whether both halves run at once.
    fused: Vec<bool>,
}

/// How far a schedule is.
#[derive(Default)]
struct Room {
    counts: Vec<u32>,
    ends: Vec<Time>,
    free: Vec<Time>,
    first: Vec<Option<Time>>,
    held: Vec<i64>,
    orders: Orders,
}

/// The best orders that changes of a schedule's priorities lead to. Ends early when `go_on` says so; `None` if it gets stuck
/// for want of memory from the first.
pub(super) fn prioritized(
    job: &Job,
    objective: Objective,
    orders: &Orders,
    (tries, heat, seed): (u64, Time, u64),
    go_on: &mut dyn FnMut() -> bool,
) -> Option<Orders> {
    let mut search = Dispatch { job, objective, period: job.work() * FINE, room: Room::default() };
    let mut random = Random::new(seed);
    let (mut now, mut rule) = first_rules(job, objective, orders)
        .into_iter()
        .filter_map(|rule| Some((search.run(&rule)?, rule)))
        .min_by_key(|(length, _)| *length)?;
    search.run(&rule)?;
    let mut best = (now, search.room.orders.clone());
    let durations = job.lanes.iter().map(|lane| lane.duration);
    let step = (durations.sum::<Time>() / job.lanes.len().max(1) as Time).max(1);
    for tried in 0..tries {
        if tried % TRIES_AT_ONCE == 0 && !go_on() {
            break;
        }
        let mut next = rule.clone();
        next.change(job, step, &mut random);
        let heat = heat * PARTS * (tries - tried) as Time / tries as Time + 1;
        let Some(length) = search.run(&next) else { continue };
        if (length - now) * PARTS <= most(heat, &mut random) {
            (now, rule) = (length, next);
            if now < best.0 {
                best = (now, search.room.orders.clone());
            }
        }
    }
    Some(best.1)
}

/// Priorities to begin with: those of the middle microbatch of a schedule, and those of a microbatch alone.
fn first_rules(job: &Job, objective: Objective, orders: &Orders) -> Vec<Rule> {
    let (m, n_lanes) = (job.microbatches, job.lanes.len());
    let fused = |fusion: usize| orders.iter().flatten().any(|mention| *mention == n_lanes + fusion);
    let fused: Vec<bool> = (0..job.fusions.len()).map(fused).collect();
    let middle = m / 2;
    let mut all_ranks = vec![job.heads().iter().map(|head| head * FINE).collect::<Vec<Time>>()];
    if let Some((plan, _)) = Plan::new(job, objective, orders) {
        let rank = |lane: usize| (plan.starts()[lane * m + middle] - job.work() * middle as Time) * FINE;
        all_ranks.push((0..n_lanes).map(rank).collect());
    }
    let rule = |ranks: &Vec<Time>, leaves: bool| {
        let spare = (0..n_lanes).map(|lane| if leaves { later(job, lane) } else { 0 }).collect();
        Rule { ranks: ranks.clone(), spare, fused: fused.clone() }
    };
    all_ranks.iter().flat_map(|ranks| [rule(ranks, false), rule(ranks, true)]).collect()
}

/// What the same microbatch takes later on the devices of a lane that takes memory.
fn later(job: &Job, lane: usize) -> i64 {
    let own = &job.lanes[lane];
    let others = own.devices.iter().flat_map(|device| &job.on_device[*device]).filter(|other| **other > lane);
    let takes = others.map(|other| job.lanes[*other].takes).max().unwrap_or(0).max(0);
    if own.takes > 0 { takes } else { 0 }
}

impl Rule {
    /// Makes some lanes more or less urgent, or changes what one must leave.
    fn change(&mut self, job: &Job, step: Time, random: &mut Random) {
        let lane = random.below(job.lanes.len());
        let size = step << random.below(6);
        let by = if random.below(2) == 0 { size } else { -size };
        let own = &job.lanes[lane];
        let place = |lane: usize| {
            let devices = &job.lanes[lane].devices;
            let alike = |other: &&usize| **other < lane && job.lanes[**other].kind == job.lanes[lane].kind;
            devices.first().map(|device| job.on_device[*device].iter().filter(alike).count())
        };
        // The lanes of the same kind that are in the same place among those of their devices.
        let is_alike = |other: usize| job.lanes[other].kind == own.kind && place(other) == place(lane);
        match random.below(10) {
            0 if own.takes > 0 => self.spare[lane] = later(job, lane).max(own.takes) * random.below(3) as i64,
            1 | 2 => {
                let slope = by.signum() * (1 + random.below(4) as Time) * step;
                for other in (0..job.lanes.len()).filter(|other| is_alike(*other)) {
                    self.ranks[other] += slope * job.lanes[other].devices.first().map_or(0, |device| *device as Time);
                }
            }
            3 => (0..job.lanes.len()).filter(|other| is_alike(*other)).for_each(|other| self.ranks[other] += by),
            4 if !self.fused.is_empty() => {
                let fusion = random.below(self.fused.len());
                self.fused[fusion] = !self.fused[fusion];
            }
            _ => self.ranks[lane] += by,
        }
    }
}

struct Dispatch<'a> {
    job: &'a Job,
    objective: Objective,
    period: Time,
    room: Room,
}

impl Dispatch<'_> {
    /// How long the schedule is that a rule leads to; its orders stay in the room. `None` if it gets stuck.
    fn run(&mut self, rule: &Rule) -> Option<Time> {
        let (n_lanes, n_devices) = (self.job.lanes.len(), self.job.capacity.len());
        let Room { counts, ends, free, first, held, orders } = &mut self.room;
        counts.clear();
        counts.resize(n_lanes, 0);
        ends.resize(self.job.n_tasks(), 0);
        free.clear();
        free.resize(n_devices, 0);
        first.clear();
        first.resize(n_devices, None);
        held.clear();
        held.resize(n_devices, 0);
        orders.resize(n_devices, Vec::new());
        orders.iter_mut().for_each(Vec::clear);
        let (mut now, mut left) = (0, self.job.n_tasks());
        while left > 0 {
            let (mut next, mut again) = (Time::MAX, false);
            for device in 0..n_devices {
                if let Some(mention) = self.most_urgent(rule, device, now, &mut next) {
                    left -= self.place(mention, now);
                    again |= self.job.duration(mention) == 0;
                }
                let free = self.room.free[device];
                next = if free > now { next.min(free) } else { next };
            }
            if !again {
                now = if next == Time::MAX { return None } else { next };
            }
        }
        Some(self.length())
    }

    /// What a device runs next, if it is free and anything is ready that begins there. `next` comes down to when more is.
    fn most_urgent(&self, rule: &Rule, device: usize, now: Time, next: &mut Time) -> Option<usize> {
        let job = self.job;
        if self.room.free[device] > now {
            return None;
        }
        let mut best = None;
        for lane in job.on_device[device].iter().copied().filter(|lane| job.lanes[*lane].devices[0] == device) {
            let mention = match job.parts[lane] {
                Part::First(fusion) if rule.fused[fusion] => job.lanes.len() + fusion,
                Part::Second(fusion) if rule.fused[fusion] => continue,
                _ => lane,
            };
            let Some(ready) = self.ready(rule, mention) else { continue };
            if ready > now {
                *next = ready.min(*next);
                continue;
            }
            let rank = rule.ranks[lane] + self.period * Time::from(self.room.counts[lane]);
            if best.is_none_or(|best| (rank, mention) < best) {
                best = Some((rank, mention));
            }
        }
        best.map(|(_, mention)| mention)
    }

    /// When the next task of a mention can start, if everything it needs has run and there is memory.
    fn ready(&self, rule: &Rule, mention: usize) -> Option<Time> {
        let (job, Room { counts, ends, free, held, .. }) = (self.job, &self.room);
        let (first, second) = job.lanes_of(mention);
        let (takes, devices) = (job.takes(mention), &job.lanes[first].devices);
        let is_full = |device: &usize| held[*device] + takes + rule.spare[first] > job.capacity[*device];
        if takes > 0 && devices.iter().any(is_full) {
            return None;
        }
        let mut ready = devices.iter().map(|device| free[*device]).max().unwrap_or(0);
        for lane in std::iter::once(first).chain(second) {
            let microbatch = counts[lane];
            if microbatch as usize >= job.microbatches {
                return None;
            }
            for (need, latency) in job.lanes[lane].needs.iter().filter(|(need, _)| second.is_none() || *need != first) {
                if counts[*need] <= microbatch {
                    return None;
                }
                ready = ready.max(ends[need * job.microbatches + microbatch as usize] + latency);
            }
        }
        Some(ready)
    }

    /// Runs a task. Says of how many lanes.
    fn place(&mut self, mention: usize, now: Time) -> usize {
        let (job, room) = (self.job, &mut self.room);
        let (first, second) = job.lanes_of(mention);
        let (end, takes) = (now + job.duration(mention), job.takes(mention));
        for lane in std::iter::once(first).chain(second) {
            room.ends[lane * job.microbatches + room.counts[lane] as usize] = end;
            room.counts[lane] += 1;
        }
        for device in job.lanes[first].devices.iter().copied() {
            room.free[device] = end;
            room.held[device] += takes;
            room.first[device].get_or_insert(now);
            room.orders[device].push(mention);
        }
        1 + usize::from(second.is_some())
    }

    fn length(&self) -> Time {
        let Room { free, first, .. } = &self.room;
        let since = |device: usize| match self.objective {
            Objective::Makespan => 0,
            Objective::LongestStage => first[device].unwrap_or(0),
        };
        (0..free.len()).map(|device| free[device] - since(device)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::tests::{fusing, v};

    #[test]
    fn priorities_lead_to_schedules_that_fit_and_get_shorter() {
        for job in [v(4, 8, 6, [1, 1, 1], 0), v(3, 6, 4, [2, 3, 1], 1), fusing(3, 4, 2, [1, 2, 2, 3], 0)] {
            let in_turn: Orders = job.on_device.iter().map(|lanes| lanes.repeat(job.microbatches)).collect();
            let length = |orders: &Orders| Plan::new(&job, Objective::Makespan, orders).expect("no circle").1.length;
            let after = |tries| {
                let found = prioritized(&job, Objective::Makespan, &in_turn, (tries, 3, 1), &mut || true);
                let found = found.expect("there is memory");
                assert!(job.fits(&found));
                length(&found)
            };
            let (at_once, later) = (after(1), after(4_000));
            assert!(later < at_once && at_once < length(&in_turn), "{later} {at_once}");
        }
    }
}
