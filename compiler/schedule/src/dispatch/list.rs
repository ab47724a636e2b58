//! List schedules: every device runs, of what is ready and fits in its memory, the task that is
//! most urgent. The device that can do something first is next, so one step of the simulation is
//! one task or one look at nothing. What is urgent a rule says for all microbatches alike, or a
//! guide, another schedule, for each task.
//!
//! It decides the order as it goes, so it does not replay one as [`crate::dispatch::plan::Plan`] does. Where nothing
//! is held back, both give the same times; a test compares them.

use super::Objective;
use super::fixed::{Fixed, Row, RowId};
use super::job::{Job, Mention, Orders, TaskId, Time};
use super::rule::{AT_ONCE, FINE, Rule};
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};

/// No moment is as late.
const NEVER: Time = Time::MAX / 4;

/// How long a schedule is: the length, and the sum of what its devices take.
pub type Reach = (Time, Time);

/// The next task of a row.
#[derive(Clone, Copy, Debug)]
struct Next {
    /// When all is there that it needs, and it is not held back; or [`NEVER`] as long as nobody knows.
    ready: Time,
    /// The less, the more urgent.
    rank: Time,
    /// Before that it is held back.
    hold: Time,
    microbatch: MicrobatchId,
}

/// A schedule that list schedules follow: what starts first there is most urgent.
#[derive(Clone, Debug)]
pub(crate) struct Guide {
    /// When its tasks start.
    pub starts: IndexVec<TaskId, Time>,
    /// How long before that a task may start that takes memory.
    pub(crate) advance: Time,
}

/// Schedules of one job, one after the other, in the same memory.
#[derive(Clone, Debug)]
pub struct Dispatch<'a> {
    job: &'a Job,
    objective: Objective,
    period: Time,
    fixed: Fixed,
    /// By row.
    next: IndexVec<RowId, Next>,
    /// By row and microbatch.
    ends: Vec<Time>,
    /// By device: when its task ends, when the first one began, what it holds, and when it can do something next.
    free: IndexVec<DeviceId, Time>,
    first: IndexVec<DeviceId, Time>,
    held: IndexVec<DeviceId, i64>,
    wakes: IndexVec<DeviceId, Time>,
    guide: Option<Guide>,
    orders: Option<Orders>,
}

/// What a device may do: when, and what.
#[derive(Clone, Copy)]
struct Choice {
    rank: Time,
    row: RowId,
    ready: Time,
}

impl<'a> Dispatch<'a> {
    /// A list schedule of a job, in which nothing has run.
    pub fn new(job: &'a Job, objective: Objective) -> Self {
        let zeros = job.capacity.map(|_| 0);
        Self {
            job,
            objective,
            period: job.work() * FINE,
            fixed: Fixed::new(job, &job.fusions.map(|_| false)),
            next: IndexVec::default(),
            ends: vec![0; job.n_tasks()],
            free: zeros.clone(),
            first: zeros.clone(),
            held: zeros.clone(),
            wakes: zeros,
            guide: None,
            orders: None,
        }
    }

    /// How long the schedule is that a rule leads to. `None` if it gets stuck for want of memory,
    /// or some task cannot start before `limit`.
    pub fn run(&mut self, rule: &Rule, limit: Time) -> Option<Reach> {
        if self.fixed.fused != rule.fused {
            self.fixed = Fixed::new(self.job, &rule.fused);
        }
        self.free.fill(0);
        self.first.fill(NEVER);
        self.held.fill(0);
        self.wakes.fill(0);
        let first = |row: &Row| Next {
            ready: NEVER,
            rank: rule.ranks[row.series],
            hold: rule.hold[row.series],
            microbatch: MicrobatchId(0),
        };
        self.next.clear();
        self.next.extend(self.fixed.rows.iter().map(first));
        if self.guide.is_some() {
            self.next.ids().for_each(|row| self.follow(row, rule));
        }
        self.next.ids().for_each(|row| self.look(row));
        let mut left = self.fixed.rows.len() * self.job.microbatches;
        while left > 0 {
            let (now, device) = self.earliest();
            if now >= limit.min(NEVER) {
                return None;
            }
            match self.most_urgent(rule, device, now) {
                (Some(choice), _) if choice.ready <= now => {
                    self.place(choice.row, now, rule);
                    left -= 1;
                }
                (choice, soon) => self.wakes[device] = choice.map_or(soon, |choice| choice.ready.min(soon)),
            }
        }
        Some(self.reach())
    }

