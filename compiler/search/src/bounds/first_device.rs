//! A bound on the longest span: how long the device works at least on which every microbatch begins.
//!
//! All microbatches begin on one device, and their last backwards end there. Between its first
//! start and its last end, every other device does all that leads back to it. What does not lead
//! back, the `W` of other devices, may come later, but for those whose memory the forwards need.

use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_schedule::dispatch::job::{Job, SeriesId, Time};

/// No schedule has a shorter longest span. Zero where microbatches begin in several places.
pub(crate) fn least_span(job: &Job) -> Time {
    let mut sources = job.series.iter().filter(|series| series.needs.is_empty());
    let (Some(source), None) = (sources.next(), sources.next()) else { return 0 };
    let Some(home) = source.devices.first() else { return 0 };
    let (heads, ways) = (job.heads(), ways_to(job, *home));
    let of_device = |all: &Vec<SeriesId>| {
        let back = || all.iter().filter_map(|series| Some((*series, ways[*series]?)));
        let head = back().map(|(series, _)| heads[series]).min()?;
        let way = back().map(|(_, way)| way).min()?;
        let work: Time = back().map(|(series, _)| job.least[series]).sum();
        Some(head + work * job.microbatches as Time + way)
    };
    let spans = job
        .on_device
        .iter()
        .zip(&job.capacity)
        .filter_map(|(all, capacity)| Some(of_device(all)? + releases(job, all, &ways, *capacity)));
    spans.max().unwrap_or(0)
}

/// The longest way from the end of each series' task to the end of the same microbatch's last task
/// on a device, if there is one.
fn ways_to(job: &Job, home: DeviceId) -> IndexVec<SeriesId, Option<Time>> {
    let mut ways: IndexVec<SeriesId, Option<Time>> = job.series.map(|_| None);
    for (index, series) in job.series.iter_ids().rev() {
        let next = |(next, latency): &(SeriesId, Time)| Some(latency + job.least[*next] + ways[*next]?);
        let own = series.devices.contains(&home).then_some(0);
        ways[index] = series.feeds.iter().filter_map(next).max().max(own);
    }
    ways
}

/// Work that does not lead back, and that a device must do before its last forward for the memory.
fn releases(job: &Job, all: &[SeriesId], ways: &IndexVec<SeriesId, Option<Time>>, capacity: i64) -> Time {
    let takes = |series: &&SeriesId| job.series[**series].takes > 0 && ways[**series].is_some();
    let taken: i64 = all.iter().filter(takes).map(|series| job.series[*series].takes).sum();
    let back: i64 =
        all.iter().filter(|series| ways[**series].is_some()).map(|series| job.series[*series].takes.min(0)).sum();
    let late = || all.iter().filter(|series| ways[**series].is_none() && job.series[**series].takes < 0);
    let most = late().map(|series| -job.series[*series].takes).max().unwrap_or(0);
    let least = late().map(|series| job.least[*series]).min().unwrap_or(0);
    let missing = (taken + back) * job.microbatches as i64 - capacity;
    if most == 0 || missing <= 0 { 0 } else { (missing + most - 1) / most * least }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::staged;

    #[test]
    fn with_one_stage_per_device_the_last_one_counts() {
        for (p, m, limit) in [(4, 8, 3), (4, 12, 8), (6, 6, 6)] {
            let place: Vec<usize> = (0..p).collect();
            let [f, b, w, c] = [5, 7, 3, 2];
            let job = staged(&place, m, limit, [f, b, w], c);
            let (p, m) = (p as Time, m as Time);
            let last = (p - 1) * (f + c) + m * (f + b) + (m - limit).max(0) * w + (p - 1) * (b + c) + w;
            assert_eq!(least_span(&job), last.max(m * (f + b + w)));
        }
    }

    #[test]
    fn nobody_knows_where_microbatches_begin_in_two_places() {
        let mut job = staged(&[0, 1], 4, 2, [1, 1, 1], 0);
        job.series[SeriesId(1)].needs.clear();
        assert_eq!(least_span(&job), 0);
    }
}
