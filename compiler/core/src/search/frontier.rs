//! Schedules built task by task, from the first on, many at once: a beam that keeps the most promising ones, or, where it
//! keeps all that no other one dominates, a proof that no schedule is shorter.
//!
//! Branching follows Giffler and Thompson (Operations Research 8, 1960): of all tasks that can run next take the one that
//! could end first; on its devices the next task is one that starts before that. Their argument moves a task to the left,
//! which is not always allowed for a task that takes memory: for those there is one branch more, in which its devices
//! first run something else, and start that no earlier.

use super::job::{Job, Orders, Time};
use super::relax::Relaxed;
use std::collections::BTreeMap;

/// What a beam did.
pub(super) struct Explored {
    /// The shortest schedule that was met, if there is one below the limit.
    pub(super) found: Option<(Time, Orders)>,
    /// Whether nothing was left out, so that there is no shorter one.
    pub(super) complete: bool,
}

/// How to explore.
pub(super) struct Beam {
    /// Partial schedules that are kept at each step.
    pub(super) width: usize,
    /// Only schedules shorter than this are wanted.
    pub(super) below: Time,
    /// Whether every schedule counts, or only those that are sure to find memory to end in.
    pub(super) exact: bool,
}

/// Partial schedules that do the same tasks, as far as what follows depends on them. The times of tasks whose lanes
/// others still wait for are kept in a ring.
#[derive(Clone)]
struct State {
    counts: Vec<u32>,
    free: Vec<Time>,
    held: Vec<i64>,
    ends: Vec<Time>,
    work: Vec<Time>,
    /// Lanes that must not be next on their devices.
    blocked: Vec<bool>,
    parent: u32,
    lane: u32,
    bound: Time,
    promise: Time,
}

struct Search<'a> {
    job: &'a Job,
    beam: &'a Beam,
    heads: Vec<Time>,
    tails: Vec<Time>,
    ring: usize,
}

/// Builds schedules until all tasks are placed. `go_on` may end it early.
pub(super) fn explore(job: &Job, beam: &Beam, go_on: &mut dyn FnMut() -> bool) -> Explored {
    let (heads, tails) = (vec![0; job.lanes.len()], job.tails());
    run(&Search { job, beam, heads, tails, ring: ring(job, beam.exact) }, go_on)
}

/// The same for an easier problem.
pub(super) fn explore_relaxed(relaxed: &Relaxed, beam: &Beam, go_on: &mut dyn FnMut() -> bool) -> Explored {
    let Relaxed { job, heads, tails } = relaxed;
    run(&Search { job, beam, heads: heads.clone(), tails: tails.clone(), ring: ring(job, beam.exact) }, go_on)
}

fn run(search: &Search<'_>, go_on: &mut dyn FnMut() -> bool) -> Explored {
    let Search { job, beam, .. } = search;
    let mut layer = vec![search.root()];
    let mut history: Vec<Vec<(u32, u32)>> = Vec::with_capacity(job.n_tasks());
    let mut complete = beam.exact;
    for _ in 0..job.n_tasks() {
        let mut children = Vec::new();
        for (parent, state) in layer.iter().enumerate() {
            if parent % 64 == 0 && !go_on() {
                return Explored { found: None, complete: false };
            }
            search.expand(state, parent as u32, &mut children);
        }
        let (next, all) = search.select(children);
        complete &= all;
        history.push(next.iter().map(|state| (state.parent, state.lane)).collect());
        layer = next;
        if layer.is_empty() {
            return Explored { found: None, complete };
        }
    }
    let last = |state: &State, lane: usize| state.ends[search.slot(lane, job.microbatches as u32 - 1)];
    let length =
        |state: &State| (0..job.lanes.len()).map(|lane| last(state, lane) + search.tails[lane]).max().unwrap_or(0);
    let best = layer.iter().enumerate().min_by_key(|(_, state)| length(state));
    let found = best.map(|(index, state)| (length(state), search.orders(&history, index)));
    Explored { found, complete }
}

/// How many ends of a lane are kept: with a memory limit few microbatches are under way.
fn ring(job: &Job, exact: bool) -> usize {
    let most = usize::try_from(job.capacity.iter().copied().max().unwrap_or(0)).unwrap_or(0);
    if exact { job.microbatches } else { most.saturating_mul(4).saturating_add(8).min(job.microbatches) }
}

