//! Small jobs, for tests.

use super::job::{Job, SeriesId, TaskSeries, Time};
use crate::dependencies::SCHEDULED;
use pipe_ir::ids::{DeviceId, IndexVec, StageId};

/// Stages on devices, with split backwards; durations of `F`, `B` and `W`, and a latency.
pub fn staged(place: &[usize], m: usize, capacity: i64, costs: [Time; 3], latency: Time) -> Job {
    let n = place.len();
    let hop = |one: usize, other: usize| if place[one] == place[other] { 0 } else { latency };
    let series = |kind: usize, stage: usize, needs: Vec<(SeriesId, Time)>| TaskSeries {
        kind: SCHEDULED[kind],
        stage: StageId::from_index(stage),
        devices: vec![DeviceId::from_index(place[stage])],
        duration: costs[kind],
        takes: [1, 0, -1][kind],
        needs,
        feeds: Vec::new(),
    };
    let mut all = IndexVec::default();
    let mut last: Option<SeriesId> = None;
    for stage in 0..n {
        let before = last.map(|before| (before, hop(stage - 1, stage)));
        last = Some(all.push(series(0, stage, before.into_iter().collect())));
    }
    last = None;
    for stage in (0..n).rev() {
        let after = last.map(|after| (after, hop(stage, stage + 1)));
        let own = all.push(series(1, stage, [(SeriesId::from_index(stage), 0)].into_iter().chain(after).collect()));
        all.push(series(2, stage, vec![(own, 0)]));
        last = Some(own);
    }
    Job::of_series(all, m, vec![capacity; place.iter().max().map_or(0, |last| last + 1)].into())
}

/// A V of `2 * p` stages on `p` devices.
pub fn v(p: usize, m: usize, capacity: i64, costs: [Time; 3], latency: Time) -> Job {
    let place: Vec<usize> = (0..2 * p).map(|stage| stage.min(2 * p - 1 - stage)).collect();
    staged(&place, m, capacity, costs, latency)
}

/// A V whose backwards may run at once: durations of `F`, `B`, `W` and `BW`.
pub fn fusing(p: usize, m: usize, capacity: i64, [f, b, w, both]: [Time; 4], latency: Time) -> Job {
    let job = v(p, m, capacity, [f, b, w], latency);
    let fusions = job.backwards(|_| true, |_| both);
    job.with_fusions(fusions)
}
