//! Bounds by windows: when each task can start at the earliest, and how much must follow its end.
//!
//! Suppose that a schedule is shorter than some length. Whatever runs on one device keeps to its
//! memory and does one thing at a time; a complete search of that device alone ([`relax`]) says how
//! early each of its tasks can start. What other devices do with the same microbatches then starts
//! later, too, and they are searched again; the same holds backwards in time, from the end of the
//! step. A device for which no schedule is left shows that none is shorter than supposed. Where
//! single devices say nothing new, pairs of them may. (For job shops: Carlier and Pinson,
//! Management Science 35, 1989.)

use crate::bounds::relaxation::relax;
use crate::exact::beam::{Beam, explore_within};
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};
use pipe_schedule::dispatch::job::{Job, SeriesId, TaskId, Time};

/// The windows of all tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Windows {
    heads: IndexVec<TaskId, Time>,
    tails: IndexVec<TaskId, Time>,
    /// By series: the tail of all its microbatches, if it is the same.
    same: IndexVec<SeriesId, Option<Time>>,
}

impl Windows {
    /// What follows from one microbatch alone, for the ends of tasks only: schedules are built from their begin.
    pub(crate) fn wide(job: &Job) -> Self {
        let tails = job.tails().iter().flat_map(|tail| vec![*tail; job.microbatches]).collect();
        Self::new(job.microbatches, vec![0; job.n_tasks()].into(), tails)
    }

    fn new(microbatches: usize, heads: IndexVec<TaskId, Time>, tails: IndexVec<TaskId, Time>) -> Self {
        let same = |tails: &[Time]| tails.first().filter(|first| tails.iter().all(|tail| tail == *first)).copied();
        let same = tails.chunks(microbatches.max(1)).map(same).collect();
        Self { heads, tails, same }
    }

    /// No task starts before this.
    pub(crate) fn head(&self, task: TaskId) -> Time {
        self.heads[task]
    }

    /// What follows the end of a task at least.
    pub(crate) fn tail(&self, task: TaskId) -> Time {
        self.tails[task]
    }

    /// The tail of all tasks of a series, if it is the same.
    pub(crate) fn same_tail(&self, series: SeriesId) -> Option<Time> {
        self.same[series]
    }

    /// Those of some series of a job.
    fn of_series(&self, job: &Job, kept: &IndexVec<SeriesId, SeriesId>) -> Self {
        let tasks =
            || kept.iter().flat_map(|series| job.all_microbatches().map(|microbatch| job.task(*series, microbatch)));
        let of = |all: &IndexVec<TaskId, Time>| tasks().map(|task| all[task]).collect();
        Self::new(job.microbatches, of(&self.heads), of(&self.tails))
    }
}

/// A supposition, as far as it was followed: in one direction of time, and in the other.
struct Supposed<'a> {
    jobs: [&'a Job; 2],
    /// By direction: no schedule that is as short as supposed starts the task earlier.
    heads: [IndexVec<TaskId, Time>; 2],
    beam: Beam,
    /// No schedule is shorter.
    bound: Time,
}

/// No schedule is shorter than what this returns, which is `beam.below` if all goes well. Looks at
/// devices in pairs only if that is wanted. `reversed` is the job with time running backwards.
pub(crate) fn refute(job: &Job, reversed: &Job, beam: Beam, in_pairs: bool, go_on: &mut dyn FnMut() -> bool) -> Time {
    let jobs = [job, reversed];
    let heads = jobs.map(|job| vec![0; job.n_tasks()].into());
    let mut supposed = Supposed { jobs, heads, beam, bound: 0 };
    (0..2).for_each(|direction| supposed.propagate(direction));
    let all = || job.capacity.ids();
    let alone: Vec<Vec<DeviceId>> = all().rev().map(|device| vec![device]).collect();
    let pair = |apart: usize| all().rev().skip(apart).map(move |one| vec![one, DeviceId(one.0 + apart as u32)]);
    let pairs: Vec<Vec<DeviceId>> = if in_pairs { (1..all().len()).flat_map(pair).collect() } else { Vec::new() };
    // Backwards in time pairs have far more states: the `W` come first there, and in any order.
    let rounds = || alone.iter().flat_map(|one| [(0, one), (1, one)]).chain(pairs.iter().map(|pair| (0, pair)));
    loop {
        let mut is_new = false;
        for (direction, devices) in rounds() {
            if supposed.bound >= supposed.beam.below || !go_on() {
                return supposed.bound;
            }
            is_new |= supposed.look_at(direction, devices, go_on);
        }
        if !is_new {
            return supposed.bound;
        }
    }
}

