//! A schedule under change: the event graph of its tasks, timed by one pass.
//!
//! A node is a task. It waits for the tasks that it needs and for the one before it on each of its
//! devices. Where a backward runs at once, the node of its `B` takes as long, and that of its `W`
//! stands in no order and takes no time.

use super::Objective;
use super::fusion::{Counts, Fusion};
use super::job::{Job, Orders, Time};
use super::random::Random;

/// Orders with the times that follow.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What is ordered.
    pub job: &'a Job,
    /// What is to be short.
    pub objective: Objective,
    /// By device: nodes in order. Node `series * microbatches + microbatch` is a task.
    pub orders: Vec<Vec<u32>>,
    /// By series and microbatch: where it stands on each of the devices of its series, or [`NOWHERE`].
    pub places: Vec<Vec<u32>>,
    /// By node: how long it takes.
    pub(crate) durations: Vec<Time>,
    /// By node, if there are fusions at all: how orders mention it.
    pub(crate) mentions: Vec<u32>,
    /// When each task starts, by node.
    pub starts: Vec<Time>,
    /// By node: the longest way from its end to the end of the schedule, when that was last noted.
    pub tails: Vec<Time>,
    /// Nodes in an order in which each comes after those that it waits for.
    pub sequence: Vec<u32>,
    waits: Vec<u32>,
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
        let (n_nodes, m) = (job.n_tasks(), job.microbatches);
        let places = job.series.iter().map(|series| vec![NOWHERE; series.devices.len() * m]).collect();
        let durations = job.series.iter().flat_map(|series| std::iter::repeat_n(series.duration, m)).collect();
        let n_series = if job.fusions.is_empty() { 0 } else { job.series.len() };
        let mentions = (0..n_series as u32).flat_map(|series| std::iter::repeat_n(series, m)).collect();
        let mut plan = Self {
            job,
            objective,
            orders: Vec::with_capacity(orders.len()),
            places,
            durations,
            mentions,
            starts: vec![0; n_nodes],
            tails: vec![0; n_nodes],
            sequence: Vec::with_capacity(n_nodes),
            waits: vec![0; n_nodes],
        };
        for (device, order) in orders.iter().enumerate() {
            let mut counts = Counts::new(job);
            let mut nodes = Vec::with_capacity(order.len());
            for mention in order {
                let microbatch = counts.next(job, *mention)?;
                if let Some(fusion) = mention.checked_sub(job.series.len()) {
                    plan.set_form(fusion, microbatch, true);
                }
                nodes.push((job.series_of(*mention).0 * m + microbatch) as u32);
            }
            plan.orders.push(nodes);
            plan.note_places(device, 0, plan.orders[device].len());
        }
        let length = plan.time()?;
        Some((plan, length))
    }

    /// Says how long the halves of a backward take, and how orders mention them.
    pub fn set_form(&mut self, fusion: usize, microbatch: usize, is_fused: bool) {
        let (m, job) = (self.job.microbatches, self.job);
        let Fusion { first, second, duration } = job.fusions[fusion];
        let (input, weight) = (first * m + microbatch, second * m + microbatch);
        self.mentions[input] = if is_fused { job.series.len() + fusion } else { first } as u32;
        self.durations[input] = if is_fused { duration } else { job.series[first].duration };
        self.durations[weight] = if is_fused { 0 } else { job.series[second].duration };
        if is_fused {
            let n_devices = job.series[second].devices.len();
            self.places[second][microbatch * n_devices..][..n_devices].fill(NOWHERE);
        }
    }

    pub(crate) fn series_of(&self, node: u32) -> usize {
        node as usize / self.job.microbatches
    }

    /// How an order mentions a node.
    pub fn mention(&self, node: u32) -> usize {
        self.mentions.get(node as usize).map_or_else(|| self.series_of(node), |mention| *mention as usize)
    }

    /// Positions in the series' `places`: one for each of its devices.
    pub fn places_of(&self, node: u32) -> impl Iterator<Item = (usize, usize)> + '_ {
        let (series, microbatch) = (self.series_of(node), node as usize % self.job.microbatches);
        let devices = &self.job.series[series].devices;
        let first = microbatch * devices.len();
        let placed = devices.iter().zip(&self.places[series][first..]).filter(|(_, place)| **place != NOWHERE);
        placed.map(|(device, place)| (*device, *place as usize))
    }

    /// Updates where tasks of a device stand, from one position to below another.
    pub fn note_places(&mut self, device: usize, from: usize, to: usize) {
        for place in from..to {
            let node = self.orders[device][place];
            let (series, microbatch) = (self.series_of(node), node as usize % self.job.microbatches);
            let devices = &self.job.series[series].devices;
            let which = devices.iter().position(|own| *own == device).unwrap_or_default();
            self.places[series][microbatch * devices.len() + which] = place as u32;
        }
    }

    /// How long a task takes.
    pub fn duration(&self, node: u32) -> Time {
        self.durations[node as usize]
    }

    /// When a task ends.
    pub fn end(&self, node: u32) -> Time {
        self.starts[node as usize] + self.duration(node)
    }

    /// Starts every task as soon as what it waits for has ended; `None` where devices wait for each other in a cycle.
    pub fn time(&mut self) -> Option<Length> {
        let m = self.job.microbatches;
        self.sequence.clear();
        for node in 0..self.starts.len() as u32 {
            let needs = self.job.series[self.series_of(node)].needs.len();
            let waits = needs + self.places_of(node).filter(|(_, place)| *place > 0).count();
            self.waits[node as usize] = waits as u32;
            if waits == 0 {
                self.sequence.push(node);
            }
        }
        let mut done = 0;
        while let Some(&node) = self.sequence.get(done) {
            done += 1;
            self.starts[node as usize] = self.ready(node);
            let (series, microbatch) = (node as usize / m, node as usize % m);
            let job = self.job;
            for (next, _) in &job.series[series].feeds {
                self.wake((next * m + microbatch) as u32);
            }
            let devices = &job.series[series].devices;
            for (which, device) in devices.iter().enumerate() {
                let place = self.places[series][microbatch * devices.len() + which];
                if let Some(&next) =
                    self.orders[*device].get(place.wrapping_add(1) as usize).filter(|_| place != NOWHERE)
                {
                    self.wake(next);
                }
            }
        }
        (done == self.starts.len()).then(|| self.length())
    }

    fn wake(&mut self, node: u32) {
        let waits = &mut self.waits[node as usize];
        *waits -= 1;
        if *waits == 0 {
            self.sequence.push(node);
        }
    }

    /// When a task can start, if all that it waits for has been timed.
    fn ready(&self, node: u32) -> Time {
        self.before(node).map(|(_, ready)| ready).max().unwrap_or(0)
    }

    /// What a task waits for, with the moment at which that no longer holds it up.
    fn before(&self, node: u32) -> impl Iterator<Item = (u32, Time)> + '_ {
        let m = self.job.microbatches;
        let (series, microbatch) = (node as usize / m, node as usize % m);
        let needs = self.job.series[series].needs.iter().map(move |(need, latency)| {
            let need = (need * m + microbatch) as u32;
            (need, self.end(need) + latency)
        });
        let placed = self.places_of(node).filter(|(_, place)| *place > 0);
        let earlier = placed.map(|(device, place)| self.orders[device][place - 1]);
        needs.chain(earlier.map(|node| (node, self.end(node))))
    }

    /// From the first start to the last end of a device.
    fn span(&self, order: &[u32]) -> (Time, Time) {
        match (order.first(), order.last()) {
            (Some(first), Some(last)) => (self.starts[*first as usize], self.end(*last)),
            _ => (0, 0),
        }
    }

    /// The longest time from first start to last end on one device.
    pub(crate) fn longest_stage(&self) -> Time {
        let spans = self.orders.iter().map(|order| self.span(order));
        spans.map(|(first, last)| last - first).max().unwrap_or(0)
    }

    fn of_device(&self, order: &[u32]) -> Time {
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
    pub fn critical(&self, random: &mut Random, path: &mut Vec<u32>) {
        path.clear();
        let longest = self.length().length;
        let ends: Vec<u32> = self
            .orders
            .iter()
            .filter(|order| self.of_device(order) == longest)
            .filter_map(|order| order.last().copied())
            .collect();
        if ends.is_empty() {
            return;
        }
        let mut node = ends[random.below(ends.len())];
        loop {
            path.push(node);
            let start = self.starts[node as usize];
            let tight = || self.before(node).filter(|(_, ready)| *ready == start).map(|(before, _)| before);
            let count = tight().count();
            if count == 0 {
                return;
            }
            let chosen = random.below(count);
            node = tight().nth(chosen).unwrap_or(node);
        }
    }

    /// One of the places of a node.
    pub fn some_place(&self, node: u32, random: &mut Random) -> (usize, usize) {
        let devices = self.job.series[self.series_of(node)].devices.len();
        let which = random.below(devices);
        self.places_of(node).nth(which).unwrap_or((0, 0))
    }

    /// Number of tasks of a device.
    pub fn n_tasks(&self, device: usize) -> usize {
        self.orders[device].len()
    }

    /// Whether a task may move to another place of its device's order, as far as its own series, its microbatch and the
    /// memory of the device are concerned.
    pub fn may_move(&self, device: usize, from: usize, to: usize) -> bool {
        let order = &self.orders[device];
        let (node, m) = (order[from], self.job.microbatches);
        let (series, microbatch) = (node as usize / m, node as usize % m);
        let passed = if from < to { &order[from + 1..=to] } else { &order[to..from] };
        let is_near = |one: &usize, other: usize| self.job.series[other].needs.iter().any(|(need, _)| need == one);
        let stops = |other: &u32| {
            let (other, its) = (*other as usize / m, *other as usize % m);
            other == series || its == microbatch && (is_near(&other, series) || is_near(&series, other))
        };
        if passed.iter().any(stops) {
            return false;
        }
        // Only prefixes between the two places change.
        let takes = |node: &u32| self.job.takes(self.mention(*node));
        let change: i64 = if from < to { passed.iter().map(takes).max().unwrap_or(0) } else { takes(&node) };
        change <= 0 || self.fits_after(device, from, to)
    }

    fn fits_after(&self, device: usize, from: usize, to: usize) -> bool {
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

    /// Moves a task to another place of its device's order.
    pub fn shift(&mut self, device: usize, from: usize, to: usize) {
        let order = &mut self.orders[device];
        if from < to {
            order[from..=to].rotate_left(1);
        } else {
            order[to..=from].rotate_right(1);
        }
        self.note_places(device, from.min(to), from.max(to) + 1);
    }

    /// The place of a device's first task that starts at a moment or later.
    pub(crate) fn first_at(&self, device: usize, moment: Time) -> Option<usize> {
        let place = self.orders[device].partition_point(|node| self.starts[*node as usize] < moment);
        (place < self.orders[device].len()).then_some(place)
    }

    /// The start of every task, by series and microbatch.
    pub fn starts(&self) -> &[Time] {
        &self.starts
    }

    /// Puts back times that were taken before a change that was undone.
    pub fn restore(&mut self, starts: &mut Vec<Time>) {
        std::mem::swap(&mut self.starts, starts);
    }

    /// The orders as series and fusions.
    pub fn orders(&self) -> Orders {
        self.orders.iter().map(|order| order.iter().map(|node| self.mention(*node)).collect()).collect()
    }
}
