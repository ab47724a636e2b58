//! Stages that live on several devices at once: their tasks are replayed by a program that shares
//! nothing with the compiler, and the placements of Tessel (HPCA 2024) are searched.

use pipe_compiler::{Compilation, Request, elaborate};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::bounds::lower_bound;
use pipe_schedule::check::check;
use pipe_schedule::check::memory::peaks;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::policy::activation::Held;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::{StageCosts, of_stages};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::simulate;
use pipe_schedule::units::Ticks;
use pipe_search::Options;
use pipe_search::driver::run::Prepared;
use pipe_syntax::source::Sources;
use pipe_tests::blocks::{certified, loaded, request};
use pipe_tests::cases::{self, expect, no_files, read, report, root};
use pipe_tests::schedules::{Dice, Size, analysis_as_it_runs, disorder, spread};
use pipe_tests::slice::slice;
use pipe_tests::steps::shares;
use pipe_tests::team::team;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn schedule_of(text: &str, devices: i64) -> Schedule {
    let found = elaborate::elaborate(&loaded(text), &request(&[("devices", devices)]).choice);
    found.unwrap_or_else(|found| panic!("{text}: {found:#?}")).schedule
}

#[test]
fn ranges_lists_and_branches_say_where_a_stage_lives() {
    for (place, expected) in [
        ("0..D", vec![vec![0, 1, 2, 3]; 3]),
        ("s..s + 2", vec![vec![0, 1], vec![1, 2], vec![2, 3]]),
        ("[3, 0]", vec![vec![0, 3]; 3]),
        ("[s, D - 1 - s, s]", vec![vec![0, 3], vec![1, 2], vec![1, 2]]),
        ("if s == 0 then 0..D else s - 1", vec![vec![0, 1, 2, 3], vec![0], vec![1]]),
        (
            "if s == 0 then if D > 3 then [1, 3] else 0 else if s == 1 then 2 else 0..2",
            vec![vec![1, 3], vec![2], vec![0, 1]],
        ),
        ("s..s + 1", vec![vec![0], vec![1], vec![2]]),
    ] {
        let text = format!("schedule x {{ stages 3 place s on {place} block every 99 {{ F[s] fill BW[s] fill }} }}");
        let placement = schedule_of(&text, 4).placement;
        let devices = |stage| placement.devices(stage, MicrobatchId(5)).iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(placement.stages().map(devices).collect::<Vec<_>>(), expected, "{place}");
    }
}

#[test]
fn the_next_microbatch_is_counted_on_each_device() {
    let text = "schedule x { stages 2 place s on 0..D order d { repeat M { F[0] F[1] BW[1] BW[0] } } }";
    let schedule = schedule_of(text, 3);
    assert_eq!((schedule.n_tasks(), schedule.orders[0].len()), (4 * 8, 4 * 8));
    assert!(schedule.orders.iter().all(|order| *order == schedule.orders[0]));
    assert!(check(&schedule).is_ok());
}

/// Costs that differ by stage and by link.
fn costs(n_stages: usize) -> Costs {
    let text = "F=2,B=3,W=1,comm=1,comm[0-1]=3,comm[1-2]=0.5,comm[0-3]=2";
    of_stages(&StageCosts::parse(text).expect("well-formed"), n_stages)
}

/// The kind of task that saves a stage's activations of a microbatch.
fn saves(schedule: &Schedule, stage: StageId, microbatch: MicrobatchId) -> TaskKind {
    let again = Task { kind: TaskKind::Recompute, stage, microbatch };
    let recomputes = schedule.orders.iter().flatten().any(|one| one.task == again);
    if recomputes { TaskKind::Recompute } else { TaskKind::Forward }
}

/// What a task needs, from nothing but the stage graph.
fn needs(schedule: &Schedule, ends: &BTreeMap<Task, Ticks>, task: Task) -> Option<Vec<Task>> {
    let of = |kind, stage| Task { kind, stage, ..task };
    let back = |stage| {
        let kinds = [TaskKind::Backward, TaskKind::BackwardInput];
        kinds.into_iter().map(|kind| of(kind, stage)).find(|task| ends.contains_key(task))
    };
    let needs: Option<Vec<Task>> = match task.kind {
        TaskKind::Forward => {
            let before = schedule.graph.edges().filter(|(_, to)| *to == task.stage);
            Some(before.map(|(from, _)| of(TaskKind::Forward, from)).collect())
        }
        TaskKind::Recompute => Some(vec![of(TaskKind::Forward, task.stage)]),
        TaskKind::BackwardWeight => Some(vec![of(TaskKind::BackwardInput, task.stage)]),
        _ => {
            let after = schedule.graph.edges().filter(|(from, _)| *from == task.stage);
            let own = Some(of(saves(schedule, task.stage, task.microbatch), task.stage));
            std::iter::once(own).chain(after.map(|(_, to)| back(to))).collect()
        }
    };
    needs.filter(|needs| needs.iter().all(|need| ends.contains_key(need)))
}

