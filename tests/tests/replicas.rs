//! Stages on several devices: random ones are verified and run, data parallel and bidirectional
//! pipelines train like one device up to the order of sums, and the same from run to run.

use pipe_ir::forms::json;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::text;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::{Verified, verify};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_schedule::schedule::Schedule;
use pipe_tests::pipelines::{gpt, program};
use pipe_tests::programs::{program_of, stages_with_weights};
use pipe_tests::schedules::{Dice, Size, replicated};
use pipe_tests::training::{Bits, bits, equal_replicas, losses, start, steps};
use proptest::prelude::*;
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 5, rows = 2";

/// Pipelines side by side; each takes every R-th microbatch.
const DATA_PARALLEL: &str = include_str!("../data/data_parallel.pipe");

/// Even microbatches go down the devices, odd ones up.
const BIDIRECTIONAL: &str = "
    schedule bidirectional {
        stages D
        place s, m on if m % 2 == 0 then s else D - 1 - s
        order d {
            for m in 0..M { F[if m % 2 == 0 then d else D - 1 - d, m] }
            for m in 0..M { B[if m % 2 == 0 then d else D - 1 - d, m] }
            for m in 0..M { W[if m % 2 == 0 then d else D - 1 - d, m] }
        }
    }";

fn drawn(seed: u64) -> Schedule {
    let mut dice = Dice(seed);
    let size = Size { devices: 2 + dice.below(4), stages: 1 + dice.below(6), microbatches: 1 + dice.below(8) };
    replicated(size, &mut dice)
}

fn lowered(seed: u64) -> Program {
    let schedule = drawn(seed);
    program_of(&schedule, &stages_with_weights(&schedule))
}

fn failure(error: impl ToString) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