impl Supposed<'_> {
    /// Searches some devices alone. Whether any task starts later for it.
    fn look_at(&mut self, direction: usize, devices: &[DeviceId], go_on: &mut dyn FnMut() -> bool) -> bool {
        let job = self.jobs[direction];
        let relaxed = relax(job, devices);
        let tails = self.heads[1 - direction].iter().rev().copied().collect();
        let windows =
            Windows::new(job.microbatches, self.heads[direction].clone(), tails).of_series(job, &relaxed.kept);
        let explored = explore_within(&relaxed.job, &windows, &self.beam, go_on);
        if !explored.complete {
            return false;
        }
        let least = explored.found.map_or(self.beam.below, |(length, _)| length);
        self.bound = self.bound.max(least.min(self.beam.below));
        if !job.fusions.is_empty() {
            // The n-th task of a series is not that of microbatch n, so its start says nothing of what needs it.
            return false;
        }
        let before = self.heads[direction].clone();
        for (task, earliest) in explored.earliest.iter_ids() {
            let (series, microbatch) = relaxed.job.of_task(task);
            let head = &mut self.heads[direction][job.task(relaxed.kept[series], microbatch)];
            *head = (*earliest).min(self.beam.below).max(*head);
        }
        self.propagate(direction);
        before != self.heads[direction]
    }

    /// Tasks start after those that they need, and after the one before them on their series.
    fn propagate(&mut self, direction: usize) {
        let (job, heads) = (self.jobs[direction], &mut self.heads[direction]);
        for (series, one) in job.series.iter_ids() {
            for microbatch in job.all_microbatches() {
                let task = job.task(series, microbatch);
                let end = |series, microbatch| heads[job.task(series, microbatch)] + job.least[series];
                let before = microbatch.0.checked_sub(1).map_or(0, |before| end(series, MicrobatchId(before)));
                let needs = one.needs.iter().map(|(need, latency)| end(*need, microbatch) + latency);
                heads[task] = needs.fold(heads[task].max(before), Ord::max);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{staged, v};

    fn least(job: &Job, below: Time, in_pairs: bool) -> Time {
        refute(job, &job.reversed(), Beam { width: 3_000, below, exact: true }, in_pairs, &mut || true)
    }

    #[test]
    fn devices_alone_say_more_where_each_knows_what_the_others_found() {
        // The work, warm-up and memory of single devices say 311; what is known to be optimal is 321.
        let job = v(4, 8, 4, [5, 6, 4], 0);
        assert_eq!(least(&job, 317, false), 317);
        assert!(least(&job, 322, false) <= 321);
    }

    #[test]
    fn no_bound_is_above_what_is_possible() {
        // All lengths are proved by looking at everything.
        let cases = [
            (staged(&[0, 1, 2, 3], 8, 3, [1, 1, 1], 0), 31),
            (v(4, 8, 4, [1, 1, 1], 0), 59),
            (v(4, 8, 2, [1, 1, 1], 0), 101),
            (v(2, 4, 2, [1, 1, 1], 0), 33),
        ];
        for (job, length) in cases {
            for below in [length + 1, length + 7] {
                assert!(least(&job, below, job.capacity.len() == 2) <= length);
            }
        }
    }
}
