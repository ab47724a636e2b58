//! Command lists of CUDA devices: of every program they order whoever meets, and no call in them is for nothing.

use pipe_compiler::Request;
use pipe_cuda::commands::{Call, CommandList, Queue, Recorded, Work, lines, races, record, record_part};
use pipe_distributed::{Division, Rank};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Space;
use pipe_ir::task::TaskKind;
use pipe_ir::verify::{List, Verified};
use pipe_runtime::Used;
use pipe_schedule::timing::costs::StageCosts;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{compile_text, expect, read, report, root};
use pipe_tests::command_lists::{before, in_lockstep, makespan, meetings, programs};
use pipe_tests::pipelines::program;
use pipe_tests::schedules::Dice;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// What is wrong with a command list as such: events are recorded once, before any wait, and only if somebody waits.
fn ill_formed(commands: &CommandList) -> Option<String> {
    let mut recorded = BTreeSet::new();
    let mut waited = BTreeSet::new();
    for (index, call) in commands.calls.iter().enumerate() {
        match call {
            Call::Record(_, event) if !recorded.insert(*event) => return Some(format!("{event} twice, at {index}")),
            Call::Wait(_, event) if !recorded.contains(event) => return Some(format!("{event} too early, at {index}")),
            Call::Wait(_, event) => drop(waited.insert(*event)),
            Call::Record(..) | Call::Work(..) => {}
        }
    }
    let sorted = commands.queues.is_sorted();
    let complete = recorded.len() == commands.n_events as usize && recorded == waited;
    (!sorted || !complete).then(|| format!("queues {:?}, {recorded:?}, {waited:?}", commands.queues))
}

/// Compares the works of a command list with the instructions that they are for, and what is known of
/// devices with what was compiled.
fn unfaithful(program: &Verified, recorded: &Recorded, strict: bool) -> Option<String> {
    let program = program.program();
    let instructions = |list: List, kind: fn(&Instruction) -> bool| {
        let lists = program.devices.iter().map(|code| if list == List::Setup { &code.setup } else { &code.step });
        lists.flatten().filter(|one| kind(one)).count()
    };
    for (list, commands) in [(List::Setup, &recorded.setup), (List::Step, &recorded.step)] {
        let works = |kind: fn(&Work) -> bool| {
            commands.calls.iter().filter(|call| matches!(call, Call::Work(_, work) if kind(work))).count()
        };
        let counts = [
            (
                works(|work| matches!(work, Work::Run { .. })),
                instructions(list, |one| matches!(one, Instruction::Run { .. })),
            ),
            (
                works(|work| matches!(work, Work::Fill { .. })),
                instructions(list, |one| matches!(one, Instruction::Fill { .. })),
            ),
            (
                works(|work| matches!(work, Work::Load { .. })),
                instructions(list, |one| matches!(one, Instruction::Load { .. })),
            ),
            (
                works(|work| matches!(work, Work::Emit { .. })),
                instructions(list, |one| matches!(one, Instruction::Emit { .. })),
            ),
            (
                works(|work| matches!(work, Work::Copy { .. })),
                instructions(list, |one| matches!(one, Instruction::SendStart { .. } | Instruction::CopyStart { .. })),
            ),
        ];
        if let Some(differs) = counts.iter().position(|(works, instructions)| works != instructions) {
            return Some(format!("{list}: count {differs} of {counts:?}"));
        }
        let spoils = works(|work| matches!(work, Work::Spoil { .. }));
        if spoils > 0 && !strict || works(|work| matches!(work, Work::Together { .. })) > 0 && list == List::Setup {
            return Some(format!("{list}: {spoils} buffers are spoiled"));
        }
    }
    let together = recorded.step.calls.iter().filter(|call| matches!(call, Call::Work(_, Work::Together { .. })));
    if together.count() != program.n_collectives() {
        return Some("another number of collectives".to_owned());
    }
    for (facts, code) in recorded.devices.iter().zip(&program.devices) {
        let stated = Space::ALL.map(|space| {
            let extent = code.extent(space);
            Used { peak: extent.peak, high_water: extent.arena }
        });
        if facts.used != stated || facts.instructions != [code.setup.len() as u64, code.step.len() as u64] {
            return Some(format!("{facts:?}, stated {stated:?}"));
        }
    }
    None
}

