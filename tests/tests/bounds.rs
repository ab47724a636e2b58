//! Bounds and proofs of every kind, each by itself, against all schedules of small random steps.

use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, TaskSeries, Time};
use pipe_schedule::policy::recompute::recomputing;
use pipe_search::exact::proof;
use pipe_search::{Options, Problem, search};
use pipe_tests::cases::report;
use pipe_tests::exhaustive::shortest_below;
use pipe_tests::jobs::replay;
use pipe_tests::schedules::{Dice, Size};
use pipe_tests::slice::{drawn, takes_all};
use pipe_tests::steps::random_step;
use pipe_tests::team::team;

/// Steps with more tasks have too many schedules.
const TASKS: usize = 14;

/// Seeds of steps for which a bound was too high once, where `B` takes memory that `BW` does not.
const KNOWN: [u64; 4] = [870, 1080, 1352, 1835];

/// More than one task after the other takes.
fn limit(job: &Job) -> Time {
    let longest = |series: &TaskSeries| series.needs.iter().map(|(_, latency)| *latency).max().unwrap_or(0);
    job.series.iter().map(|series| series.duration + longest(series)).sum::<Time>() * job.microbatches as Time + 1
}

/// Bounds for an objective: before any search, by every kind of proof, and what the search says in the end.
fn bounds(step: &Problem, best: Time) -> Vec<(&'static str, Time)> {
    let (job, objective) = (&step.job, step.objective);
    let options = Options { objective, seed: 1, rounds: 1 };
    let found = search(job, step.bound, &(), options, &team(1, 20), &mut |_| ()).expect("something fits");
    assert!(found.length >= best, "{} is shorter than the shortest: {job:?}", found.length);
    let (makespan, _) = replay(job, &found.orders).expect("the order can run");
    assert!(makespan == found.length || objective == Objective::LongestStage, "{job:?}");
    let mut bounds = vec![("before the search", step.bound), ("after the search", found.bound)];
    match objective {
        Objective::Makespan => {
            let suppositions = [best, best + 1, best + 3, 2 * best + 4];
            bounds.extend(suppositions.into_iter().flat_map(|below| proof::of_makespan(job, below, 5_000)));
        }
        Objective::LongestStage => bounds.extend(proof::of_longest_stage(job)),
    }
    bounds
}

#[test]
fn no_bound_is_above_the_shortest_of_all_schedules() {
    let (mut failures, mut counts) = (Vec::new(), [0; 6]);
    for seed in (0..drawn(60, 600) as u64).chain(KNOWN) {
        let size = Size { devices: 3, stages: 4, microbatches: 3 };
        let mut step = random_step(size, &mut Dice(seed));
        if step.job.n_tasks() > TASKS {
            continue;
        }
        let mut is_open = false;
        for objective in [Objective::Makespan, Objective::LongestStage] {
            step.objective = objective;
            step.set_bound();
            let best = shortest_below(&step.job, objective, limit(&step.job)).expect("one task after the other fits");
            is_open |= step.bound < best;
            for (name, bound) in bounds(&step, best).into_iter().filter(|(_, bound)| *bound > best) {
                failures.push(format!("step {seed}, {name}: {objective:?} {best} is said to be {bound} at least"));
            }
        }
        let is_spread = step.job.series.iter().any(|series| series.devices.len() > 1);
        let (again, has_forms) = (recomputing(&step.schedule).contains(&true), !step.job.fusions.is_empty());
        let kinds = [true, is_open, is_spread, again, has_forms, is_spread && again && has_forms];
        counts.iter_mut().zip(kinds).for_each(|(count, is_one)| *count += usize::from(is_one));
    }
    report(&failures);
    let least = if takes_all() { [150, 20, 30, 80, 80, 12] } else { [25, 1, 5, 12, 12, 1] };
    let enough = counts.iter().zip(least).all(|(count, least)| *count >= least);
    assert!(enough, "too few steps of some kind: {counts:?}");
}
