//! A bound on the longest span: how long a device is idle at least before its first backward, and
//! after its last forward.
//!
//! Until the first backward comes back to a device, it can only run forwards, and no more of them
//! than its memory holds. After its last forward it only has backwards left, of no more
//! microbatches than its memory held. Both take as long as their microbatch is on its way through
//! the stages after it, so what the forwards, or the backwards, do not fill of that is idle time.

use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_schedule::dispatch::fusion::Part;
use pipe_schedule::dispatch::job::{Job, SeriesId, Time};

/// No schedule has a shorter longest span.
pub(crate) fn least_with_pauses(job: &Job) -> Time {
    job.on_device.ids().map(|device| of_device(job, device)).max().unwrap_or(0)
}

/// How long a device takes at least, from its first start to its last end.
fn of_device(job: &Job, device: DeviceId) -> Time {
    let all = &job.on_device[device];
    let work: Time = all.iter().map(|series| job.least[*series]).sum();
    let takes = |series: &SeriesId| job.parts[*series] == Part::Alone && job.series[*series].takes > 0;
    let (before, after) = (warm_up(job, device, takes), cool_down(job, device));
    // Where not all that takes memory can come before the first backward, some of it comes between both pauses.
    let taken: i64 = all.iter().filter(|series| takes(series)).map(|series| job.series[*series].takes).sum();
    let apart = taken * job.microbatches as i64 > job.capacity[device];
    work * job.microbatches as Time + if apart { before + after } else { before.max(after) }
}

/// Idle time from the first start until something starts that takes no memory.
fn warm_up(job: &Job, device: DeviceId, takes: impl Fn(&SeriesId) -> bool) -> Time {
    let all = &job.on_device[device];
    let takers = || all.iter().filter(|series| takes(series));
    let work =
        takers().map(|series| work_in(job.capacity[device], job.least[*series], job.series[*series].takes)).max();
    let work = work.map(|work| work.min(work_of_all(job, takers())));
    let ways: Vec<IndexVec<SeriesId, Option<Time>>> = takers().map(|series| ways_from(job, *series)).collect();
    let way = |series: &SeriesId| ways.iter().filter_map(|ways| ways[*series]).max().unwrap_or(0);
    let first = all.iter().filter(|series| !takes(series)).map(way).min().unwrap_or(0);
    (first - work.unwrap_or(0)).max(0)
}

/// Idle time from the end of what is followed by nothing but backwards on, until the last end.
fn cool_down(job: &Job, device: DeviceId) -> Time {
    let all = &job.on_device[device];
    let gives = |series: &SeriesId| job.series[*series].takes <= 0;
    // A task that is left comes with those of its microbatch that only wait for it.
    let work_of = |series: &SeriesId| {
        let fed = job.series[*series].feeds.iter().map(|(next, _)| *next);
        let is_last = |next: SeriesId| job.series[next].needs.len() == 1 && job.series[next].feeds.is_empty();
        let with = fed.filter(|next| all.contains(next) && gives(next) && is_last(*next));
        let (work, given) = std::iter::once(*series)
            .chain(with)
            .fold((0, 0), |(work, given), series| (work + job.least[series], given - job.series[series].takes));
        work_in(job.capacity[device], work, given)
    };
    let work = all.iter().filter(|series| gives(series)).map(work_of).max().unwrap_or(0);
    let work = work.min(work_of_all(job, all.iter().filter(|series| gives(series))));
    let way = |series: &SeriesId| {
        if job.parts[*series] != Part::Alone {
            // What runs at once with the other half may be the last.
            return 0;
        }
        let ways = ways_from(job, *series);
        let ends = all.iter().filter_map(|own| Some(ways[*own]? + job.least[*own]));
        ends.max().unwrap_or(0) - job.least[*series]
    };
    let last = all.iter().filter(|series| !gives(series)).map(way).min().unwrap_or(0);
    (last - work).max(0)
}

/// What all tasks of some series take.
fn work_of_all<'a>(job: &Job, all: impl Iterator<Item = &'a SeriesId>) -> Time {
    all.map(|series| job.least[*series]).sum::<Time>() * job.microbatches as Time
}

/// The most work in some memory of which each piece takes a part.
fn work_in(capacity: i64, work: Time, takes: i64) -> Time {
    let all = i128::from(capacity) * i128::from(work);
    if takes <= 0 { Time::MAX } else { Time::try_from(all / i128::from(takes)).unwrap_or(Time::MAX) }
}

/// The longest way from the start of a series' task to the start of others of the same microbatch.
fn ways_from(job: &Job, from: SeriesId) -> IndexVec<SeriesId, Option<Time>> {
    let mut ways: IndexVec<SeriesId, Option<Time>> = job.series.map(|_| None);
    ways[from] = Some(0);
    for (index, series) in job.series.iter_ids().skip(from.index() + 1) {
        let before = |(need, latency): &(SeriesId, Time)| Some(ways[*need]? + job.least[*need] + latency);
        ways[index] = series.needs.iter().filter_map(before).max();
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{staged, v};

    /// ZB-H1 is as short as that, whose memory is that of 1F1B.
    #[test]
    fn a_pipeline_waits_before_its_first_backward_and_after_its_last_forward() {
        for (p, m) in [(2, 4), (4, 8), (8, 24)] {
            let place: Vec<usize> = (0..p).collect();
            let [f, b, w, c] = [18522, 18086, 9337, 601];
            let job = staged(&place, m, p as i64, [f, b, w], c);
            let hops = p as Time - 1;
            let least = m as Time * (f + b + w) + hops * (b + 2 * c) + (hops * (f + 2 * c - w)).max(0);
            assert_eq!(least_with_pauses(&job), least);
        }
    }

    #[test]
    fn where_memory_holds_all_there_is_one_pause() {
        let job = staged(&[0, 1, 2], 2, 3, [1, 4, 1], 0);
        // Until the first backward comes back there are two forwards to run.
        assert_eq!(least_with_pauses(&job), 2 * 6 + (1 + 2 + 8 - 2));
        assert_eq!(least_with_pauses(&v(2, 4, 40, [1, 1, 1], 0)), 4 * 6);
    }
}
