//! All-gathers of `zero 3` with a place in an order: against the same without places, and at every pace.

use pipe_compiler::Request;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_ir::verify::verify;
use pipe_lower::{Options, lower};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Run};
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::{StepTask, StepTaskKind, StepTasks};
use pipe_tests::cases::compile_text;
use pipe_tests::pipelines::{gpt, verified};
use pipe_tests::programs::stages_with_updates;
use pipe_tests::schedules::{Dice, Size, replicated, stuck, time};
use pipe_tests::shared::{SIZES, gatherings, learn};
use pipe_tests::slice::drawn;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Each device runs all stages of its own microbatches, and gathers the weights of each stage `lead` tasks before they
/// are read; as usual where `lead` is 0.
const AHEAD: &str = "
    schedule ahead(parts = 6, lead = 0) {
        stages parts
        place s, m on m % D
        let turn(k) = if k < S then k else 2 * S - 1 - k
        order d {
            if lead > 0 { for k in 0..lead { gather[turn(k)] } }
            for k in 0..2 * S {
                if lead > 0 and k + lead < 2 * S { gather[turn(k + lead)] }
                if k < S { F[turn(k), d] } else { BW[turn(k), d] }
            }
        }
    }";

fn ahead(lead: u32, line: &str) -> String {
    let text = gpt(SIZES, 3, 3, &format!("ahead(lead = {lead}) {line}")).replace(" memory 4GiB", "");
    text.replacen("pipeline", &format!("{AHEAD} pipeline"), 1)
}

/// Before which tasks a device asks for which weights.
fn asked(program: &Program, device: usize) -> Vec<(usize, StageId)> {
    let code = &program.devices[device];
    let mut shares = BTreeMap::new();
    for instruction in &code.setup {
        if let Instruction::Fill { buffer, value, .. } = instruction
            && let Some(share) = program.value(*value).share
        {
            shares.insert(*buffer, program.value(share.whole).stage);
        }
    }
    let (mut tasks, mut found) = (0, Vec::new());
    for instruction in &code.step {
        match instruction {
            Instruction::Run { exec, .. } => tasks += usize::from(program.exec(*exec).kind != TaskKind::Update),
            Instruction::GatherStart { share, .. } => found.push((tasks, shares[share])),
            _ => {}
        }
    }
    found
}

#[test]
fn weights_come_as_far_ahead_as_orders_say() {
    let cost = "cost F = 1, BW = 1, comm = 3 zero 3";
    let report = |lead| {
        let (compilation, _) = compile_text("x.pipe", &ahead(lead, cost), Path::new("."), &Request::default());
        assert!(compilation.diagnostics.is_empty(), "{:#?}", compilation.diagnostics);
        let program = compilation.program.expect("it has instructions");
        let peaks = program.program().devices.iter().map(|code| code.peak);
        (compilation.report.figures.makespan.expect("it has a length"), peaks.max().expect("devices"), program)
    };
    let [usual, one, two, three] = [0, 1, 2, 3].map(report);
    // Places one task ahead are those that gatherings have without.
    assert_eq!((usual.0, usual.1), (one.0, one.1));
    // Two tasks and the time of two more hide what one does not.
    assert!(one.0 > two.0, "{} {}", one.0, two.0);
    assert!(one.1 < two.1 && two.1 < three.1, "{} {} {}", one.1, two.1, three.1);
    let stage = StageId::from_index;
    for (lead, (_, _, program)) in [(2, &two), (3, &three)] {
        // The weights of the last stages stay, for the backwards that follow.
        let first = (0..lead).map(|own| (0, stage(own)));
        let forwards = (0..6 - lead).map(|task| (task, stage(task + lead)));
        for device in 0..3 {
            let found = asked(program.program(), device);
            let expected: Vec<_> = first.clone().chain(forwards.clone()).collect();
            assert_eq!(found[..6], expected, "{lead} {device}");
        }
    }
}

#[test]
fn places_change_no_bit_of_what_is_learned() {
    let usual = verified(&ahead(0, "zero 3"));
    let expected = learn(&usual, None, 3);
    for lead in 1..7 {
        let program = verified(&ahead(lead, "zero 3"));
        assert!(gatherings(program.program()) > 0, "{lead}");
        assert!(learn(&program, Some(u64::from(lead)), 3) == expected, "{lead}");
    }
}

/// A random schedule whose lists place all-gathers anywhere.
fn placed(dice: &mut Dice) -> Schedule {
    let size = Size { devices: 2 + dice.below(3), stages: 1 + dice.below(5), microbatches: 2 + dice.below(5) };
    let mut schedule = replicated(size, dice);
    for order in &mut schedule.orders {
        (1..).zip(order).for_each(|(nth, one)| one.at = 100 * nth);
    }
    let of_device = |device: usize| {
        let order = &schedule.orders[device];
        let stages: BTreeSet<StageId> = order.iter().map(|one| one.task.stage).collect();
        let stages: Vec<StageId> = stages.into_iter().collect();
        let n_places = if stages.is_empty() { 0 } else { dice.below(2 * order.len() + 1) };
        let place = |nth| {
            let before = u32::try_from(dice.below(order.len() + 1)).unwrap_or(0);
            let stage = stages[dice.below(stages.len())];
            StepTask { kind: StepTaskKind::Gather, stage, at: 100 * before + 1 + nth, origin: 0 }
        };
        let mut list: Vec<StepTask> = (0..u32::try_from(n_places.min(90)).unwrap_or(0)).map(place).collect();
        list.sort_by_key(|one| one.at);
        list
    };
    schedule.step_tasks = StepTasks::new((0..schedule.n_devices()).map(of_device).collect());
    schedule
}

#[test]
fn wherever_weights_are_gathered_no_device_waits_forever() {
    let options = Options { zero: Zero::new(3).expect("a stage of ZeRO"), ..Options::default() };
    let (mut moved, mut more, mut run) = (0, 0, 0);
    for seed in 0..drawn(400, 40_000) {
        let schedule = placed(&mut Dice(seed as u64));
        if !stuck(&schedule).is_empty() {
            continue;
        }
        let bare = Schedule { step_tasks: StepTasks::default(), ..schedule.clone() };
        let [own, usual] = [&schedule, &bare].map(|one| lower(one, &time(one), &stages_with_updates(one), &options));
        if gatherings(&usual) == 0 {
            continue;
        }
        let verified = verify(own).unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
        let program = verified.program();
        let n_devices = schedule.n_devices();
        let both = (0..n_devices).map(|device| (asked(program, device), asked(&usual, device)));
        moved += usize::from(both.clone().any(|(own, usual)| own != usual));
        more += usize::from(gatherings(program) != gatherings(&usual));
        // Each task finds its weights, which are those of its stage.
        for (device, (own, _)) in (0..n_devices).map(DeviceId::from_index).zip(both) {
            let shared = |stage: StageId| schedule.placement.devices_of(stage).len() > 1;
            for (position, one) in schedule.orders[device.index()].iter().enumerate() {
                let has = own.iter().any(|(before, stage)| *stage == one.task.stage && *before <= position);
                assert!(has || !shared(one.task.stage), "seed {seed} {device} {position}");
            }
        }
        let data = Arc::new(Data::synthetic(program));
        let run_options =
            pipe_runtime::Options { stress: Some(seed as u64), ..pipe_runtime::Options::new(Backend::Null, 0) };
        let mut started = Run::start(Arc::new(verified), &run_options, data).expect("it starts");
        started.step(0).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        run += 1;
    }
    assert!(
        moved > 20 && more > 0 && run > 50,
        "{run} run, places move those of {moved}, {more} gather more or less often"
    );
}