#[test]
fn command_lists_of_all_programs_are_faithful_and_order_whoever_meets() {
    let programs = programs();
    assert!(programs.len() > 200, "{}", programs.len());
    let mut failures = Vec::new();
    for (name, program) in programs {
        for strict in [false, true] {
            let recorded = match record(program, strict) {
                Ok(recorded) => recorded,
                Err(error) => {
                    failures.push(format!("{name}: {error}"));
                    continue;
                }
            };
            failures.extend(unfaithful(program, &recorded, strict).map(|why| format!("{name}: {why}")));
            for commands in [&recorded.setup, &recorded.step] {
                failures.extend(ill_formed(commands).map(|why| format!("{name}: {why}")));
                failures.extend(races(program.program(), commands).err().map(|race| format!("{name}: {race}")));
            }
        }
    }
    report(&failures);
}

#[test]
fn what_runs_on_a_lane_may_run_beside_compute() {
    let with_lanes = programs().iter().filter(|(_, program)| !program.program().lanes.is_empty());
    let mut n_beside = 0;
    for (name, program) in with_lanes.filter(|(_, program)| program.program().n_instructions() < 2000) {
        let commands = record(program, false).expect("a command list").step;
        let order = before(&commands);
        let on = |index: usize| match &commands.calls[index] {
            Call::Work(queue, Work::Run { .. }) => Some(commands.queue(*queue)),
            _ => None,
        };
        let is_beside = |first: usize, second: usize| match (on(first), on(second)) {
            (Some(Queue::Lane(own, _)), Some(Queue::Compute(other)))
            | (Some(Queue::Compute(own)), Some(Queue::Lane(other, _))) => own == other && !order[second][first],
            _ => false,
        };
        let n_calls = commands.calls.len();
        let pairs = (0..n_calls).flat_map(|second| (0..second).map(move |first| (first, second)));
        let found = pairs.filter(|(first, second)| is_beside(*first, *second)).count();
        let n_on_lanes = (0..n_calls).filter(|index| matches!(on(*index), Some(Queue::Lane(..)))).count();
        assert!(n_on_lanes > 0, "{name}");
        n_beside += found;
    }
    assert!(n_beside > 100, "{n_beside} pairs");
}

#[test]
fn processes_that_do_one_thing_at_a_time_do_not_get_stuck() {
    let (mut met, mut failures) = (0, Vec::new());
    for (name, program) in programs() {
        let n_devices = program.program().devices.len();
        for n_ranks in (2..=n_devices.min(4)).filter(|_| program.program().n_instructions() < 3000) {
            let division = Division::new(n_devices, n_ranks).expect("a device for each");
            let ranks = (0..n_ranks).map(|rank| {
                let own = division.devices_of(Rank::from_index(rank));
                (own.clone(), record_part(program, own, false).expect("command lists"))
            });
            let ranks: Vec<(Range<usize>, Recorded)> = ranks.collect();
            let lists: Vec<(Range<usize>, CommandList)> =
                ranks.iter().map(|(own, recorded)| (own.clone(), recorded.step.clone())).collect();
            failures.extend(lists.iter().filter_map(|(_, commands)| ill_formed(commands)));
            match in_lockstep(program.program(), &lists) {
                Ok(count) => met += count,
                Err(stuck) => failures.push(format!("{name}, {n_ranks} processes: {stuck}")),
            }
            // Together they do what one process does.
            let whole = record(program, false).expect("a command list");
            let facts: Vec<_> = ranks.iter().flat_map(|(_, recorded)| recorded.devices.clone()).collect();
            assert_eq!(facts, whole.devices, "{name}");
            let runs = |commands: &CommandList| {
                commands.calls.iter().filter(|call| matches!(call, Call::Work(_, Work::Run { .. }))).count()
            };
            assert_eq!(lists.iter().map(|(_, commands)| runs(commands)).sum::<usize>(), runs(&whole.step), "{name}");
        }
    }
    println!("{met} meetings");
    report(&failures);
    assert!(met > 10_000, "{met}");
}