    /// The orders of the schedule that a rule leads to.
    pub fn orders(&mut self, rule: &Rule) -> Option<Orders> {
        self.orders = Some(self.free.map(|_| Vec::new()));
        let reach = self.run(rule, NEVER);
        self.orders.take().filter(|_| reach.is_some())
    }

    /// The orders of the schedule that follows a guide, with the rule's ranks added to its times.
    pub(crate) fn guided(&mut self, rule: &Rule, guide: Guide) -> Option<Orders> {
        self.guide = Some(guide);
        let orders = self.orders(rule);
        self.guide = None;
        orders
    }

    /// The device that can do something first.
    fn earliest(&self) -> (Time, DeviceId) {
        let mut earliest = (NEVER, DeviceId(0));
        for (device, wakes) in self.wakes.iter_ids() {
            if *wakes < earliest.0 {
                earliest = (*wakes, device);
            }
        }
        earliest
    }

    /// What a device runs next, and when something else is ready that is not yet.
    fn most_urgent(&self, rule: &Rule, device: DeviceId, now: Time) -> (Option<Choice>, Time) {
        let (mut best, mut soon): (Option<Choice>, Time) = (None, NEVER);
        for row in self.fixed.leads[device].iter().copied() {
            let Next { ready, rank, .. } = self.next[row];
            if ready >= NEVER || best.is_some_and(|best| best.rank <= rank) {
                continue;
            }
            let Some(free) = self.with_room(rule, &self.fixed.rows[row]) else { continue };
            let ready = ready.max(free);
            if ready > now + rule.wait {
                soon = soon.min(ready);
            } else {
                best = Some(Choice { rank, row, ready });
            }
        }
        (best, soon)
    }

    /// When the devices of a row are free, if they have memory.
    fn with_room(&self, rule: &Rule, row: &Row) -> Option<Time> {
        let others = self.fixed.others(row);
        if row.takes > 0 {
            let needed = row.takes + rule.spare[row.series];
            let is_full = |device: DeviceId| self.held[device] + needed > self.job.capacity[device];
            if is_full(row.leader) || others.iter().any(|device| is_full(*device)) {
                return None;
            }
        }
        Some(others.iter().fold(self.free[row.leader], |free, device| free.max(self.free[*device])))
    }

    /// Finds out when the next task of a row is ready.
    fn look(&mut self, row: RowId) {
        let (m, Next { microbatch, hold, .. }) = (self.job.microbatches, self.next[row]);
        self.next[row].ready = NEVER;
        if microbatch.index() >= m {
            return;
        }
        let mut ready = if hold <= AT_ONCE { 0 } else { (hold + FINE - 1).div_euclid(FINE).max(0) };
        for (need, latency) in self.fixed.needs(&self.fixed.rows[row]) {
            if self.next[*need].microbatch <= microbatch {
                return;
            }
            ready = ready.max(self.ends[need.index() * m + microbatch.index()] + latency);
        }
        self.next[row].ready = ready;
    }

    /// Says how urgent the next task of a row is by the guide: its start, later by the rule's rank of its series.
    fn follow(&mut self, row: RowId, rule: &Rule) {
        let (Row { series, takes, .. }, next) = (&self.fixed.rows[row], &mut self.next[row]);
        let Some(guide) = self.guide.as_ref().filter(|_| next.microbatch.index() < self.job.microbatches) else {
            return;
        };
        let start = guide.starts[self.job.task(*series, next.microbatch)];
        next.rank = start * FINE + rule.ranks[*series];
        next.hold = if *takes > 0 { (start - guide.advance) * FINE } else { AT_ONCE };
    }

