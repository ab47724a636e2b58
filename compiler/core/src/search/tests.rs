//! Small cases whose best lengths are known.

use super::job::{Job, Lane, Time};
use super::*;
use crate::dependencies::SCHEDULED;
use pipe_ir::ids::StageId;

/// One thread, as long as it takes.
struct Alone;

impl Workers for Alone {
    fn go_on(&self) -> bool {
        true
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(work);
    }
}

/// Stages on devices, with split backwards; durations of `F`, `B` and `W`, and a latency.
pub(super) fn staged(place: &[usize], m: usize, capacity: i64, costs: [Time; 3], latency: Time) -> Job {
    let n = place.len();
    let hop = |one: usize, other: usize| if place[one] == place[other] { 0 } else { latency };
    let lane = |kind: usize, stage: usize, needs: Vec<(usize, Time)>| Lane {
        kind: SCHEDULED[kind],
        stage: StageId::from_index(stage),
        devices: vec![place[stage]],
        duration: costs[kind],
        takes: [1, 0, -1][kind],
        needs,
        feeds: Vec::new(),
    };
    let mut lanes: Vec<Lane> = Vec::new();
    for stage in 0..n {
        lanes.push(lane(
            0,
            stage,
            stage.checked_sub(1).map(|before| (before, hop(before, stage))).into_iter().collect(),
        ));
    }
    for stage in (0..n).rev() {
        let own = lanes.len();
        let after = (stage + 1 < n).then(|| (own - 2, hop(stage, stage + 1)));
        lanes.push(lane(1, stage, [(stage, 0)].into_iter().chain(after).collect()));
        lanes.push(lane(2, stage, vec![(own, 0)]));
    }
    Job::of_lanes(lanes, m, vec![capacity; place.iter().max().map_or(0, |last| last + 1)])
}

/// A V of `2 * p` stages on `p` devices.
pub(super) fn v(p: usize, m: usize, capacity: i64, costs: [Time; 3], latency: Time) -> Job {
    let place: Vec<usize> = (0..2 * p).map(|stage| stage.min(2 * p - 1 - stage)).collect();
    staged(&place, m, capacity, costs, latency)
}

/// A V whose backwards may run at once: durations of `F`, `B`, `W` and `BW`.
pub(super) fn fusing(p: usize, m: usize, capacity: i64, [f, b, w, both]: [Time; 4], latency: Time) -> Job {
    let job = v(p, m, capacity, [f, b, w], latency);
    let fusions = job.backwards(|_| true, |_| both);
    job.with_fusions(fusions)
}

fn found(job: &Job, rounds: u32) -> Progress {
    let options = Options { objective: Objective::Makespan, seed: 1, rounds };
    search(job, 0, &(), options, &Alone, &mut |_| ()).expect("something fits")
}

#[test]
fn small_cases_are_solved_and_proved() {
    let line: Vec<usize> = (0..4).collect();
    let cases = [
        (staged(&line, 8, 3, [1, 1, 1], 0), 31),
        (v(4, 8, 4, [1, 1, 1], 0), 59),
        (v(4, 8, 2, [1, 1, 1], 0), 101),
        (v(4, 8, 6, [1, 1, 1], 0), 53),
    ];
    for (job, length) in cases {
        let found = found(&job, 3);
        assert_eq!((found.length, found.bound), (length, length));
    }
}

/// Counts how often it is asked, and knows nothing.
#[derive(Default)]
struct Asked(std::sync::atomic::AtomicUsize);

impl Known for Asked {
    fn own(&self) -> Vec<job::Orders> {
        Vec::new()
    }

    fn count(&self) -> usize {
        20
    }

    fn orders(&self, _: usize, _: usize) -> Vec<job::Orders> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Vec::new()
    }
}

/// Nobody, who has no time.
struct Nobody;

impl Workers for Nobody {
    fn go_on(&self) -> bool {
        false
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        Alone.each(n, work);
    }
}

#[test]
fn standard_schedules_are_asked_for_as_far_as_there_is_time() {
    let options = Options { objective: Objective::Makespan, seed: 1, rounds: 0 };
    let job = v(2, 40, 2, [1, 1, 1], 0);
    let calls = |workers: &dyn Workers| {
        let asked = Asked::default();
        let found =
            search(&job, 0, &asked, options, workers, &mut |_| ()).expect("one microbatch after the other fits");
        assert!(job.fits(&found.orders));
        asked.0.into_inner()
    };
    // Each for a short step, and then for the long one.
    assert_eq!((calls(&Nobody), calls(&Alone)), (0, 40));
}
