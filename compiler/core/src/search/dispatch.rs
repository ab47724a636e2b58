//! Schedules from rules: every device runs, of what is ready and fits in its memory, the task that is most urgent. The device
//! that can do something first is next, so one step of the simulation is one task or one look at nothing.

use super::Objective;
use super::fusion::Part;
use super::job::{Job, Orders, Time};
use super::rule::{AT_ONCE, FINE, Rule};

/// No moment is as late.
const NEVER: Time = Time::MAX / 4;

/// How long a schedule is: the length, and the sum of what its devices take.
pub(super) type Reach = (Time, Time);

/// The next task of a lane.
#[derive(Clone, Copy, Debug)]
struct Next {
    /// When all is there that it needs, and it is not held back; or [`NEVER`] as long as nobody knows.
    ready: Time,
    /// The less, the more urgent.
    rank: Time,
    /// Before that it is held back.
    hold: Time,
    microbatch: usize,
}

/// Schedules of one job, one after the other, in the same memory.
#[derive(Clone, Debug)]
pub(super) struct Dispatch<'a> {
    job: &'a Job,
    objective: Objective,
    period: Time,
    /// By device: those that lead a lane on it.
    leaders: Vec<Vec<usize>>,
    /// By device: the lanes that it leads, being the first of their devices.
    leads: Vec<Vec<usize>>,
    /// By lane.
    next: Vec<Next>,
    /// By lane and microbatch.
    ends: Vec<Time>,
    /// By device: when its task ends, when the first one began, what it holds, and when it can do something next.
    free: Vec<Time>,
    first: Vec<Option<Time>>,
    held: Vec<i64>,
    wakes: Vec<Time>,
    orders: Option<Orders>,
}

/// What a device may do: when, and what.
#[derive(Clone, Copy)]
struct Choice {
    rank: Time,
    mention: usize,
    ready: Time,
}

impl<'a> Dispatch<'a> {
    pub(super) fn new(job: &'a Job, objective: Objective) -> Self {
        let (n_lanes, n_devices) = (job.lanes.len(), job.capacity.len());
        let (mut leaders, mut leads) = (vec![Vec::new(); n_devices], vec![Vec::new(); n_devices]);
        for (index, lane) in job.lanes.iter().enumerate() {
            leads[lane.devices[0]].push(index);
            lane.devices.iter().for_each(|device| leaders[*device].push(lane.devices[0]));
        }
        leaders.iter_mut().for_each(|leaders| {
            leaders.sort_unstable();
            leaders.dedup();
        });
        Self {
            job,
            objective,
            period: job.work() * FINE,
            leaders,
            leads,
            next: Vec::with_capacity(n_lanes),
            ends: vec![0; job.n_tasks()],
            free: vec![0; n_devices],
            first: vec![None; n_devices],
            held: vec![0; n_devices],
            wakes: vec![0; n_devices],
            orders: None,
        }
    }

    /// How long the schedule is that a rule leads to. `None` if it gets stuck for want of memory, or some task cannot start before
    /// `limit`.
    pub(super) fn run(&mut self, rule: &Rule, limit: Time) -> Option<Reach> {
        self.free.fill(0);
        self.first.fill(None);
        self.held.fill(0);
        self.wakes.fill(0);
        self.next.clear();
        let first = |(rank, hold): (&Time, &Time)| Next { ready: NEVER, rank: *rank, hold: *hold, microbatch: 0 };
        self.next.extend(rule.ranks.iter().zip(&rule.hold).map(first));
        (0..self.next.len()).for_each(|lane| self.look(rule, lane));
        let mut left = self.job.n_tasks();
        while left > 0 {
            let (now, device) = self.earliest();
            if now >= limit.min(NEVER) {
                return None;
            }
            match self.most_urgent(rule, device, now) {
                (Some(choice), _) if choice.ready <= now => left -= self.place(rule, choice.mention, now),
                (choice, soon) => self.wakes[device] = choice.map_or(soon, |choice| choice.ready.min(soon)),
            }
        }
        Some(self.reach())
    }

    /// The orders of the schedule that a rule leads to.
    pub(super) fn orders(&mut self, rule: &Rule) -> Option<Orders> {
        self.orders = Some(vec![Vec::new(); self.free.len()]);
        let reach = self.run(rule, NEVER);
        self.orders.take().filter(|_| reach.is_some())
    }

    /// The device that can do something first.
    fn earliest(&self) -> (Time, usize) {
        let mut earliest = (NEVER, 0);
        for (device, wakes) in self.wakes.iter().enumerate() {
            if *wakes < earliest.0 {
                earliest = (*wakes, device);
            }
        }
        earliest
    }