fn sound(program: Program) -> Result<Arc<Verified>, TestCaseError> {
    let explain = |errors: Vec<pipe_ir::verify::VerifyError>| {
        failure(errors.iter().map(|error| format!("{error}\n")).collect::<String>())
    };
    verify(program).map(Arc::new).map_err(explain)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicated_programs_are_verified_and_round_trip(seed: u64) {
        let program = lowered(seed);
        prop_assert_eq!(&text::parse(&text::print(&program)).map_err(failure)?.program, &program);
        let mut written = Vec::new();
        json::write(&program, &mut written).map_err(failure)?;
        let written = std::str::from_utf8(&written).map_err(failure)?;
        prop_assert_eq!(&json::parse(written).map_err(failure)?, &program);
        let schedule = drawn(seed);
        let shared = schedule.placement.stages().filter(|stage| schedule.placement.devices_of(*stage).len() > 1);
        prop_assert_eq!(program.n_collectives(), shared.count());
        sound(program)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicated_programs_run_to_their_end_with_the_stated_peak(seed: u64) {
        let program = sound(lowered(seed))?;
        for stress in [None, Some(seed)] {
            let options = Options { stress, ..Options::new(Backend::Null, 0) };
            let data = Arc::new(Data::synthetic(program.program()));
            let mut run = Run::start(Arc::clone(&program), &options, data).map_err(failure)?;
            for step in 0..2 {
                let report = run.step(step).map_err(failure)?;
                let stated = program.program().devices.iter().map(|code| code.peak);
                prop_assert!(report.devices.iter().map(|device| device.peak).eq(stated));
            }
        }
    }
}

fn verified(source: &str, devices: u32, microbatches: u32, schedule: &str) -> Arc<Verified> {
    Arc::new(program(&format!("{source}\n{}", gpt(SIZES, devices, microbatches, schedule))).expect("accepted"))
}

/// Losses of two steps, gradients after the first, weights and state after the second.
fn learn(program: &Arc<Verified>, stress: Option<u64>) -> (Vec<Vec<u64>>, [Vec<Bits>; 3]) {
    let mut run = start(program, stress);
    let mut reports = steps(&mut run, 0..1);
    let gradients = bits(&run, ValueKind::ParameterGradients);
    reports.extend(steps(&mut run, 1..2));
    let [weights, state] = [ValueKind::Parameters, ValueKind::OptimizerState].map(|kind| bits(&run, kind));
    equal_replicas(&run);
    let losses = losses(&reports).into_iter().map(|step| step.into_iter().map(|(_, loss)| loss).collect());
    (losses.collect(), [gradients, weights, state])
}

/// The largest difference of two tensors, relative to the largest number of the first.
fn distance(one: &[u64], other: &[u64]) -> f64 {
    let number = |bits: &u64| f64::from_bits(*bits);
    let largest = one.iter().map(number).fold(0.0_f64, |most, x| most.max(x.abs()));
    let apart = one.iter().zip(other).map(|(x, y)| (number(x) - number(y)).abs()).fold(0.0_f64, f64::max);
    assert!(one.len() == other.len() && apart.is_finite());
    if apart == 0.0 { 0.0 } else { apart / largest }
}

#[test]
fn replicas_train_like_one_device() {
    let cases = [
        (DATA_PARALLEL, 2, 4, "data_parallel"),
        (DATA_PARALLEL, 4, 8, "data_parallel"),
        (DATA_PARALLEL, 4, 7, "data_parallel(replicas = 4)"),
        (DATA_PARALLEL, 6, 5, "data_parallel(replicas = 3)"),
        (BIDIRECTIONAL, 2, 4, "bidirectional"),
        (BIDIRECTIONAL, 3, 5, "bidirectional"),
        (BIDIRECTIONAL, 4, 6, "bidirectional"),
        ("", 4, 6, "dp_1f1b"),
        ("", 3, 5, "dp_1f1b(replicas = 3)"),
        ("", 4, 8, "chimera"),
        ("", 2, 5, "chimera"),
        ("", 4, 10, "dualpipe"),
        ("", 2, 4, "dualpipe"),
    ];
    for (source, devices, microbatches, schedule) in cases {
        let alone = learn(&verified("", 1, microbatches, "1f1b"), None);
        let program = verified(source, devices, microbatches, schedule);
        assert!(program.program().n_collectives() > 0, "{schedule}");
        let plain = learn(&program, None);
        assert_eq!(plain.0[0], alone.0[0], "losses of the first step: {schedule} on {devices} devices");
        // Of weights after two steps, Adam makes more of small differences.
        for ((own, expected), allowed) in plain.1.iter().zip(&alone.1).zip([1e-6, 1e-3, 1e-3]) {
            assert_eq!(own.len(), expected.len());
            for ((name, own), (_, expected)) in own.iter().zip(expected) {
                let distance = distance(expected, own);
                assert!(distance <= allowed, "{name}: {distance} in {schedule} on {devices} devices");
            }
        }
        for stress in [None, Some(3), Some(4)] {
            assert!(learn(&program, stress) == plain, "{schedule} on {devices} devices, stress {stress:?}");
        }
    }
}

#[test]
fn a_reduction_starts_right_after_the_last_contribution_and_ends_before_the_update() {
    let program = verified(DATA_PARALLEL, 4, 8, "data_parallel");
    let program = program.program();
    let groups = [[0, 2], [1, 3]].map(|group| group.map(DeviceId).to_vec());
    assert!(groups.iter().all(|group| program.groups.contains(group)) && program.groups.len() == 2);
    for code in &program.devices {
        let names = code.step.iter().filter(|one| !matches!(one, Instruction::Free { .. })).map(Instruction::word);
        let names: Vec<&str> = names.collect();
        let start = names.iter().position(|name| *name == "coll.start").expect("a reduction");
        let update = names.iter().rposition(|name| *name == "run").expect("an update");
        let backward = names[..update].iter().rposition(|name| *name == "run").expect("a backward");
        assert!(backward < start && names[backward + 1..start].iter().all(|name| *name == "send.start"), "{names:?}");
        assert_eq!(names[update - 1], "wait");
    }
}
