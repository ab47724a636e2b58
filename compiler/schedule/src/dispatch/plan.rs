//! A schedule under change: the event graph of its tasks, timed by one pass.
//!
//! A task waits for the tasks that it needs and for the one before it on each of its
//! devices. Where a backward runs at once, the node of its `B` takes as long, and that of its `W`
//! stands in no order and takes no time.
//!
//! This is [`crate::timing::timeline::simulate`] for the search, which times millions of orders that
//! differ by one task: it may meet a cycle, reads nothing but numbers and reuses its memory. Both
//! start every task at the same moment, which a test compares.

use super::Objective;
use super::fusion::{Counts, Fusion};
use super::job::{FusionId, Job, Mention, Orders, SeriesId, TaskId, Time};
use super::random::Random;
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};

/// Orders with the times that follow.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What is ordered.
    pub job: &'a Job,
    /// What is to be short.
    pub objective: Objective,
    /// By device: its tasks in order.
    pub orders: IndexVec<DeviceId, Vec<TaskId>>,
    /// By series and microbatch: where it stands on each of the devices of its series, or [`NOWHERE`].
    pub places: IndexVec<SeriesId, Vec<u32>>,
    /// How long each task takes.
    pub(crate) durations: IndexVec<TaskId, Time>,
    /// How orders mention each task.
    pub(crate) mentions: IndexVec<TaskId, Mention>,
    /// When each task starts.
    pub starts: IndexVec<TaskId, Time>,
    /// The longest way from each task's end to the end of the schedule, when that was last noted.
    pub tails: IndexVec<TaskId, Time>,
    /// Tasks in an order in which each comes after those that it waits for.
    pub sequence: Vec<TaskId>,
    waits: IndexVec<TaskId, u32>,
}

/// A task of a device's order that goes to another place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Whose order.
    pub device: DeviceId,
    /// The place where it is.
    pub from: usize,
    /// The place where it goes.
    pub to: usize,
}

impl Move {
    /// What takes it back.
    #[must_use]
    pub const fn undone(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}

/// The place of what stands in no order.
pub const NOWHERE: u32 = u32::MAX;

/// How long a schedule is, and what tells apart those that are equally long: the sum of its devices' ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Length {
    /// The time of the objective.
    pub length: Time,
    /// The sum of the ends of all devices: what decides between equal lengths.
    pub ends: Time,
}

impl<'a> Plan<'a> {
    /// Orders with times, unless devices wait for each other in a cycle.
    pub fn new(job: &'a Job, objective: Objective, orders: &Orders) -> Option<(Self, Length)> {
        let (n_tasks, m) = (job.n_tasks(), job.microbatches);
        let places = job.series.iter().map(|series| vec![NOWHERE; series.devices.len() * m]).collect();
        let durations = job.series.iter().flat_map(|series| std::iter::repeat_n(series.duration, m)).collect();
        let mentions = job.series.ids().flat_map(|series| std::iter::repeat_n(Mention::Series(series), m)).collect();
        let mut plan = Self {
            job,
            objective,
            orders: IndexVec::default(),
            places,
            durations,
            mentions,
            starts: vec![0; n_tasks].into(),
            tails: vec![0; n_tasks].into(),
            sequence: Vec::with_capacity(n_tasks),
            waits: vec![0; n_tasks].into(),
        };
        for order in orders {
            let mut counts = Counts::new(job);
            let mut tasks = Vec::with_capacity(order.len());
            for mention in order {
                let microbatch = counts.next(job, *mention)?;
                if let Mention::Fusion(fusion) = *mention {
                    plan.set_form(fusion, microbatch, true);
                }
                tasks.push(job.task(job.series_of(*mention).0, microbatch));
            }
            let device = plan.orders.push(tasks);
            plan.note_places(device, 0, order.len());
        }
        let length = plan.time()?;
        Some((plan, length))
    }

    /// Says how long the halves of a backward take, and how orders mention them.
    pub fn set_form(&mut self, fusion: FusionId, microbatch: MicrobatchId, is_fused: bool) {
        let job = self.job;
        let Fusion { first, second, duration } = job.fusions[fusion];
        let (input, weight) = (job.task(first, microbatch), job.task(second, microbatch));
        self.mentions[input] = if is_fused { Mention::Fusion(fusion) } else { Mention::Series(first) };
        self.durations[input] = if is_fused { duration } else { job.series[first].duration };
        self.durations[weight] = if is_fused { 0 } else { job.series[second].duration };
        if is_fused {
            let n_devices = job.series[second].devices.len();
            self.places[second][microbatch.index() * n_devices..][..n_devices].fill(NOWHERE);
        }
    }

    /// How an order mentions a task.
    pub fn mention(&self, task: TaskId) -> Mention {
        self.mentions[task]
    }