impl Search<'_> {
    fn root(&self) -> State {
        let (n_lanes, n_devices) = (self.job.lanes.len(), self.job.capacity.len());
        let work = |lanes: &Vec<usize>| lanes.iter().map(|lane| self.job.lanes[*lane].duration).sum::<Time>();
        State {
            counts: vec![0; n_lanes],
            free: vec![0; n_devices],
            held: vec![0; n_devices],
            ends: vec![0; n_lanes * self.ring],
            work: self.job.on_device.iter().map(|lanes| work(lanes) * self.job.microbatches as Time).collect(),
            blocked: vec![false; n_lanes],
            parent: 0,
            lane: 0,
            bound: 0,
            promise: 0,
        }
    }

    fn slot(&self, lane: usize, microbatch: u32) -> usize {
        lane * self.ring + microbatch as usize % self.ring
    }

    /// When the next task of a lane could start, if everything is there that it needs.
    fn start(&self, state: &State, index: usize) -> Option<Time> {
        let (lane, microbatch) = (&self.job.lanes[index], state.counts[index]);
        if microbatch as usize >= self.job.microbatches || state.blocked[index] {
            return None;
        }
        let over = |device: &usize| lane.takes > 0 && state.held[*device] + lane.takes > self.job.capacity[*device];
        // The ring must not forget an end that another lane still waits for.
        let late = |(next, _): &(usize, Time)| state.counts[*next] as usize + self.ring <= microbatch as usize;
        if lane.devices.iter().any(over) || lane.feeds.iter().any(late) {
            return None;
        }
        let mut start = lane.devices.iter().map(|device| state.free[*device]).fold(self.heads[index], Ord::max);
        for (need, latency) in &lane.needs {
            if state.counts[*need] <= microbatch {
                return None;
            }
            start = start.max(state.ends[self.slot(*need, microbatch)] + latency);
        }
        Some(start)
    }

    /// Whether the microbatches under way can still end one after the other, the oldest first, after a task of a lane.
    fn is_safe(&self, state: &State, next: usize) -> bool {
        if self.beam.exact || self.job.lanes[next].takes <= 0 {
            return true;
        }
        let count = |lane: usize| state.counts[lane] + u32::from(lane == next);
        let mut held = state.held.clone();
        let mut take = |lane: usize| {
            let lane = &self.job.lanes[lane];
            lane.devices.iter().all(|device| {
                held[*device] += lane.takes;
                held[*device] <= self.job.capacity[*device]
            })
        };
        let n_lanes = self.job.lanes.len();
        let oldest = (0..n_lanes).map(count).min().unwrap_or(0);
        let newest = (0..n_lanes).map(count).max().unwrap_or(0);
        take(next) && (oldest..newest).all(|microbatch| (0..n_lanes).all(|lane| count(lane) > microbatch || take(lane)))
    }

    fn expand(&self, state: &State, parent: u32, children: &mut Vec<State>) {
        let mut state = state.clone();
        loop {
            let ready = |lane| Some((lane, self.start(&state, lane)?));
            let mut ready: Vec<(usize, Time)> = (0..self.job.lanes.len()).filter_map(ready).collect();
            ready.retain(|(lane, _)| self.is_safe(&state, *lane));
            // Where two could end first, the one that takes no memory leaves one branch less.
            let takes = |lane: usize| self.job.lanes[lane].takes > 0;
            let end = |(lane, start): &(usize, Time)| start + self.job.lanes[*lane].duration;
            let Some(first) = ready.iter().min_by_key(|one| (end(one), takes(one.0), one.0)).copied() else { return };
            let (devices, ends) = (&self.job.lanes[first.0].devices, end(&first));
            for (lane, start) in ready {
                let shares = || self.job.lanes[lane].devices.iter().any(|device| devices.contains(device));
                if lane == first.0 || start < ends && shares() {
                    children.extend(self.child(&state, lane, start, parent));
                }
            }
            if !self.beam.exact || !takes(first.0) {
                return;
            }
            state.blocked[first.0] = true;
            for device in devices {
                state.free[*device] = state.free[*device].max(ends);
            }
            if self.bound(&state).0 >= self.beam.below {
                return;
            }
        }
    }

    fn child(&self, state: &State, index: usize, start: Time, parent: u32) -> Option<State> {
        let lane = &self.job.lanes[index];
        let mut child = State { parent, lane: index as u32, ..state.clone() };
        let end = start + lane.duration;
        for device in &lane.devices {
            child.free[*device] = end;
            child.work[*device] -= lane.duration;
            child.held[*device] += lane.takes;
            for own in &self.job.on_device[*device] {
                child.blocked[*own] = false;
            }
        }
        child.ends[self.slot(index, state.counts[index])] = end;
        child.counts[index] += 1;
        (child.bound, child.promise) = self.bound(&child);
        (child.bound < self.beam.below).then_some(child)
    }

    /// No schedule that begins like this is shorter, and the sum of the same over all devices.
    fn bound(&self, state: &State) -> (Time, Time) {
        let heads = self.heads(state);
        let (mut longest, mut sum) = (0, 0);
        let mut left: Vec<(Time, Time, Time)> = Vec::new();
        for (device, lanes) in self.job.on_device.iter().enumerate() {
            let is_left = |lane: &&usize| (state.counts[**lane] as usize) < self.job.microbatches;
            let lanes = || lanes.iter().filter(is_left).map(|lane| (*lane, &self.job.lanes[*lane]));
            // A device without memory first gives some back.
            let full = |takes: i64| takes > 0 && state.held[device] + takes > self.job.capacity[device];
            let releases = lanes().filter(|(_, lane)| lane.takes < 0).map(|(index, lane)| heads[index] + lane.duration);
            let released = releases.min().unwrap_or(0);
            left.clear();
            left.extend(lanes().map(|(index, lane)| {
                let head = if full(lane.takes) { heads[index].max(released) } else { heads[index] };
                let rest = self.job.microbatches as Time - Time::from(state.counts[index]);
                (head, rest * lane.duration, self.tails[index])
            }));
            left.sort_unstable();
            let (mut work, mut tail, mut bound) = (0, Time::MAX, state.free[device]);
            for (head, rest, after) in left.iter().rev() {
                work += rest;
                tail = tail.min(*after);
                bound = bound.max(head + work + tail);
            }
            longest = longest.max(bound);
            sum += bound;
        }
        (longest, sum)
    }

    /// When the next task of each lane could start at the earliest.
    fn heads(&self, state: &State) -> Vec<Time> {
        let mut heads: Vec<Time> = vec![0; self.job.lanes.len()];
        for (index, lane) in self.job.lanes.iter().enumerate() {
            let microbatch = state.counts[index];
            if microbatch as usize >= self.job.microbatches {
                continue;
            }
            let free = lane.devices.iter().map(|device| state.free[*device]).fold(self.heads[index], Ord::max);
            let inputs = lane.needs.iter().map(|(need, latency)| {
                let done = state.counts[*need] > microbatch;
                let next = || heads[*need] + self.job.lanes[*need].duration;
                latency + if done { state.ends[self.slot(*need, microbatch)] } else { next() }
            });
            heads[index] = inputs.fold(free, Ord::max);
        }
        heads
    }

    /// The most promising states that no other one dominates, and whether these are all.
    fn select(&self, mut children: Vec<State>) -> (Vec<State>, bool) {
        children.sort_by(|one, other| {
            (one.bound, one.promise, &one.counts).cmp(&(other.bound, other.promise, &other.counts))
        });
        let mut kept: Vec<State> = Vec::new();
        let mut alike: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for child in children {
            let others = alike.entry(child.counts.clone()).or_default();
            if others.iter().any(|other| self.dominates(&kept[*other], &child)) {
                continue;
            }
            if kept.len() == self.beam.width {
                return (kept, false);
            }
            others.push(kept.len());
            kept.push(child);
        }
        (kept, true)
    }

    /// Whether one state can do everything that another one with the same tasks can, and no later.
    fn dominates(&self, one: &State, other: &State) -> bool {
        let no_later = |one: &[Time], other: &[Time]| one.iter().zip(other).all(|(one, other)| one <= other);
        let free = no_later(&one.free, &other.free);
        let blocked = one.blocked.iter().zip(&other.blocked).all(|(one, other)| !one || *other);
        free && blocked
            && self.job.lanes.iter().enumerate().all(|(index, lane)| {
                let Some(from) = lane.feeds.iter().map(|(next, _)| one.counts[*next]).min() else { return true };
                (from..one.counts[index]).all(|microbatch| {
                    let slot = self.slot(index, microbatch);
                    one.ends[slot] <= other.ends[slot]
                })
            })
    }

    /// The orders of a state of the last layer.
    fn orders(&self, history: &[Vec<(u32, u32)>], last: usize) -> Orders {
        let mut orders: Orders = vec![Vec::new(); self.job.capacity.len()];
        let mut index = last;
        for layer in history.iter().rev() {
            let (parent, lane) = layer[index];
            for device in &self.job.lanes[lane as usize].devices {
                orders[*device].push(lane as usize);
            }
            index = parent as usize;
        }
        orders.iter_mut().for_each(|order| order.reverse());
        orders
    }
}
