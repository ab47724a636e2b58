//! Sums of gradients and updates with a place in an order, and lanes that carry transfers: against machines of their
//! own, and against the same without places.

use pipe_compiler::Request;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::instruction::Instruction;
use pipe_ir::task::TaskKind;
use pipe_ir::verify::verify;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_schedule::check::check;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::{StepTask, StepTaskKind, StepTasks};
use pipe_schedule::timing::timeline::Together;
use pipe_tests::cases::{compile_text, read, root};
use pipe_tests::programs::{program_of, stages_with_updates};
use pipe_tests::schedules::{Dice, Size, analysis_as_it_runs, replicated, stuck};
use pipe_tests::slice::drawn;
use pipe_tests::training::{equal_replicas, learn, losses, start, steps};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The places of tasks in the lists of devices, so that sums and updates fit between them.
const APART: u32 = 100;

/// A random schedule whose lists place the sums of some stages, in one order, and some of their updates.
fn placed(dice: &mut Dice) -> Schedule {
    let size = Size { devices: 2 + dice.below(3), stages: 1 + dice.below(5), microbatches: 2 + dice.below(5) };
    let mut schedule = replicated(size, dice);
    for order in &mut schedule.orders {
        (1..).zip(order).for_each(|(nth, one)| one.at = APART * nth);
    }
    let mut stages: Vec<StageId> = schedule.placement.stages().filter(|_| dice.below(4) > 0).collect();
    for last in (1..stages.len()).rev() {
        stages.swap(last, dice.below(last + 1));
    }
    let of_device = |device: usize| {
        let order = &schedule.orders[device];
        let (mut list, mut before) = (Vec::new(), 0);
        let adds = |stage: StageId| {
            let is_last = |kind| matches!(kind, TaskKind::BackwardWeight | TaskKind::Backward);
            order.iter().rposition(|one| one.task.stage == stage && is_last(one.task.kind))
        };
        for stage in &stages {
            let Some(last) = adds(*stage) else { continue };
            before = before.max(last + 1);
            before += dice.below(order.len() - before + 1) / 2;
            let mut push = |kind, tasks: usize| {
                let at = APART * u32::try_from(tasks).unwrap_or(0) + 1 + u32::try_from(list.len()).unwrap_or(0);
                list.push(StepTask { kind, stage: *stage, at, origin: 0 });
            };
            push(StepTaskKind::Reduce, before);
            if dice.below(2) == 0 {
                push(StepTaskKind::Update, before + dice.below(order.len() - before + 1));
            }
        }
        list.sort_by_key(|one| one.at);
        list
    };
    schedule.step_tasks = StepTasks::new((0..schedule.n_devices()).map(of_device).collect());
    schedule
}

#[test]
fn what_is_accepted_runs_and_all_else_is_stuck() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..drawn(150, 4_000) {
        let schedule = placed(&mut Dice(seed as u64));
        analysis_as_it_runs(&schedule).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        if !stuck(&schedule).is_empty() {
            refused += 1;
            continue;
        }
        accepted += 1;
        let program = program_of(&schedule, &stages_with_updates(&schedule));
        let n_updates = |kind| schedule.step_tasks.all().filter(|(_, one)| one.kind == kind).count();
        let runs = program.devices.iter().flat_map(|code| &code.step);
        let updates = runs
            .filter(|one| matches!(one, Instruction::Run { exec, .. } if program.exec(*exec).kind == TaskKind::Update));
        assert!(updates.count() >= n_updates(StepTaskKind::Update), "seed {seed}");
        let verified = verify(program).unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
        let data = Arc::new(Data::synthetic(verified.program()));
        let options = Options { stress: Some(seed as u64), ..Options::new(Backend::Null, 0) };
        let mut run = Run::start(Arc::new(verified), &options, data).expect("it starts");
        run.step(0).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
    }
    assert!(accepted > 20 && refused > 5, "{accepted} accepted, {refused} refused");
}

