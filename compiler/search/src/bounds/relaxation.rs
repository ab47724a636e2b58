//! Easier problems with bounds that hold for the whole one: only some devices can do one thing at a time, the others do
//! everything at once. Few series are left, and what happened between them becomes a delay.

use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{Job, SeriesId, TaskSeries, Time};

/// A job on some devices of another one.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    pub job: Job,
    /// Which series of the other one each of its own is.
    pub(crate) kept: IndexVec<SeriesId, SeriesId>,
}

/// Keeps some devices of a job.
pub(crate) fn relax(job: &Job, devices: &[DeviceId]) -> Relaxed {
    let is_kept = |series: &SeriesId| job.series[*series].devices.iter().any(|device| devices.contains(device));
    let kept: IndexVec<SeriesId, SeriesId> = job.series.ids().filter(is_kept).collect();
    let of_kept = |(place, index): (SeriesId, &SeriesId)| {
        let series = &job.series[*index];
        let before = kept.ids().take(place.index());
        let needs = before.filter_map(|before| Some((before, delay(job, kept[before], *index, &kept)?))).collect();
        let place_of = |device: &DeviceId| devices.iter().position(|kept| kept == device).map(DeviceId::from_index);
        let devices = series.devices.iter().filter_map(place_of).collect();
        TaskSeries { needs, feeds: Vec::new(), devices, ..series.clone() }
    };
    let all = kept.iter_ids().map(of_kept).collect();
    let place = |series: SeriesId| kept.binary_search(&series).ok().map(SeriesId::from_index);
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
fn delay(job: &Job, from: SeriesId, to: SeriesId, kept: &[SeriesId]) -> Option<Time> {
    let mut since: IndexVec<SeriesId, Option<Time>> = job.series.map(|_| None);
    for (index, series) in job.series.iter_ids().take(to.index() + 1).skip(from.index() + 1) {
        let through = |(need, latency): &(SeriesId, Time)| match *need {
            need if need == from => Some(*latency),
            need if need < from || kept.binary_search(&need).is_ok() => None,
            need => since[need].map(|time| time + job.least[need] + latency),
        };
        since[index] = series.needs.iter().filter_map(through).max();
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
        let Relaxed { job: relaxed, kept } = relax(&job, &[DeviceId(0)]);
        // F0, F5, B5, W5, B0, W0 of device 0; four forwards and four backwards run elsewhere,
        // behind four hops each way.
        assert!(kept.iter().map(|series| series.0).eq([0, 5, 6, 7, 16, 17]));
        assert_eq!(relaxed.series[SeriesId(1)].needs, [(SeriesId(0), 4 * 2 + 4 * 10)]);
        assert_eq!(relaxed.series[SeriesId(4)].needs.last(), Some(&(SeriesId(2), 4 * 3 + 4 * 10)));
    }
}
