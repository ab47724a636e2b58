//! Easier problems with bounds that hold for the whole one: only some devices can do one thing at a time, the others do
//! everything at once. Few series are left, and what happened between them becomes a delay.

use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{Job, TaskSeries, Time};

/// A job on some devices of another one.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    pub job: Job,
    /// Which series of the other one it has.
    pub(crate) kept: Vec<usize>,
}

/// Keeps some devices of a job.
pub(crate) fn relax(job: &Job, devices: &[usize]) -> Relaxed {
    let n_series = job.series.len();
    let is_kept = |series: &TaskSeries| series.devices.iter().any(|device| devices.contains(device));
    let kept: Vec<usize> = (0..n_series).filter(|series| is_kept(&job.series[*series])).collect();
    let mut all: Vec<TaskSeries> = Vec::with_capacity(kept.len());
    for (place, index) in kept.iter().enumerate() {
        let series = &job.series[*index];
        let needs = (0..place).filter_map(|before| Some((before, delay(job, kept[before], *index, &kept)?))).collect();
        let place_of = |device: &usize| devices.iter().position(|kept| kept == device);
        let devices = series.devices.iter().filter_map(place_of).collect();
        all.push(TaskSeries { needs, feeds: Vec::new(), devices, ..series.clone() });
    }
    let place = |series: usize| kept.binary_search(&series).ok();
    let fusion = |one: &Fusion| Some(Fusion { first: place(one.first)?, second: place(one.second)?, ..*one });
    let capacity = devices.iter().map(|device| job.capacity[*device]).collect();
    let fusions = job.fusions.iter().filter_map(fusion).collect();
    let mut relaxed = Job::of_series(all, job.microbatches, capacity).with_fusions(fusions);
    // What is known of the other tasks was counted with these shares.
    relaxed.least = kept.iter().map(|series| job.least[*series]).collect();
    Relaxed { job: relaxed, kept }
}

/// The longest way from the end of one series' task to the start of another's through series that are
/// not kept, if there is any.
fn delay(job: &Job, from: usize, to: usize, kept: &[usize]) -> Option<Time> {
    let mut since: Vec<Option<Time>> = vec![None; to + 1];
    for index in from + 1..=to {
        let through = |(need, latency): &(usize, Time)| match *need {
            need if need == from => Some(*latency),
            need if need < from || kept.binary_search(&need).is_ok() => None,
            need => since[need].map(|time| time + job.least[need] + latency),
        };
        since[index] = job.series[index].needs.iter().filter_map(through).max();
    }
    since[to]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::v;

    #[test]
    fn what_is_left_out_becomes_a_delay() {
        let job = v(3, 4, 2, [2, 3, 1], 10);
        let Relaxed { job: relaxed, kept } = relax(&job, &[0]);
        // F0, F5, B5, W5, B0, W0 of device 0; four forwards and four backwards run elsewhere,
        // behind four hops each way.
        assert_eq!(kept, [0, 5, 6, 7, 16, 17]);
        assert_eq!(relaxed.series[1].needs, [(0, 4 * 2 + 4 * 10)]);
        assert_eq!(relaxed.series[4].needs.last(), Some(&(2, 4 * 3 + 4 * 10)));
    }
}