    /// Runs a task.
    fn place(&mut self, index: RowId, now: Time, rule: &Rule) {
        let Row { mention, leader, takes, duration, .. } = self.fixed.rows[index];
        let end = now + duration;
        self.occupy(leader, mention, (now, end), takes);
        for place in 0..self.fixed.others(&self.fixed.rows[index]).len() {
            let device = self.fixed.others(&self.fixed.rows[index])[place];
            self.occupy(device, mention, (now, end), takes);
        }
        let next = &mut self.next[index];
        let microbatch = next.microbatch;
        self.ends[index.index() * self.job.microbatches + microbatch.index()] = end;
        next.microbatch.0 += 1;
        next.rank += self.period;
        next.hold = if next.hold <= AT_ONCE { next.hold } else { next.hold + self.period };
        if self.guide.is_some() {
            self.follow(index, rule);
        }
        self.look(index);
        for place in 0..self.fixed.feeds(&self.fixed.rows[index]).len() {
            let (fed, _) = self.fixed.feeds(&self.fixed.rows[index])[place];
            if self.next[fed].microbatch == microbatch {
                self.look(fed);
                let leader = self.fixed.rows[fed].leader;
                self.wakes[leader] = self.wakes[leader].min(self.free[leader].max(self.next[fed].ready));
            }
        }
    }

    fn occupy(&mut self, device: DeviceId, mention: Mention, (now, end): (Time, Time), takes: i64) {
        self.free[device] = end;
        self.held[device] += takes;
        self.first[device] = self.first[device].min(now);
        for leader in &self.fixed.leaders[device] {
            self.wakes[*leader] = self.wakes[*leader].min(end.max(self.free[*leader]));
        }
        self.wakes[device] = end;
        if let Some(orders) = &mut self.orders {
            orders[device].push(mention);
        }
    }

    fn reach(&self) -> Reach {
        let since = |device: DeviceId| match self.objective {
            Objective::Makespan => 0,
            Objective::LongestStage => self.first[device].min(self.free[device]),
        };
        let each = self.free.ids().map(|device| self.free[device] - since(device));
        each.fold((0, 0), |(most, sum), one| (most.max(one), sum + one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::plan::Plan;
    use crate::dispatch::random::Random;
    use crate::dispatch::rule::Legs;
    use crate::dispatch::samples::{fusing, v};

    /// Rules that hold nothing back and never wait start every task when its device and its inputs
    /// allow, like plans do.
    #[test]
    fn schedules_are_as_long_as_plans_of_their_orders_or_wait_on_purpose() {
        for job in [v(4, 8, 5, [1, 1, 1], 0), v(3, 6, 6, [2, 3, 1], 1), fusing(3, 4, 4, [1, 2, 2, 3], 1)] {
            let (legs, random) = (Legs::new(&job), &mut Random::new(7));
            for objective in [Objective::Makespan, Objective::LongestStage] {
                let mut dispatch = Dispatch::new(&job, objective);
                let (mut done, mut waited) = (0, 0);
                for _ in 0..200 {
                    let mut rule = Rule::random(&job, &legs, random);
                    rule.change(&job, &legs, 4 * legs.unit * FINE, random);
                    let Some((length, _)) = dispatch.run(&rule, NEVER) else { continue };
                    let orders = dispatch.orders(&rule).expect("the same again");
                    assert!(job.fits(&orders));
                    let planned = Plan::new(&job, objective, &orders).expect("no cycle").1.length;
                    let waits = rule.wait > 0 || rule.hold.iter().any(|hold| *hold > AT_ONCE);
                    match objective {
                        _ if !waits => assert_eq!(length, planned),
                        Objective::Makespan => assert!(planned <= length),
                        // What starts later may be shorter.
                        Objective::LongestStage => (),
                    }
                    done += 1;
                    waited += usize::from(waits);
                }
                assert!(done > 20 && waited > 0 && waited < done, "{done} {waited}");
            }
        }
    }
}