    /// What a device runs next, and when something else is ready that is not yet.
    fn most_urgent(&self, rule: &Rule, device: usize, now: Time) -> (Option<Choice>, Time) {
        let (mut best, mut soon): (Option<Choice>, Time) = (None, NEVER);
        for lane in self.leads[device].iter().copied() {
            let Next { ready, rank, .. } = self.next[lane];
            if ready >= NEVER || best.is_some_and(|best| best.rank <= rank) {
                continue;
            }
            let mention = rule.mention(self.job, lane).unwrap_or(lane);
            let Some(free) = self.with_room(rule, lane, mention) else { continue };
            let ready = ready.max(free);
            if ready > now + rule.wait {
                soon = soon.min(ready);
            } else {
                best = Some(Choice { rank, mention, ready });
            }
        }
        (best, soon)
    }

    /// When the devices of a lane are free, if they have memory.
    fn with_room(&self, rule: &Rule, lane: usize, mention: usize) -> Option<Time> {
        let (job, takes) = (self.job, self.job.takes(mention));
        let devices = &job.lanes[lane].devices;
        let is_full = |device: &usize| self.held[*device] + takes + rule.spare[lane] > job.capacity[*device];
        if takes > 0 && devices.iter().any(is_full) {
            return None;
        }
        Some(devices.iter().map(|device| self.free[*device]).max().unwrap_or(0))
    }

    /// Finds out when the next task of a lane is ready.
    fn look(&mut self, rule: &Rule, lane: usize) {
        self.next[lane].ready = match rule.mention(self.job, lane).map(|mention| self.job.lanes_of(mention)) {
            Some((first, None)) => self.after_needs(first, None),
            Some((first, Some(second))) => self.after_needs(first, None).max(self.after_needs(second, Some(first))),
            None => NEVER,
        };
    }

    /// When all that the next task of a lane needs is there, except what runs with it.
    fn after_needs(&self, lane: usize, except: Option<usize>) -> Time {
        let (job, Next { microbatch, hold, .. }) = (self.job, self.next[lane]);
        if microbatch >= job.microbatches {
            return NEVER;
        }
        let mut ready = if hold <= AT_ONCE { 0 } else { (hold + FINE - 1).div_euclid(FINE).max(0) };
        for (need, latency) in job.lanes[lane].needs.iter().filter(|(need, _)| Some(*need) != except) {
            if self.next[*need].microbatch <= microbatch {
                return NEVER;
            }
            ready = ready.max(self.ends[need * job.microbatches + microbatch] + latency);
        }
        ready
    }

    /// Runs a task. Says of how many lanes.
    fn place(&mut self, rule: &Rule, mention: usize, now: Time) -> usize {
        let job = self.job;
        let (first, second) = job.lanes_of(mention);
        let (end, takes) = (now + job.duration(mention), job.takes(mention));
        for device in job.lanes[first].devices.iter().copied() {
            self.free[device] = end;
            self.held[device] += takes;
            self.first[device].get_or_insert(now);
            for leader in &self.leaders[device] {
                self.wakes[*leader] = self.wakes[*leader].min(end.max(self.free[*leader]));
            }
            self.wakes[device] = end;
            if let Some(orders) = &mut self.orders {
                orders[device].push(mention);
            }
        }
        for lane in std::iter::once(first).chain(second) {
            let next = &mut self.next[lane];
            self.ends[lane * job.microbatches + next.microbatch] = end;
            next.microbatch += 1;
            next.rank += self.period;
            next.hold = if next.hold <= AT_ONCE { next.hold } else { next.hold + self.period };
        }
        for lane in std::iter::once(first).chain(second) {
            self.look(rule, lane);
            for (fed, latency) in &job.lanes[lane].feeds {
                // Where both halves of a backward run at once, the first one is what is looked at.
                let fed = match job.parts[*fed] {
                    Part::Second(fusion) if rule.fused[fusion] => job.fusions[fusion].first,
                    _ => *fed,
                };
                self.look(rule, fed);
                let leader = job.lanes[fed].devices[0];
                self.wakes[leader] = self.wakes[leader].min(self.free[leader].max(end + latency));
            }
        }
        1 + usize::from(second.is_some())
    }

    fn reach(&self) -> Reach {
        let since = |device: usize| match self.objective {
            Objective::Makespan => 0,
            Objective::LongestStage => self.first[device].unwrap_or(0),
        };
        let each = (0..self.free.len()).map(|device| self.free[device] - since(device));
        each.fold((0, 0), |(most, sum), one| (most.max(one), sum + one))
    }
}
