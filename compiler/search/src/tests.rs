//! Small cases whose best lengths are known.

use super::*;
use crate::heuristics::anneal::{Course, anneal};
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::estimate::Moved;
use pipe_schedule::dispatch::job::{self, Job};
use pipe_schedule::dispatch::plan::{Move, Plan};
use pipe_schedule::dispatch::random::Random;
pub(crate) use pipe_schedule::dispatch::samples::{fusing, staged, v};

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

#[test]
fn no_swap_of_neighbours_makes_a_schedule_shorter_than_estimated() {
    let job = v(3, 5, 3, [2, 3, 1], 1);
    let in_turn = job.in_turn().swap_remove(0);
    for objective in [Objective::Makespan, Objective::LongestStage] {
        let mut random = Random::new(7);
        let (mut plan, first) = Plan::new(&job, objective, &in_turn).expect("no cycle");
        let course = Course { tries: 400, heat: 3, frozen: None };
        let (_, orders) = anneal(&mut plan, first, &course, &mut random, &mut || true);
        let (mut tried, mut exact) = (0, 0);
        for device in orders.ids() {
            for from in 0..orders[device].len() - 1 {
                let (mut plan, _) = Plan::new(&job, objective, &orders).expect("no cycle");
                plan.note_tails();
                let swap = Move { device, from, to: from + 1 };
                if !plan.may_move(swap) {
                    continue;
                }
                let estimated = plan.estimate(swap, &mut Moved::default());
                plan.shift(swap);
                let Some(length) = plan.time() else { continue };
                // The first start of a device moves the measure of its longest span itself.
                assert!(estimated <= length.length || objective == Objective::LongestStage && from == 0);
                tried += 1;
                exact += usize::from(estimated == length.length);
            }
        }
        assert!(tried > 20 && exact > 5, "{tried} {exact}");
    }
}