#[test]
fn sums_stand_where_they_are_placed() {
    for seed in 0..drawn(100, 2_000) {
        let schedule = placed(&mut Dice(seed as u64));
        if check(&schedule).is_err() {
            continue;
        }
        let program = program_of(&schedule, &stages_with_updates(&schedule));
        for (device, one) in schedule.step_tasks.all().filter(|(_, one)| one.kind == StepTaskKind::Reduce) {
            let code = &program.devices[device.index()];
            let (mut tasks, mut found) = (0, Vec::new());
            for instruction in &code.step {
                match instruction {
                    Instruction::Run { exec, .. } => tasks += usize::from(program.exec(*exec).kind != TaskKind::Update),
                    Instruction::CollStart { buffer, .. } => {
                        let name = code.step.iter().find_map(|one| match one {
                            Instruction::Fill { buffer: own, value, .. } if own == buffer => Some(*value),
                            _ => None,
                        });
                        let value = name.map(|value| &program.values[value.index()]);
                        found.extend(value.filter(|value| value.stage == one.stage).map(|_| tasks));
                    }
                    _ => {}
                }
            }
            let is_shared = schedule.placement.devices_of(one.stage).len() > 1;
            let before = schedule.orders[device.index()].iter().filter(|task| task.at < one.at).count();
            assert_eq!(found, if is_shared { vec![before] } else { Vec::new() }, "seed {seed} {device} {one:?}");
        }
    }
}

#[test]
fn places_change_no_bit_of_what_is_learned() {
    let example = read(&root().join("examples/early_sums.pipe"));
    let without = |words: &[&str]| -> String {
        let is_kept = |line: &&str| !words.iter().any(|word| line.trim_start().starts_with(word));
        example.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
    };
    let program = |text: &str| {
        let (compilation, _) = compile_text("test.pipe", text, Path::new("."), &Request::default());
        let said: Vec<&str> = compilation.diagnostics.iter().map(|one| one.message.as_str()).collect();
        Arc::new(compilation.program.unwrap_or_else(|| panic!("{said:?}")))
    };
    for line in ["", "zero 1"] {
        let with = |text: &str| text.replace("    devices 4\n", &format!("    devices 4\n    {line}\n"));
        let alone = learn(&program(&with(&without(&["reduce[", "update[", "lane"]))), None);
        for text in [example.clone(), without(&["update["])] {
            let placed = program(&with(&text));
            for stress in [None, Some(1), Some(2)] {
                assert!(learn(&placed, stress) == alone, "{line} {stress:?}\n{text}");
            }
        }
    }
}

/// A kind, a stage and a microbatch.
type Key = (TaskKind, usize, u32);