/// When every task ends, if all of a task's devices start it together as soon as each has what it needs.
fn replay(schedule: &Schedule, costs: &Costs) -> BTreeMap<Task, Ticks> {
    let mut ends: BTreeMap<Task, Ticks> = BTreeMap::new();
    let mut next = vec![0; schedule.orders.len()];
    let mut free = vec![Ticks::ZERO; schedule.orders.len()];
    let devices = |task: Task| schedule.placement.devices(task.stage, task.microbatch);
    loop {
        let head = |device: usize| schedule.orders[device].get(next[device]).map(|one| one.task);
        let stand = |task: &Task| devices(*task).iter().all(|device| head(device.index()) == Some(*task));
        let ready = |task| needs(schedule, &ends, task).map(|needs| (task, needs));
        let Some((task, needs)) = (0..next.len()).filter_map(head).filter(stand).find_map(ready) else { return ends };
        let arrives = |need: Task, device: DeviceId| {
            let hops = devices(need).iter().map(|from| costs.latency.between(*from, device));
            ends[&need] + hops.min().expect("every task has a device")
        };
        let inputs = |device: DeviceId| needs.iter().map(move |need| arrives(*need, device));
        let starts = devices(task).iter().flat_map(|device| inputs(*device).chain([free[device.index()]]));
        let end = starts.max().unwrap_or_default() + costs.of(task.kind, task.stage);
        ends.insert(task, end);
        for device in devices(task) {
            (free[device.index()], next[device.index()]) = (end, next[device.index()] + 1);
        }
    }
}

/// The most that a device holds along its order, in parts of activations.
fn held(schedule: &Schedule, device: usize) -> u64 {
    let mut alive: BTreeMap<(StageId, MicrobatchId), u64> = BTreeMap::new();
    let mut most = 0;
    for Task { kind, stage, microbatch } in schedule.orders[device].iter().map(|one| one.task) {
        let Held { saved, waiting } = schedule.activations.of(stage);
        match kind {
            _ if kind == saves(schedule, stage, microbatch) => alive.insert((stage, microbatch), saved),
            TaskKind::BackwardInput => alive.insert((stage, microbatch), waiting),
            TaskKind::BackwardWeight | TaskKind::Backward => alive.remove(&(stage, microbatch)),
            _ => None,
        };
        most = most.max(alive.values().sum());
    }
    most
}

fn size(dice: &mut Dice) -> Size {
    Size { devices: 1 + dice.below(5), stages: 1 + dice.below(6), microbatches: 1 + dice.below(5) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tasks_on_several_devices_are_timed_as_a_replay_does(seed: u64) {
        let mut dice = Dice(seed);
        let mut schedule = spread(size(&mut dice), &mut dice);
        if schedule.slices.count() > 1 {
            return Ok(());
        }
        if dice.below(2) == 0 {
            schedule.activations = shares(schedule.n_stages(), &mut dice).of(schedule.n_stages(), &schedule.parts).expect("few parts");
        }
        let costs = costs(schedule.n_stages());
        let order = check(&schedule).map_err(|found| TestCaseError::fail(format!("{found:#?}")))?;
        let timeline = simulate(&schedule, &order, &costs);
        let replayed = replay(&schedule, &costs);
        prop_assert_eq!((replayed.len(), order.sequence.len()), (schedule.n_tasks(), schedule.n_tasks()));
        for (tasks, ends) in schedule.orders.iter().zip(&timeline.ends) {
            for (one, end) in tasks.iter().zip(ends) {
                prop_assert_eq!(replayed.get(&one.task), Some(end), "{}", one.task);
            }
        }
        let peaks = peaks(&schedule, &order.dependencies);
        for (device, peak) in peaks.iter().enumerate() {
            prop_assert_eq!(peak.activations, held(&schedule, device), "d{}", device);
        }
        let most: Vec<u64> = peaks.iter().map(|peak| peak.activations).collect();
        let bound = lower_bound(&schedule, &order.dependencies, &costs, (&schedule.activations, &most));
        prop_assert!(bound.makespan <= timeline.makespan(), "{} is above {}", bound.makespan, timeline.makespan());
    }

    #[test]
    fn orders_that_disagree_are_rejected_if_and_only_if_they_get_stuck(seed: u64) {
        let mut dice = Dice(seed);
        for _ in 0..8 {
            let schedule = disorder(spread(size(&mut dice), &mut dice), &mut dice);
            prop_assert_eq!(analysis_as_it_runs(&schedule), Ok(()));
        }
    }
}

/// 1F1B over groups of devices that run every task together.
const GROUPS: &str = "schedule groups(width = 2) {
    require D % width == 0
    stages D / width
    place s on width * s..width * (s + 1)
    block every 3 { F[s] at s  BW[s] at S + 2 * (S - 1 - s) }
}";