#[test]
fn no_wait_is_covered_by_another() {
    let mut failures = Vec::new();
    for (name, program) in programs() {
        let commands = record(program, false).expect("a command list").step;
        if commands.calls.len() > 500 {
            continue;
        }
        for (index, call) in commands.calls.iter().enumerate() {
            let Call::Wait(queue, event) = call else { continue };
            let recorded =
                commands.calls.iter().position(|one| matches!(one, Call::Record(_, other) if other == event));
            let last = commands.calls[..index].iter().rposition(|one| one.queue() == *queue);
            let known = |last: usize| {
                before(&CommandList { calls: commands.calls[..=last].to_vec(), ..commands.clone() })[last].clone()
            };
            let recorded = recorded.expect("recorded");
            if last.is_some_and(|last| recorded < last && known(last)[recorded]) {
                failures.push(format!("{name}: call {index} waits for what is known"));
            }
        }
    }
    report(&failures);
}

/// Command lists after one small damage each: a wait or record is missing, or two neighbours of a
/// queue have changed places.
fn damaged(commands: &CommandList) -> Vec<CommandList> {
    let with = |calls: Vec<Call>| CommandList { calls, ..commands.clone() };
    let mut found = Vec::new();
    for (index, call) in commands.calls.iter().enumerate() {
        if !matches!(call, Call::Work(..)) {
            let mut calls = commands.calls.clone();
            calls.remove(index);
            found.push(with(calls));
        }
        let next = commands.calls[index + 1..].iter().position(|other| other.queue() == call.queue());
        if let Some(next) = next {
            let mut calls = commands.calls.clone();
            calls.swap(index, index + 1 + next);
            found.push(with(calls));
        }
    }
    found
}

#[test]
fn the_race_check_notices_exactly_what_a_closure_over_all_pairs_finds() {
    let (mut analysis, mut noticed, mut failures) = (0, 0, Vec::new());
    for (number, (name, program)) in programs().iter().enumerate() {
        let commands = record(program, number % 2 == 0).expect("a command list").step;
        // Small ones whole; of those of middle size, some damages.
        let share = match commands.calls.len() {
            0..150 => 6,
            150..500 => 250,
            _ => continue,
        };
        let mut dice = Dice(number as u64);
        for (which, commands) in damaged(&commands).into_iter().enumerate().filter(|_| dice.below(share) == 0) {
            let (found, expected) = (races(program.program(), &commands), meetings(program.program(), &commands));
            analysis += 1;
            noticed += usize::from(found.is_err());
            let agrees = match &found {
                Ok(()) => expected.is_empty(),
                Err(race) => expected.contains(&race.calls),
            };
            if !agrees {
                failures.push(format!("{name}, damage {which}: {found:?}, not one of {expected:?}"));
            }
        }
    }
    println!("{analysis} command lists, {noticed} with a race");
    report(&failures);
    assert!(analysis > 400 && noticed * 2 > analysis, "{analysis} command lists, {noticed} with a race");
}