/// Tasks one after the other on each device, and transfers one after the other on the lane of the sender, tick by
/// tick.
fn by_ticks(analysis: &Analysis, takes: u64) -> Vec<Vec<u64>> {
    let (schedule, costs) = (&analysis.schedule, &analysis.costs);
    let n_devices = schedule.n_devices();
    let last = schedule.n_stages() - 1;
    let tick = |ticks: pipe_schedule::units::Ticks| ticks.0 / 1_000_000;
    // When each task has ended, and when what it made has come to the stage that reads it.
    let mut ends: BTreeMap<Key, u64> = BTreeMap::new();
    let mut come: BTreeMap<Key, u64> = BTreeMap::new();
    let mut lists: Vec<Vec<u64>> = vec![Vec::new(); n_devices];
    let mut running: Vec<Option<u64>> = vec![None; n_devices];
    // By device: what waits for its lane, and until when that is occupied.
    let mut lanes: Vec<(Vec<Key>, u64)> = vec![(Vec::new(), 0); n_devices];
    let n_tasks: usize = schedule.orders.iter().map(Vec::len).sum();
    let mut now = 0;
    while lists.iter().map(Vec::len).sum::<usize>() < n_tasks || running.iter().any(Option::is_some) {
        for device in 0..n_devices {
            if running[device] == Some(now) {
                running[device] = None;
                lists[device].push(now);
                let task = schedule.orders[device][lists[device].len() - 1].task;
                let key = (task.kind, task.stage.index(), task.microbatch.0);
                ends.insert(key, now);
                let is_sent = match task.kind {
                    TaskKind::Forward => (key.1 < last).then_some(key.1 + 1),
                    TaskKind::Backward | TaskKind::BackwardInput => key.1.checked_sub(1),
                    _ => None,
                };
                match is_sent.map(|stage| schedule.placement.devices_of(StageId::from_index(stage))[0].index()) {
                    Some(other) if other != device => lanes[device].0.push(key),
                    Some(_) => drop(come.insert(key, now)),
                    None => {}
                }
            }
        }
        for (waiting, until) in &mut lanes {
            if *until <= now && !waiting.is_empty() {
                *until = now + takes;
                come.insert(waiting.remove(0), *until);
            }
        }
        for device in 0..n_devices {
            let Some(next) = schedule.orders[device].get(lists[device].len()) else { continue };
            let (stage, microbatch) = (next.task.stage.index(), next.task.microbatch.0);
            let has_come = |kind, stage: usize| come.get(&(kind, stage, microbatch)).is_some_and(|at| *at <= now);
            let has_ended = |kind| ends.contains_key(&(kind, stage, microbatch));
            let is_ready = match next.task.kind {
                TaskKind::Forward => stage == 0 || has_come(TaskKind::Forward, stage - 1),
                TaskKind::BackwardWeight => has_ended(TaskKind::BackwardInput),
                _ => {
                    let gradient = [TaskKind::Backward, TaskKind::BackwardInput];
                    let after = stage == last || gradient.iter().any(|kind| has_come(*kind, stage + 1));
                    after && has_ended(TaskKind::Forward)
                }
            };
            if running[device].is_none() && is_ready {
                running[device] = Some(now + tick(costs.of(next.task.kind, next.task.stage)));
            }
        }
        now += 1;
        assert!(now < 100_000, "it ends");
    }
    lists
}

#[test]
fn transfers_take_turns_on_lanes_as_tick_by_tick() {
    let schedules = ["1f1b", "gpipe", "zb_h1", "interleaved_1f1b(chunks = 2)", "v_half", "v_min", "hanayo"];
    let mut longer = 0;
    for seed in 0..drawn(40, 2_000) {
        let mut dice = Dice(seed as u64);
        let schedule = schedules[dice.below(schedules.len())];
        let (devices, rounds) = (2 + dice.below(3), 1 + dice.below(3));
        let [forward, input, weight, takes] = [0; 4].map(|_| 1 + dice.below(6));
        let text = |lane: &str| {
            format!(
                "pipeline p {{ devices {devices} microbatches {} schedule {schedule} {lane}
                cost F = {forward}, B = {input}, W = {weight}, comm = {takes} }}",
                devices * rounds
            )
        };
        let compiled = |lane: &str| {
            let text = text(lane);
            let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
            let said: Vec<&str> = compilation.diagnostics.iter().map(|one| one.message.as_str()).collect();
            compilation.analysis.unwrap_or_else(|| panic!("{said:?}\n{text}"))
        };
        let (with, without) = (compiled("lane link: send"), compiled(""));
        let found: Vec<Vec<u64>> =
            with.timeline.ends.iter().map(|ends| ends.iter().map(|end| end.0 / 1_000_000).collect()).collect();
        assert_eq!(found, by_ticks(&with, takes as u64), "seed {seed}\n{}", text("lane link: send"));
        assert!(with.timeline.makespan() >= without.timeline.makespan(), "seed {seed}");
        longer += usize::from(with.timeline.makespan() > without.timeline.makespan());
        let path = &with.critical_path;
        let along = path.work.iter().chain(&path.pairs).fold(path.transfers + path.copies, |sum, one| sum + *one);
        assert_eq!((along, path.copies.0), (with.timeline.makespan(), 0), "seed {seed}");
        one_at_a_time(&with);
    }
    assert!(longer > 5, "{longer}");
}