    /// Where a task stands: the devices of its series, each with the place there.
    pub fn places_of(&self, task: TaskId) -> impl Iterator<Item = (DeviceId, usize)> + '_ {
        let (series, microbatch) = self.job.of_task(task);
        let devices = &self.job.series[series].devices;
        let first = microbatch.index() * devices.len();
        let placed = devices.iter().zip(&self.places[series][first..]).filter(|(_, place)| **place != NOWHERE);
        placed.map(|(device, place)| (*device, *place as usize))
    }

    /// Updates where tasks of a device stand, from one position to below another.
    pub fn note_places(&mut self, device: DeviceId, from: usize, to: usize) {
        for place in from..to {
            let (series, microbatch) = self.job.of_task(self.orders[device][place]);
            let devices = &self.job.series[series].devices;
            let which = devices.iter().position(|own| *own == device).unwrap_or_default();
            self.places[series][microbatch.index() * devices.len() + which] = place as u32;
        }
    }

    /// How long a task takes.
    pub fn duration(&self, task: TaskId) -> Time {
        self.durations[task]
    }

    /// When a task ends.
    pub fn end(&self, task: TaskId) -> Time {
        self.starts[task] + self.duration(task)
    }

    /// Starts every task as soon as what it waits for has ended; `None` where devices wait for each other in a cycle.
    pub fn time(&mut self) -> Option<Length> {
        let job = self.job;
        self.sequence.clear();
        for task in self.starts.ids() {
            let needs = job.series[job.of_task(task).0].needs.len();
            let waits = needs + self.places_of(task).filter(|(_, place)| *place > 0).count();
            self.waits[task] = waits as u32;
            if waits == 0 {
                self.sequence.push(task);
            }
        }
        let mut done = 0;
        while let Some(&task) = self.sequence.get(done) {
            done += 1;
            self.starts[task] = self.ready(task);
            let (series, microbatch) = job.of_task(task);
            for (next, _) in &job.series[series].feeds {
                self.wake(job.task(*next, microbatch));
            }
            let devices = &job.series[series].devices;
            for (which, device) in devices.iter().enumerate() {
                let place = self.places[series][microbatch.index() * devices.len() + which];
                if let Some(&next) =
                    self.orders[*device].get(place.wrapping_add(1) as usize).filter(|_| place != NOWHERE)
                {
                    self.wake(next);
                }
            }
        }
        (done == self.starts.len()).then(|| self.length())
    }

    fn wake(&mut self, task: TaskId) {
        let waits = &mut self.waits[task];
        *waits -= 1;
        if *waits == 0 {
            self.sequence.push(task);
        }
    }

    /// When a task can start, if all that it waits for has been timed.
    fn ready(&self, task: TaskId) -> Time {
        self.before(task).map(|(_, ready)| ready).max().unwrap_or(0)
    }

    /// What a task waits for, with the moment at which that no longer holds it up.
    fn before(&self, task: TaskId) -> impl Iterator<Item = (TaskId, Time)> + '_ {
        let (series, microbatch) = self.job.of_task(task);
        let needs = self.job.series[series].needs.iter().map(move |(need, latency)| {
            let need = self.job.task(*need, microbatch);
            (need, self.end(need) + latency)
        });
        let placed = self.places_of(task).filter(|(_, place)| *place > 0);
        let earlier = placed.map(|(device, place)| self.orders[device][place - 1]);
        needs.chain(earlier.map(|task| (task, self.end(task))))
    }

    /// From the first start to the last end of a device.
    fn span(&self, order: &[TaskId]) -> (Time, Time) {
        match (order.first(), order.last()) {
            (Some(first), Some(last)) => (self.starts[*first], self.end(*last)),
            _ => (0, 0),
        }
    }

    /// The longest time from first start to last end on one device.
    pub(crate) fn longest_stage(&self) -> Time {
        let spans = self.orders.iter().map(|order| self.span(order));
        spans.map(|(first, last)| last - first).max().unwrap_or(0)
    }

    fn of_device(&self, order: &[TaskId]) -> Time {
        let (first, last) = self.span(order);
        if self.objective == Objective::Makespan { last } else { last - first }
    }

    fn length(&self) -> Length {
        let each = self.orders.iter().map(|order| self.of_device(order));
        each.fold(Length { length: 0, ends: 0 }, |all, one| Length {
            length: all.length.max(one),
            ends: all.ends + one,
        })
    }

    /// A chain of tasks without a pause that makes the schedule as long as it is, the last one first.
    pub fn critical(&self, random: &mut Random, path: &mut Vec<TaskId>) {
        path.clear();
        let longest = self.length().length;
        let ends: Vec<TaskId> = self
            .orders
            .iter()
            .filter(|order| self.of_device(order) == longest)
            .filter_map(|order| order.last().copied())
            .collect();
        if ends.is_empty() {
            return;
        }
        let mut task = ends[random.below(ends.len())];
        loop {
            path.push(task);
            let start = self.starts[task];
            let tight = || self.before(task).filter(|(_, ready)| *ready == start).map(|(before, _)| before);
            let count = tight().count();
            if count == 0 {
                return;
            }
            let chosen = random.below(count);
            task = tight().nth(chosen).unwrap_or(task);
        }
    }

    /// One of the places of a task.
    pub fn some_place(&self, task: TaskId, random: &mut Random) -> (DeviceId, usize) {
        let devices = self.job.series[self.job.of_task(task).0].devices.len();
        let which = random.below(devices);
        self.places_of(task).nth(which).unwrap_or((DeviceId(0), 0))
    }

    /// Number of tasks of a device.
    pub fn n_tasks(&self, device: DeviceId) -> usize {
        self.orders[device].len()
    }

    /// Whether a task may move, as far as its own series, its microbatch and the memory of the device are concerned.
    pub fn may_move(&self, moved: Move) -> bool {
        let Move { device, from, to } = moved;
        let order = &self.orders[device];
        let (series, microbatch) = self.job.of_task(order[from]);
        let passed = if from < to { &order[from + 1..=to] } else { &order[to..from] };
        let needs = |one: SeriesId, other: SeriesId| self.job.series[one].needs.iter().any(|(need, _)| *need == other);
        let stops = |other: &TaskId| {
            let (other, its) = self.job.of_task(*other);
            other == series || its == microbatch && (needs(series, other) || needs(other, series))
        };
        if passed.iter().any(stops) {
            return false;
        }
        // Only prefixes between the two places change.
        let takes = |task: &TaskId| self.job.takes(self.mention(*task));
        let change: i64 = if from < to { passed.iter().map(takes).max().unwrap_or(0) } else { takes(&order[from]) };
        change <= 0 || self.fits_after(moved)
    }

    fn fits_after(&self, Move { device, from, to }: Move) -> bool {
        let order = &self.orders[device];
        let moved = |place: usize| match place {
            _ if place == to => order[from],
            _ if from < to && (from..to).contains(&place) => order[place + 1],
            _ if to < from && (to + 1..=from).contains(&place) => order[place - 1],
            _ => order[place],
        };
        let last = from.max(to);
        self.job.fits_on(device, (0..=last).map(|place| self.mention(moved(place))))
    }

    /// Moves a task.
    pub fn shift(&mut self, Move { device, from, to }: Move) {
        let order = &mut self.orders[device];
        if from < to {
            order[from..=to].rotate_left(1);
        } else {
            order[to..=from].rotate_right(1);
        }
        self.note_places(device, from.min(to), from.max(to) + 1);
    }

    /// The place of a device's first task that starts at a moment or later.
    pub(crate) fn first_at(&self, device: DeviceId, moment: Time) -> Option<usize> {
        let place = self.orders[device].partition_point(|task| self.starts[*task] < moment);
        (place < self.orders[device].len()).then_some(place)
    }

    /// The start of every task.
    pub const fn starts(&self) -> &IndexVec<TaskId, Time> {
        &self.starts
    }

    /// Puts back times that were taken before a change that was undone.
    pub fn restore(&mut self, starts: &mut IndexVec<TaskId, Time>) {
        std::mem::swap(&mut self.starts, starts);
    }

    /// The orders as series and fusions.
    pub fn orders(&self) -> Orders {
        self.orders.iter().map(|order| order.iter().map(|task| self.mention(*task)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::dispatch::scale::Scale;
    use crate::examples::{one_f_one_b, v_half, v_zb};
    use crate::timing::costs::{StageCosts, of_stages};
    use crate::timing::timeline::simulate;

    #[test]
    fn tasks_start_when_they_do_in_a_timeline() {
        for schedule in [one_f_one_b(4, 9), v_half(4, 7), v_zb(3, 8)] {
            for costs in ["", "F=5,B=6,W=4,BW=11,comm=2", "F=3,B=1,W=7,BW=8,F[1]=9,comm=0.5"] {
                let costs = of_stages(&StageCosts::parse(costs).expect("well-formed"), schedule.n_stages());
                let (order, scale) = (check(&schedule).expect("sound"), Scale::new(&costs, schedule.n_tasks() * 2));
                let most = vec![i64::MAX; schedule.n_devices()].into();
                let job = Job::as_it_is(&schedule, &order.dependencies, &costs, &scale, most);
                let orders = job.orders(&schedule).expect("microbatches in ascending order");
                let (plan, length) = Plan::new(&job, Objective::Makespan, &orders).expect("no cycle");
                let timeline = simulate(&schedule, &order, &costs);
                assert_eq!(scale.ticks(length.length), timeline.makespan());
                for (own, starts) in plan.orders.iter().zip(&timeline.starts) {
                    assert!(own.iter().map(|task| scale.ticks(plan.starts[*task])).eq(starts.iter().copied()));
                }
            }
        }
    }
}