#[test]
fn a_block_of_groups_is_certified_as_one_of_single_devices() {
    let groups = certified(GROUPS, &[("devices", 6), ("microbatches", 5)]).expect("a block");
    let single = certified(GROUPS, &[("devices", 3), ("microbatches", 5), ("width", 1)]).expect("a block");
    let of = |certified: &pipe_compiler::certificate::Certified| {
        certified.devices.iter().map(|held| (held.exact, held.bound, held.from)).collect::<Vec<_>>()
    };
    let twice: Vec<_> = of(&single).into_iter().flat_map(|held| [held, held]).collect();
    assert_eq!(of(&groups), twice);
    let mut pace = single.pace.expect("a steady state");
    pace.work = pace.work.into_iter().flat_map(|work| [work, work]).collect();
    assert_eq!(groups.pace, Some(pace));
    let report = |devices, width| {
        let sizes = [("devices", devices), ("microbatches", 7), ("width", width)];
        cases::compiled("groups.pipe", GROUPS, &request(&sizes)).report
    };
    let (groups, single) = (report(6, 2), report(3, 1));
    assert!(groups.ok && groups.valid_for_all_microbatches == Some(true));
    assert_eq!((groups.figures.makespan, groups.sizes.tasks), (single.figures.makespan, single.sizes.tasks));
    assert_eq!((groups.figures.lower_bound, groups.instructions), (single.figures.lower_bound, None));
}

#[test]
fn the_pace_of_groups_is_that_of_long_steps() {
    let text = "schedule x { stages D place s on if s == D - 1 then 0..D else s
        block every 12 { F[s] at s  BW[s] at 5 + 2 * (D - 1 - s) } }";
    let with = |microbatches| Request {
        costs: StageCosts::parse("F=2,BW=3,comm=0.5,comm[0-1]=4,F[1]=5").ok(),
        ..request(&[("devices", 3), ("microbatches", microbatches)])
    };
    let compiled = |microbatches| {
        let report = cases::compiled("x.pipe", text, &with(microbatches)).report;
        (report.figures.makespan.expect("a step"), report.certificate.expect("a block"))
    };
    let ((long, certificate), (longer, _)) = (compiled(400), compiled(820));
    let pace = certificate.steady_period.expect("a pace");
    assert!((pace - (longer - long) / 420.0).abs() < 1e-6, "{pace}, measured {}", (longer - long) / 420.0);
}

/// What has its embedding on all devices, written the way people say it.
const EMBEDDING: &str = "schedule embedding_on_all {
    stages D + 1
    place s on if s == 0 then 0..D else s - 1
    order d {
        let warmup = min(D - 1 - d, M)
        repeat M          { F[0] }
        repeat warmup     { F[d + 1] }
        repeat M - warmup { F[d + 1] BW[d + 1] }
        repeat warmup     { BW[d + 1] }
        repeat M          { BW[0] }
    }
}";

#[test]
fn a_task_is_drawn_on_all_its_devices() {
    let mut pictures = String::new();
    for (text, microbatches) in [(GROUPS, 4), (EMBEDDING, 4)] {
        let request = request(&[("devices", 4), ("microbatches", microbatches)]);
        let compilation = cases::compiled("x.pipe", text, &request);
        let analysis = compilation.analysis.expect("it runs");
        let picture = pipec::drawing::golden::draw(&analysis).expect("a picture");
        pictures += &format!("{text}\n\n4 devices, {microbatches} microbatches, F = B = W = 1\n{picture}\n");
    }
    report(&expect(&root().join("tests/golden/on_several_devices.txt"), &pictures).into_iter().collect::<Vec<_>>());
}

