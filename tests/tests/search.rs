//! What the search finds: judged by the ordinary checker, by a replay, and on small jobs by all
//! schedules that there are.

use pipe_compiler::{Compilation, Request};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, Mention, Orders, SeriesId, Time};
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::{Units, parse_decimal};
use pipe_search::driver::run::Prepared;
use pipe_search::exact::proof;
use pipe_search::{Options, Progress, search};
use pipe_syntax::source::Sources;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases::{compiled, no_files, prepared};
use pipe_tests::exhaustive::shortest_below;
use pipe_tests::jobs::{Stages, random_job, replay};
use pipe_tests::schedules::Dice;
use pipe_tests::slice::{drawn, slice};
use pipe_tests::team::{Team, team};

const fn options(objective: Objective, rounds: u32) -> Options {
    Options { objective, seed: 1, rounds }
}

fn found(job: &Job, rounds: u32, team: &Team) -> Progress {
    let found = search(job, 0, &(), options(Objective::Makespan, rounds), team, &mut |_| ());
    found.expect("one microbatch after the other fits")
}

/// A standard schedule as a target: devices, microbatches, costs of `F`, `B`, `W` and between devices, units of memory.
#[derive(Clone, Copy, Debug)]
struct Target {
    name: &'static str,
    sizes: (usize, usize),
    costs: [Time; 4],
    memory: &'static str,
    /// What `BW` takes, if not as long as `B` and `W`.
    both: Option<Time>,
}

impl Target {
    fn request(self) -> Request {
        let [f, b, w, c] = self.costs;
        let mut request = request(&[("devices", self.sizes.0 as i64), ("microbatches", self.sizes.1 as i64)]);
        let both = self.both.unwrap_or(b + w);
        request.costs = Some(StageCosts::parse(&format!("F={f},B={b},W={w},BW={both},comm={c}")).expect("well-formed"));
        request.memory = Some(MemoryLimit::of_all(Units(parse_decimal(self.memory).expect("well-formed"))));
        request
    }

    fn prepared(self, objective: Objective) -> Prepared {
        let text = stdlib::schedule(self.name).expect("a standard schedule");
        prepared(&format!("std:{}", self.name), text, &self.request(), objective)
    }

    /// The length of a standard schedule for the same costs and memory, if it fits.
    fn standard(self, name: &'static str) -> Option<Compilation> {
        let compilation = compiled(&format!("std:{name}"), stdlib::schedule(name)?, &self.request());
        compilation.report.ok.then_some(compilation)
    }
}

const fn target(name: &'static str, sizes: (usize, usize), costs: [Time; 4], memory: &'static str) -> Target {
    Target { name, sizes, costs, memory, both: None }
}

/// Standard schedules by placement.
const LINE: &[&str] = &["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
const V: &[&str] = &["1f1b_v", "v_flex", "v_half", "v_min", "v_zb", "zb_v", "dualpipe_v"];
const TURNS: &[&str] = &["interleaved_1f1b", "looped_bfs", "grouped_interleaved", "interleaved_zb"];

/// Targets, with the standard schedules that have the same placement.
fn targets() -> Vec<(Target, &'static [&'static str])> {
    vec![
        (target("1f1b", (4, 8), [1, 1, 1, 0], "3"), LINE),
        (target("zb_h1", (4, 6), [3, 4, 2, 1], "4"), LINE),
        (target("zb_h2", (3, 7), [5, 5, 3, 1], "6"), LINE),
        (target("gpipe", (2, 5), [1, 2, 0, 0], "1"), LINE),
        (target("v_half", (4, 8), [1, 2, 1, 0], "2"), V),
        (target("zb_v", (3, 6), [2, 3, 1, 1], "3"), V),
        (target("v_min", (4, 30), [2, 2, 1, 0], "2"), V),
        (target("interleaved_1f1b", (4, 8), [2, 2, 1, 1], "6.5"), TURNS),
        (Target { both: Some(17), ..target("1f1b", (4, 16), [10, 10, 10, 1], "4") }, LINE),
        (Target { both: Some(5), ..target("zb_v", (4, 10), [2, 3, 3, 0], "4") }, V),
        (Target { both: Some(3), ..target("1f1b_v", (3, 40), [2, 2, 2, 0], "3") }, V),
        (Target { both: Some(7), ..target("zb_h1", (3, 6), [2, 3, 2, 0], "3") }, LINE),
    ]
}

