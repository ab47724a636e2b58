//! The shortest of all schedules of a small job: tries every one, and shares nothing with the search but the job.

use crate::jobs::{parts, ready};
use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{Job, Mention, SeriesId, Time};
use std::collections::HashSet;

/// The length of the shortest schedule that is shorter than a limit: tries all of them, in the order of their starts.
#[must_use]
pub fn shortest_below(job: &Job, objective: Objective, limit: Time) -> Option<Time> {
    let mut tails = job.series.map(|_| 0);
    for series in job.series.ids().rev() {
        for (need, latency) in &job.series[series].needs {
            let own = job.series[series].duration;
            let in_one_piece = job.fusions.iter().find_map(|Fusion { first, second, duration }| match series {
                _ if series == *first => Some(*duration),
                _ if series == *second => Some((duration - job.series[*first].duration).max(0)),
                _ => None,
            });
            let least = own.min(in_one_piece.unwrap_or(own));
            tails[*need] = tails[*need].max(latency + least + tails[series]);
        }
    }
    let state = Partial {
        ends: job.series.map(|_| Vec::new()),
        free: job.capacity.map(|_| 0),
        first: job.capacity.map(|_| None),
        held: job.capacity.map(|_| 0),
        last: 0,
    };
    let mut all = All { job, objective, tails, best: limit, seen: HashSet::new() };
    all.visit(&state);
    (all.best < limit).then_some(all.best)
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Partial {
    ends: IndexVec<SeriesId, Vec<Time>>,
    free: IndexVec<DeviceId, Time>,
    /// When each device started its first task.
    first: IndexVec<DeviceId, Option<Time>>,
    held: IndexVec<DeviceId, i64>,
    /// When the last task started.
    last: Time,
}

struct All<'a> {
    job: &'a Job,
    objective: Objective,
    tails: IndexVec<SeriesId, Time>,
    best: Time,
    seen: HashSet<(Vec<usize>, Partial)>,
}

impl All<'_> {
    fn visit(&mut self, state: &Partial) {
        let job = self.job;
        let m = job.microbatches;
        let longest = job.capacity.ids().map(|device| self.least(state, device)).max().unwrap_or(0);
        if longest >= self.best {
            return;
        }
        if state.ends.iter().all(|ends| ends.len() == m) {
            self.best = longest;
            return;
        }
        if !self.seen.insert(self.key(state)) {
            return;
        }
        let mut nexts: Vec<(Time, Mention)> = Vec::new();
        for mention in job.mentions() {
            let (all, duration) = parts(job, mention);
            let devices = &job.series[all[0]].devices;
            let takes: i64 = all.iter().map(|series| job.series[*series].takes).sum();
            let has_room = devices.iter().all(|device| state.held[*device] + takes <= job.capacity[*device]);
            if !has_room || all.iter().any(|series| state.ends[*series].len() == m) {
                continue;
            }
            let Some(ready) = ready(job, &state.ends, &all) else { continue };
            let start = devices.iter().map(|device| state.free[*device]).fold(ready, Ord::max);
            let counts = all.len() == 1 && self.objective == Objective::Makespan;
            let tail = if counts { self.tails[all[0]] } else { 0 };
            let is_short = self.objective == Objective::LongestStage || start + duration + tail < self.best;
            if start >= state.last && is_short {
                nexts.push((start, mention));
            }
        }
        nexts.sort_unstable();
        for (start, mention) in nexts {
            let (all, duration) = parts(job, mention);
            let mut next = state.clone();
            next.last = start;
            all.iter().for_each(|series| next.ends[*series].push(start + duration));
            for device in &job.series[all[0]].devices {
                next.free[*device] = start + duration;
                next.first[*device].get_or_insert(start);
                next.held[*device] += all.iter().map(|series| job.series[*series].takes).sum::<i64>();
            }
            self.visit(&next);
        }
    }

    /// When a device is free at the earliest: nothing starts before the last task did.
    fn free(&self, state: &Partial, device: DeviceId) -> Time {
        let is_left = |series: &SeriesId| state.ends[*series].len() < self.job.microbatches;
        let works = self.job.on_device[device].iter().any(is_left);
        if works { state.free[device].max(state.last) } else { state.free[device] }
    }

    /// How long a device takes at least, as the objective counts it.
    fn least(&self, state: &Partial, device: DeviceId) -> Time {
        let free = self.free(state, device);
        let from = match self.objective {
            Objective::Makespan => 0,
            Objective::LongestStage => state.first[device].unwrap_or(free),
        };
        free + self.work_left(state, device) - from
    }

    /// How long a device still works at least.
    fn work_left(&self, state: &Partial, device: DeviceId) -> Time {
        let left = |series: SeriesId| (self.job.microbatches - state.ends[series].len()) as Time;
        let of_series = |series: &SeriesId| left(*series) * self.job.series[*series].duration;
        let saved = |fusion: &&Fusion| self.job.series[fusion.first].devices.contains(&device);
        let saved = self.job.fusions.iter().filter(saved).map(|Fusion { first, second, duration }| {
            let halves = self.job.series[*first].duration + self.job.series[*second].duration;
            left(*first) * (halves - duration).max(0)
        });
        self.job.on_device[device].iter().map(of_series).sum::<Time>() - saved.sum::<Time>()
    }

    /// What the rest depends on: ends that are still needed, and how far each series is.
    fn key(&self, state: &Partial) -> (Vec<usize>, Partial) {
        let mut rest = state.clone();
        for (index, ends) in self.job.series.ids().zip(rest.ends.iter_mut()) {
            let used = self.job.series[index].feeds.iter().map(|(next, _)| state.ends[*next].len()).min();
            for end in ends.iter_mut().take(used.unwrap_or(usize::MAX)) {
                *end = 0;
            }
        }
        rest.free = rest.free.map(|device| self.free(state, device));
        if self.objective == Objective::Makespan {
            rest.first.fill(None);
        }
        (state.ends.iter().map(Vec::len).collect(), rest)
    }
}