fn prepared(name: &str, memory: &str) -> Prepared {
    let text = read(&root().join(format!("tests/data/tessel/{name}.pipe")));
    let request = Request { memory: MemoryLimit::parse(memory).ok(), ..Request::default() };
    cases::prepared(&format!("{name}.pipe"), &text, &request, Objective::Makespan)
}

/// A source that was found, and what the ordinary compiler says of it.
fn finished(prepared: &Prepared, patience: usize) -> (String, Compilation) {
    let options = Options { objective: Objective::Makespan, seed: 1, rounds: 1 };
    let found = prepared.search(options, &team(1, patience), &mut |_| ()).expect("one microbatch after the other fits");
    prepared.finish(&found, &mut Sources::default(), &no_files)
}

/// Published in the paper; the activations of what is on all devices count as well here, and not there.
#[test]
fn the_placements_of_tessel_are_searched_as_sources() {
    let cases =
        [("v", "4", 46.0, 44.0), ("x", "1.777778", 76.0, 71.0), ("k", "4.8", 55.0, 52.0), ("m", "9.6", 60.0, 60.0)];
    for (name, memory, published, target) in slice(2, cases) {
        let prepared = prepared(name, memory);
        let (source, compilation) = finished(&prepared, 600);
        let (own, found) = (&prepared.problem.schedule, compilation.analysis.expect("it runs").schedule);
        assert!(compilation.report.ok, "{name}: {:#?}\n{source}", compilation.diagnostics);
        assert_eq!(found.placement, own.placement, "{source}");
        let makespan = compilation.report.figures.makespan.expect("a makespan");
        assert!(makespan <= target && target <= published, "{name}: {makespan}\n{source}");
        // With several rounds of time, `pipec search` gets there as well: this is what the replay
        // says of the same source.
        let replayed = replay(&found, &costs_of(name, found.n_stages()));
        assert_eq!(replayed.values().max().map(|end| end.0 as f64 / 1e6), Some(makespan), "{source}");
    }
}

/// The costs of a source, said once more.
fn costs_of(name: &str, n_stages: usize) -> Costs {
    let text = match name {
        "x" => "F=1,B=3,W=0,F[8]=0,B[8]=0",
        "k" => "F=1,B=3,W=0,B[4]=1",
        "m" => "F=1,B=3,W=0,B[0]=1",
        "nn" => "F=1,B=3,W=0,B[0]=1,B[3]=1",
        _ => "F=1,B=3,W=0",
    };
    of_stages(&StageCosts::parse(text).expect("well-formed"), n_stages)
}

/// As in the paper: what is on all devices takes no memory, so that the limits are the same too.
#[test]
fn without_memory_for_what_is_on_all_devices_the_published_lengths_are_reached() {
    for (name, memory, target) in slice(2, [("m", 6, 60), ("nn", 6, 76)]) {
        let mut prepared = prepared(name, "100");
        let job = &mut prepared.problem.job;
        job.series.iter_mut().filter(|series| series.devices.len() > 1).for_each(|series| series.takes = 0);
        job.capacity.iter_mut().for_each(|capacity| *capacity = memory);
        prepared.problem.bound = 0;
        let (source, compilation) = finished(&prepared, 600);
        let schedule = compilation.analysis.expect("it runs").schedule;
        assert!(compilation.report.ok, "{name}: {:#?}\n{source}", compilation.diagnostics);
        let alone = |device: usize| Schedule {
            orders: vec![
                schedule.orders[device]
                    .iter()
                    .filter(|one| schedule.placement.set_size(one.task.stage) == 1)
                    .copied()
                    .collect(),
            ],
            ..schedule.clone()
        };
        assert!((0..4).all(|device| held(&alone(device), 0) <= memory.unsigned_abs()), "{source}");
        let makespan = replay(&schedule, &costs_of(name, schedule.n_stages())).values().max().copied();
        assert!(makespan.is_some_and(|makespan| makespan.0 <= target * 1_000_000), "{name}: {makespan:?}\n{source}");
    }
}