/// Queues and events lose no time: a command list takes as long as the plan, with a processor for every
/// queue. The plan does not count the sums that travel in steps without a flush, and a transfer
/// there has a time, not a link that it keeps busy.
#[test]
fn a_step_takes_no_longer_than_planned() {
    let (mut failures, mut compared, mut equal) = (Vec::new(), 0, 0);
    for (family, _) in SCHEDULES {
        if *family == "cyclic_dp" {
            continue;
        }
        for (devices, microbatches) in [(2, 4), (4, 8), (4, 16), (3, 7)] {
            for latency in ["0", "0.1", "0.25", "0.75"] {
                let text =
                    format!("pipeline test {{ devices {devices} microbatches {microbatches} schedule {family} }}");
                let costs = StageCosts::parse(&format!("F=1,B=1.25,W=0.75,comm={latency}")).expect("costs");
                let request = Request { costs: Some(costs), ..Request::default() };
                let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &request);
                let (Some(program), Some(plan)) = (compilation.program, compilation.report.figures.makespan) else {
                    continue;
                };
                let latency: f64 = latency.parse().expect("a number");
                let commands = record(&program, false).expect("a command list").step;
                let took = makespan(&commands, |work| match work {
                    Work::Run { exec, .. } => match program.program().exec(*exec).kind {
                        TaskKind::Forward | TaskKind::Recompute => 1.0,
                        TaskKind::BackwardInput => 1.25,
                        TaskKind::BackwardWeight => 0.75,
                        TaskKind::Backward => 2.0,
                        TaskKind::Update => 0.0,
                    },
                    Work::Copy { .. } => latency,
                    _ => 0.0,
                });
                compared += 1;
                equal += usize::from((took - plan).abs() < 1e-6);
                if took > plan + 1e-6 {
                    failures.push(format!("{family}, {devices} x {microbatches}, {latency}: {took}, planned {plan}"));
                }
            }
        }
    }
    println!("{equal} of {compared} as planned");
    report(&failures);
    assert!(compared > 200, "{compared}");
}

/// Small programs of each kind, as text.
const GOLDEN: [(&str, &str); 3] = [
    ("1f1b", "model tiny devices 2 microbatches 2 schedule 1f1b"),
    ("offload", "model tiny devices 2 microbatches 1 schedule 1f1b offload optimizer"),
    ("replicas", "model tiny devices 2 microbatches 2 schedule dp_1f1b zero 1"),
];

#[test]
fn texts_of_small_command_lists_are_as_they_were() {
    let mut failures = Vec::new();
    for (name, pipeline) in GOLDEN {
        let text_of = |pipeline: &str| {
            format!(
                "layer dense() {{ input x weight matrix: [4, 4] = normal(0.7) output tanh(matmul(x, matrix)) }}
                layer first() {{ data drawn: i32[2] weight table: [7, 4] = normal(1) output gather(table, drawn) }}
                layer last() {{ input x data drawn: i32[2] weight matrix: [4, 7] = normal(0.7) loss cross_entropy(matmul(x, matrix), drawn) }}
                model tiny() {{ first() dense() dense() last() }}
                pipeline test {{ {pipeline} train {{ data synthetic steps 2 seed 7 optimizer adamw(learning_rate = 0.01) }} }}"
            )
        };
        let program = program(&text_of(pipeline)).expect("accepted");
        let recorded = record(&program, false).expect("a command list");
        let program = program.program();
        // What a race looks like: without the first wait that matters.
        let is_wait = |index: &usize| matches!(recorded.step.calls[*index], Call::Wait(..));
        let race = (0..recorded.step.calls.len()).filter(is_wait).find_map(|index| {
            let mut commands = recorded.step.clone();
            commands.calls.remove(index);
            races(program, &commands).err().map(|race| format!("without call {index}\n\n{race}"))
        });
        let [setup, step] =
            [&recorded.setup, &recorded.step].map(|commands| lines(program, commands).collect::<Vec<_>>().join("\n"));
        let race = race.expect("some wait matters");
        let actual = format!("{pipeline}\n\nset-up\n\n{setup}\n\nstep\n\n{step}\n\n{race}\n");
        failures.extend(expect(&root().join(format!("tests/golden/command_lists/{name}.txt")), &actual));
    }
    report(&failures);
    // The page shows what is there.
    let (page, golden) =
        (read(&root().join("docs/command_lists.md")), read(&root().join("tests/golden/command_lists/1f1b.txt")));
    for shown in page.split("```text\n").skip(1).filter_map(|part| part.split("```").next()) {
        assert!(golden.contains(shown), "not in golden/command_lists/1f1b.txt:\n{shown}");
    }
}