/// A lane carries one thing at a time.
fn one_at_a_time(analysis: &Analysis) {
    let n_devices = analysis.schedule.n_devices();
    for device in (0..n_devices).map(DeviceId::from_index) {
        let own = analysis.timeline.collectives.iter().filter(|part| part.device == device && part.lane.is_some());
        let mut spans: Vec<_> = own.map(|part| (part.start, part.end)).collect();
        for queue in (device.index() + n_devices..analysis.schedule.n_queues()).step_by(n_devices) {
            let (starts, ends) = (&analysis.timeline.starts[queue], &analysis.timeline.ends[queue]);
            spans.extend(starts.iter().copied().zip(ends.iter().copied()).filter(|(start, end)| start < end));
        }
        // Parts of one stage have one sum.
        spans.sort_unstable();
        spans.dedup();
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{device} {spans:?}");
    }
}

#[test]
fn parts_transfers_and_sums_share_a_lane() {
    let text = "
        schedule both {
            stages D / 2
            place s, m on m % 2 * S + s
            lane link: send, reduce
            parts s = attention, exchange on link, mlp
            order d {
                let s = d % S
                repeat M / 2 { F[s] }
                repeat M / 2 { BW[s] }
                reduce[s]
            }
        }
        pipeline p { devices 4 microbatches 8 schedule both
            cost F = 2, F.exchange = 1, BW = 3, BW.exchange = 1, comm = 6, reduce = 5 }";
    let compiled = |text: &str| {
        let (compilation, _) = compile_text("test.pipe", text, Path::new("."), &Request::default());
        let said: Vec<&str> = compilation.diagnostics.iter().map(|one| one.message.as_str()).collect();
        compilation.analysis.unwrap_or_else(|| panic!("{said:?}\n{text}"))
    };
    let (with, without) = (compiled(text), compiled(&text.replace(": send, reduce", "")));
    one_at_a_time(&with);
    let carried =
        |what| with.timeline.collectives.iter().filter(|part| part.what == what && part.lane == Some(0)).count();
    // Eight microbatches each go forward once and back once; two parts of each of two stages have sums of two
    // devices.
    assert_eq!((carried(Together::Transfer), carried(Together::Sum)), (16, 8));
    assert!(with.timeline.makespan() > without.timeline.makespan());
    let free = compiled(&text.replace("comm = 6, reduce = 5", "comm = 0, reduce = 0"));
    let plain = compiled(&text.replace("comm = 6, reduce = 5", "comm = 0").replace(": send, reduce", ""));
    assert_eq!(free.timeline.ends, plain.timeline.ends);
}

#[test]
fn replicas_agree_after_early_updates() {
    let (compilation, _) =
        compile_text("test.pipe", &read(&root().join("examples/early_sums.pipe")), Path::new("."), &Request::default());
    let program = Arc::new(compilation.program.expect("it has instructions"));
    let mut run = start(&program, Some(7));
    let all = losses(&steps(&mut run, 0..3));
    assert!(all.iter().all(|step| step.len() == 8), "{all:?}");
    assert!(program.program().n_collectives() > 0);
    equal_replicas(&run);
}

#[test]
fn a_transfer_goes_before_a_part_that_is_ready_at_the_same_moment() {
    let text = "
        schedule tie {
            stages D place s on s lane link: send parts s = mlp, exchange on link, add
            order d { repeat M { F[d] } repeat M { BW[d] } }
        }
        pipeline p { devices 2 microbatches 2 schedule tie
            cost F.mlp = 0, F.exchange = 1, F.add = 1, BW.mlp = 1, BW.exchange = 1, BW.add = 1, comm = 1 }";
    let (compilation, _) = compile_text("test.pipe", text, Path::new("."), &Request::default());
    let analysis = compilation.analysis.expect("accepted");
    // `add` of microbatch 0 ends at 2, and so does `mlp` of microbatch 1, which takes no time.
    let of_device = |part: &&pipe_schedule::timing::timeline::Collected| part.device == DeviceId(0);
    let transfer = analysis.timeline.collectives.iter().find(of_device).expect("a transfer");
    let unit = pipe_schedule::units::Ticks::UNIT;
    assert_eq!((transfer.start, analysis.timeline.starts[2][1]), (unit + unit, unit + unit + unit));
    one_at_a_time(&analysis);
}