/// Orders of a source as series, and fused backwards as fusions, where the job has any.
fn series_of(job: &Job, compilation: &Compilation) -> Orders {
    let schedule = &compilation.analysis.as_ref().expect("it was accepted").schedule;
    let series = |kind, task: &Task| {
        let is_it = |id: &SeriesId| job.series[*id].kind == kind && job.series[*id].stage == task.stage;
        job.series.ids().find(is_it).expect("a series of the job")
    };
    let of_task = |task: &Task| match task.kind {
        TaskKind::Backward => {
            let input = series(TaskKind::BackwardInput, task);
            match job.fusion_from(input) {
                Some(fusion) => vec![Mention::Fusion(fusion)],
                None => [input, series(TaskKind::BackwardWeight, task)].map(Mention::Series).to_vec(),
            }
        }
        kind => vec![Mention::Series(series(kind, task))],
    };
    schedule.orders.iter().map(|order| order.iter().flat_map(|one| of_task(&one.task)).collect()).collect()
}

#[test]
fn what_is_found_is_accepted_as_long_as_stated_and_no_longer_than_standard_schedules() {
    for (target, standard) in slice(12, targets()) {
        for objective in [Objective::Makespan, Objective::LongestStage] {
            let prepared = target.prepared(objective);
            let found = prepared.search(options(objective, 1), &team(1, 30), &mut |_| ()).expect("it fits");
            let (source, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
            let figures = &compilation.report.figures;
            assert!(compilation.report.ok, "{target:?}: {:?}\n{source}", compilation.diagnostics);

            let Stages { devices, durations, latency, .. } = alike(&prepared.problem.job, target);
            let capacity = prepared.problem.job.capacity.to_vec();
            let job = Stages { devices, durations, latency, microbatches: target.sizes.1, capacity }.job();
            let (makespan, peaks) = replay(&job, &series_of(&job, &compilation)).expect("the order can run");
            assert_eq!(figures.makespan, Some(makespan as f64), "{target:?}\n{source}");
            let stages_per_device = job.on_device[DeviceId(0)].len() as f64 / 3.0;
            let peak = peaks.iter().max().map(|peak| *peak as f64 / stages_per_device);
            assert_eq!(figures.peak_activation, peak, "{target:?}\n{source}");

            let length = |compilation: &Compilation| {
                let figures = &compilation.report.figures;
                if objective == Objective::Makespan { figures.makespan } else { figures.longest_stage }
            };
            let own = prepared.problem.ticks(found.length).0 as f64 / 1e6;
            assert!(length(&compilation).is_some_and(|length| length <= own), "{target:?}\n{source}");
            assert!(found.bound <= found.length);
            for name in standard {
                let other = target.standard(name).and_then(|found| length(&found));
                assert!(other.is_none_or(|other| own <= other), "{name} is shorter than {own}: {other:?}, {target:?}");
            }
        }
    }
}

/// The stages of a target, from nothing but its costs and the places of its forwards.
fn alike(job: &Job, target: Target) -> Stages {
    let forwards = job.series.iter().filter(|series| series.kind == TaskKind::Forward);
    let devices: Vec<usize> = forwards.map(|series| series.devices[0].index()).collect();
    let [f, b, w, latency] = target.costs;
    let durations: Vec<Time> = [f, b, w].into_iter().chain(target.both).collect();
    Stages::alike(&devices, &durations, latency, target.sizes.1, 0)
}

/// Stages on two devices, so few that all schedules can be looked at.
fn small_jobs() -> Vec<Stages> {
    let mut all = Vec::new();
    for (durations, latency) in [
        (&[1, 1, 1][..], 0),
        (&[1, 2, 1], 0),
        (&[5, 6, 4], 1),
        (&[2, 1, 3], 2),
        (&[3, 0, 1], 1),
        (&[1, 2], 0),
        (&[2, 3], 3),
    ] {
        for memory in 1..=2 {
            for microbatches in [1, 2, 3] {
                all.push(Stages::alike(&[0, 1], durations, latency, microbatches, memory));
            }
            for microbatches in [1, 2] {
                all.push(Stages::alike(&[0, 1, 1, 0], durations, latency, microbatches, memory + 1));
                all.push(Stages::alike(&[0, 1, 0], durations, latency, microbatches, memory + 1));
            }
        }
    }
    let slow = Stages::alike(&[0, 1, 1, 0], &[2, 2, 1], 1, 2, 3);
    let durations = vec![vec![2, 2, 1], vec![3, 1, 4], vec![1, 5, 1], vec![6, 2, 2]];
    all.push(Stages { durations, capacity: vec![3, 2], ..slow.clone() });
    all.push(Stages { durations: vec![vec![2, 2, 1], vec![3, 3], vec![4, 1], vec![1, 1, 1]], ..slow });
    all
}

#[test]
fn proofs_and_bounds_agree_with_all_schedules_of_small_jobs() {
    for stages in small_jobs() {
        is_solved(&stages.job(), 3, 120);
    }
}

/// Searches a job so small that it must be proved that nothing is shorter, and looks at all
/// schedules. Returns the length.
fn is_solved(job: &Job, rounds: u32, patience: usize) -> Time {
    let found = found(job, rounds, &team(1, patience));
    let (length, _) = replay(job, &found.orders).expect("the order can run");
    assert_eq!(length, found.length, "{job:?}");
    assert_eq!(
        shortest_below(job, Objective::Makespan, length + 1),
        Some(length),
        "found {length}, at least {}: {job:?}",
        found.bound
    );
    assert_eq!(found.bound, length, "is not proved: {job:?}");
    for (name, bound) in proof::of_makespan(job, length + 1, 3_000) {
        assert!(bound <= length, "{length} is said to be {bound} at least, {name}: {job:?}");
    }
    length
}

#[test]
fn proofs_agree_with_all_schedules_where_backwards_may_be_in_one_piece_or_in_two() {
    let (mut mixed, mut all) = (0, 0);
    for durations in slice(5, [[2, 2, 2, 3], [5, 4, 4, 7], [3, 5, 1, 5], [2, 1, 4, 3], [2, 4, 2, 3], [1, 0, 2, 1]]) {
        for (devices, microbatches, memory) in
            [(&[0, 1][..], 3, 1), (&[0, 1], 3, 2), (&[0, 1, 1, 0], 2, 3), (&[0, 1, 0], 2, 2), (&[0, 1, 2], 2, 2)]
        {
            let stages = Stages::alike(devices, &durations, 1, microbatches, memory);
            let length = is_solved(&stages.job(), 4, 400);
            let of_form = |at_once| shortest_below(&stages.of_form(at_once).job(), Objective::Makespan, length + 1);
            mixed += usize::from(of_form(false).is_none() && of_form(true).is_none());
            all += 1;
        }
    }
    assert!(mixed > drawn(1, 4), "of {all}, {mixed} have a best schedule with backwards of both forms");
}

#[test]
fn proofs_and_bounds_agree_with_all_schedules_of_random_jobs() {
    let (mut dice, mut all) = (Dice(5), 0);
    while all < 100 {
        let job = random_job(&mut dice);
        let job = job.with_microbatches(job.microbatches.min(3));
        if job.n_tasks() <= 18 {
            is_solved(&job, 3, 40);
            all += 1;
        }
    }
}

/// Stages of which each has its own durations, memory and place, with backwards of both forms.
fn random_stages(dice: &mut Dice) -> Job {
    let n_devices = 1 + dice.below(3);
    let devices: Vec<usize> = (0..1 + dice.below(3)).map(|_| dice.below(n_devices)).collect();
    let durations = devices.iter().map(|_| {
        let [forward, input, weight] = [5, 5, 4].map(|most| dice.below(most) as Time);
        vec![forward, input, weight, dice.below((input + weight) as usize + 2) as Time]
    });
    let durations = durations.collect();
    let stages = Stages {
        durations,
        devices,
        latency: dice.below(3) as Time,
        microbatches: 1 + dice.below(3),
        capacity: vec![0; n_devices],
    };
    let mut job = stages.job();
    // What `F` saves for `B` and for `W`, and what `B` leaves for `W`.
    let saved: Vec<[i64; 3]> = stages.devices.iter().map(|_| [2, 3, 4].map(|most| dice.below(most) as i64)).collect();
    for series in job.series.iter_mut() {
        let [for_input, for_weight, deferred] = saved[series.stage.index()];
        series.takes = match series.kind {
            TaskKind::Forward => for_input + for_weight,
            TaskKind::BackwardInput => deferred - for_input,
            _ => -for_weight - deferred,
        };
    }
    for device in job.capacity.ids() {
        let takes = job.on_device[device].iter().map(|series| job.series[*series].takes.max(0)).sum::<i64>();
        job.capacity[device] = takes + dice.below(4) as i64;
        job.most[device] = job.capacity[device];
    }
    job
}

#[test]
fn proofs_agree_with_all_schedules_of_random_stages_with_backwards_of_both_forms() {
    let (mut dice, mut all) = (Dice(9), 0);
    while all < drawn(8, 60) {
        let job = random_stages(&mut dice);
        if job.n_tasks() <= 14 {
            is_solved(&job, 4, 300);
            all += 1;
        }
    }
}

#[test]
fn equal_seeds_give_equal_sources_whatever_the_threads() {
    let long = target("1f1b", (4, 40), [3, 4, 2, 1], "3");
    for target in slice(2, [Target { both: Some(5), ..long }, long, target("v_half", (3, 6), [1, 2, 1, 1], "2")]) {
        let prepared = target.prepared(Objective::Makespan);
        let source = |threads, seed| {
            let options = Options { seed, ..options(Objective::Makespan, 1) };
            let found = prepared.search(options, &team(threads, 40), &mut |_| ()).expect("it fits");
            prepared.finish(&found, &mut Sources::default(), &no_files).0
        };
        let alone = source(1, 7);
        assert_eq!(alone, source(2, 7));
        assert_eq!(alone, source(2, 7));
    }
}

#[test]
fn without_time_the_targets_own_order_is_the_answer_if_it_fits() {
    for (target, _) in targets() {
        let prepared = target.prepared(Objective::Makespan);
        let found = prepared.search(options(Objective::Makespan, 8), &team(1, 0), &mut |_| ()).expect("one is known");
        let (source, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
        assert!(compilation.report.ok, "{target:?}\n{source}");
    }
    // Nothing standard fits, and the step is long.
    let tight = target("v_half", (8, 64), [1, 2, 1, 0], "1").prepared(Objective::Makespan);
    let found = tight.search(options(Objective::Makespan, 8), &team(1, 0), &mut |_| ()).expect("one after the other");
    assert!(tight.problem.job.fits(&found.orders));
}

/// Nothing is shorter than V-Flex where all tasks take as long, for any memory from V-Min's to
/// V-ZB's, odd or even, and with transfers that take as long as some tasks.
#[test]
fn a_v_at_unit_cost_is_solved_before_the_first_round() {
    let cases = [
        (4, 5, "2.5", 0),
        (5, 7, "3.5", 0),
        (6, 12, "6", 0),
        (8, 9, "4.5", 0),
        (8, 13, "6.5", 0),
        (10, 8, "4", 0),
        (12, 17, "8.5", 0),
        (16, 20, "10", 0),
        (20, 39, "19.5", 0),
        (4, 9, "4.5", 1),
        (5, 14, "7", 2),
    ];
    for (p, k, memory, hop) in slice(3, cases) {
        let half = p + (p - 1) * hop;
        let (m, costs) = (2 * half, [1, 1, 1, hop as Time]);
        let prepared = target("v_half", (p, m), costs, memory).prepared(Objective::Makespan);
        let found = prepared.search(options(Objective::Makespan, 0), &team(1, 60), &mut |_| ()).expect("it fits");
        let idle = (6 * half - 3 * k).max(3 * half - k) - 1;
        let length = prepared.problem.ticks(found.length).0 / 1_000_000;
        assert_eq!((length as usize, found.bound), (6 * m + idle, found.length), "{p} {k} {hop}");
    }
}

#[test]
fn reports_only_get_shorter_and_bounds_only_longer() {
    let prepared = target("v_half", (4, 8), [1, 2, 1, 0], "2").prepared(Objective::Makespan);
    let mut reports: Vec<Progress> = Vec::new();
    let found = prepared.search(options(Objective::Makespan, 2), &team(1, 60), &mut |now| reports.push(now.clone()));
    assert!(reports.len() > 1, "{reports:?}");
    for pair in reports.windows(2) {
        assert!(pair[1].length < pair[0].length && pair[1].bound >= pair[0].bound.min(pair[1].length));
    }
    assert_eq!(reports.last().map(|last| last.length), found.map(|found| found.length));
}

#[test]
fn random_jobs_keep_their_dependencies_and_memory() {
    let (mut dice, mut improved) = (Dice(4), 0);
    let cases = drawn(10, 120);
    for case in 0..cases {
        let job = random_job(&mut dice);
        let found = found(&job, 1, &team(1, 12));
        let (length, _) = replay(&job, &found.orders).unwrap_or_else(|error| panic!("{case}: {error}\n{job:?}"));
        assert_eq!(length, found.length, "{case}: {job:?}");
        let (longest, _) = replay(&job, &job.in_turn()[0]).expect("one microbatch after the other can run");
        assert!(found.bound <= length && length <= longest, "{case}: {job:?}");
        improved += usize::from(length < longest);
    }
    assert!(improved > cases / 2, "{improved}");
}

/// V-Half does not fit in these bytes, but other standard schedules of the same places do.
const SHORT_OF_BYTES: &str = "import std.models.gpt

pipeline short {
    model gpt(vocab = 256, hidden = 128, heads = 4, blocks = 8, sequence = 128, rows = 4)
    devices 4 memory 27MiB
    microbatches 8
    schedule v_half
}
";

#[test]
fn standard_schedules_that_fit_in_bytes_come_before_one_microbatch_after_the_other() {
    let prepared = prepared("short.pipe", SHORT_OF_BYTES, &Request::default(), Objective::Makespan);
    let found = prepared.search(options(Objective::Makespan, 0), &team(1, 30), &mut |_| ()).expect("something");
    let fits = |other: &Progress| prepared.finish(other, &mut Sources::default(), &no_files).1.report.ok;
    let first = |all: Vec<Progress>| all.into_iter().find(fits).expect("one microbatch after the other fits").length;
    let all = prepared.all_instead_of(&found);
    assert!(all.is_sorted_by_key(|other| other.length));
    let (standard, in_turn) = (first(all), first(prepared.instead_of(&found)));
    assert!(2 * standard < in_turn, "{standard} beside {in_turn}");
}
