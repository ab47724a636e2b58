//! Runs of a small GPT: every layout, delay and device count gives the same bits, memory is as
//! predicted, faults end runs.

use pipe_ir::ids::{MicrobatchId, ValueId};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Loader, Options, Run, RunError};
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::report;
use pipe_tests::pipelines::{gpt, program};
use pipe_tests::training::{Bits, bits, losses, start, steps};
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 5, rows = 2";

fn verified(devices: u32, schedule: &str) -> Arc<Verified> {
    Arc::new(program(&gpt(SIZES, devices, 4, schedule)).expect("accepted"))
}

/// What a layout must not change: losses of three steps, gradients of the first, weights and
/// optimizer state of the last.
#[derive(PartialEq)]
struct Learned {
    losses: Vec<Vec<(MicrobatchId, u64)>>,
    gradients: Vec<Bits>,
    weights: Vec<Bits>,
    state: Vec<Bits>,
}

fn learn(program: &Arc<Verified>, stress: Option<u64>) -> Learned {
    let mut run = start(program, stress);
    let mut reports = steps(&mut run, 0..1);
    let gradients = bits(&run, ValueKind::ParameterGradients);
    reports.extend(steps(&mut run, 1..3));
    let [weights, state] = [ValueKind::Parameters, ValueKind::OptimizerState].map(|kind| bits(&run, kind));
    Learned { losses: losses(&reports), gradients, weights, state }
}

/// The first thing in which two runs differ.
fn difference(one: &Learned, other: &Learned) -> Option<String> {
    if one.losses != other.losses {
        return Some(format!("losses: {:?} and {:?}", one.losses, other.losses));
    }
    let tensors =
        |learned: &Learned| [learned.gradients.clone(), learned.weights.clone(), learned.state.clone()].concat();
    let mut pairs = tensors(one).into_iter().zip(tensors(other));
    let differs = pairs.find(|(one, other)| one != other).map(|(one, other)| format!("{} and {}", one.0, other.0));
    differs.or_else(|| (one != other).then(|| "the number of tensors".to_owned()))
}

#[test]
fn every_standard_schedule_trains_like_one_device_bit_by_bit() {
    let alone = learn(&verified(1, "1f1b"), None);
    assert!(alone.losses.iter().all(|step| step.len() == 4));
    assert!(alone.gradients.iter().all(|(_, gradient)| gradient.iter().any(|bits| *bits != 0)), "gradients are kept");
    // Numbers of devices such that the six layers make up all stages.
    let one_stage = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
    let devices = |name: &str| if one_stage.contains(&name) { 3 } else { 2 };
    // Replicas add up in another order, slices cut the arithmetic, and a cycle without a flush
    // reads older weights: they have tests of their own, the cycle the next one.
    let layouts = SCHEDULES
        .iter()
        .filter(|(name, _)| !["seq_1f1b", "cyclic_dp", "dp_1f1b", "chimera", "dualpipe"].contains(name))
        .map(|(name, _)| (devices(name), *name, None));
    let stressed = [
        (3, "v_half", Some(5)),
        (3, "gpipe", Some(8)),
        (4, "zb_h1", Some(6)),
        (2, "interleaved_1f1b", Some(7)),
        (2, "grouped_interleaved(chunks = 3, group = 1)", Some(9)),
        (1, "hanayo(waves = 3)", Some(10)),
        (3, "1f1b_v", Some(11)),
        (2, "looped_bfs(chunks = 3)", Some(12)),
        (1, "dualpipe_v", Some(13)),
    ];
    let mut failures = Vec::new();
    for (devices, schedule, stress) in layouts.chain(stressed) {
        let found = difference(&alone, &learn(&verified(devices, schedule), stress));
        failures.extend(found.map(|found| format!("{schedule} on {devices} devices, stress {stress:?}: {found}")));
    }
    report(&failures);
}

#[test]
fn workers_of_a_cycle_train_like_one_device_bit_by_bit() {
    for fresh in [0, 1] {
        // A window has all ten steps of the training. Two workers have three layers in each of their stages.
        let learn = |devices: u32, workers: u32, stress| {
            let program = verified(devices, &format!("cyclic_dp(workers = {workers}, fresh = {fresh})"));
            assert_eq!(program.program().n_steps, 10);
            let mut run = start(&program, stress);
            let reports = steps(&mut run, 0..1);
            for (measured, stated) in reports[0].devices.iter().zip(&program.program().devices) {
                assert_eq!(measured.peak, stated.peak, "{workers} workers on {devices} devices");
            }
            let [gradients, weights, state] =
                [ValueKind::ParameterGradients, ValueKind::Parameters, ValueKind::OptimizerState]
                    .map(|kind| bits(&run, kind));
            Learned { losses: losses(&reports), gradients, weights, state }
        };
        for workers in [2, 4] {
            let alone = learn(1, workers, None);
            assert_eq!(alone.losses[0].len(), 40);
            for (devices, stress) in [(2, None), (workers, None), (workers, Some(6)), (2, Some(7))] {
                let found = difference(&alone, &learn(devices, workers, stress));
                assert_eq!(found, None, "{workers} workers on {devices} devices, fresh = {fresh}, stress {stress:?}");
            }
        }
    }
}

#[test]
fn halves_of_some_backwards_change_no_bit() {
    let alone = learn(&verified(1, "1f1b"), None);
    let text = "
        schedule halves_at_the_end {
            stages D
            place s on s
            order d {
                let warmup = min(D - 1 - d, M)
                repeat warmup     { F[d] }
                repeat M - warmup { F[d] BW[d] }
                repeat warmup     { B[d] }
                repeat warmup     { W[d] }
            }
        }";
    let text = format!("{text}\n{}", gpt(SIZES, 3, 4, "halves_at_the_end"));
    let mixed = Arc::new(program(&text).expect("accepted"));
    let kinds: Vec<String> = mixed.program().execs.iter().map(pipe_ir::program::Exec::name).collect();
    assert!(["BW.s0", "B.s0", "W.s0", "BW.s2"].iter().all(|name| kinds.iter().any(|kind| kind == name)), "{kinds:?}");
    assert_eq!(difference(&alone, &learn(&mixed, Some(4))), None);
}

#[test]
fn the_loss_of_untrained_weights_is_that_of_guessing() {
    let reports = steps(&mut start(&verified(2, "1f1b"), None), 0..1);
    let loss = reports[0].loss().expect("emitted");
    assert!((loss - 17_f64.ln()).abs() < 0.1, "{loss}");
}

#[test]
fn measured_memory_is_the_predicted_one_on_every_backend() {
    let program = verified(3, "1f1b");
    for backend in [Backend::Null, Backend::Cpu] {
        let data = Arc::new(Data::synthetic(program.program()));
        let mut run = Run::start(Arc::clone(&program), &Options::new(backend, 3), data).expect("starts");
        for step in 0..2 {
            let report = run.step(step).expect("steps");
            for (measured, predicted) in report.devices.iter().zip(&program.program().devices) {
                assert_eq!((measured.peak, measured.high_water), (predicted.peak, predicted.arena), "{backend:?}");
                assert_eq!(measured.instructions, predicted.step.len() as u64);
            }
        }
    }
}

/// The error of a run whose loader misbehaves in the second step.
fn failure(loader: Arc<dyn Loader>) -> RunError {
    let mut run = Run::start(verified(3, "1f1b"), &Options::new(Backend::Cpu, 3), loader).expect("starts");
    run.step(0).expect("all is well");
    let error = run.step(1).expect_err("the loader misbehaves");
    assert_eq!(run.step(2).expect_err("the run is over"), error);
    error
}

#[test]
fn a_fault_of_one_device_ends_the_run_with_its_own_message() {
    let error = failure(Arc::new(|step: u64, _: ValueId, _: MicrobatchId, bytes: &mut [u8]| {
        bytes.fill(if step == 0 { 0 } else { 1 });
    }));
    let text = error.to_string();
    assert!(text.contains("index 16843009") && text.contains("17 rows"), "{text}");
}

#[test]
fn a_panic_of_one_device_ends_the_run_with_its_own_message() {
    let error = failure(Arc::new(|step: u64, _: ValueId, _: MicrobatchId, bytes: &mut [u8]| {
        assert!(step == 0, "the data set is gone");
        bytes.fill(0);
    }));
    assert!(error.to_string().contains("the data set is gone"), "{error}");
}

#[test]
fn a_program_without_bodies_runs_on_the_null_backend_only() {
    let schedule = pipe_tests::schedules::one_f_one_b(3, 4);
    let program = pipe_ir::verify::verify(pipe_tests::programs::program(&schedule)).expect("sound");
    let program = Arc::new(program);
    let data = Arc::new(Data::synthetic(program.program()));
    let start = |backend| Run::start(Arc::clone(&program), &Options::new(backend, 3), data.clone());
    assert!(matches!(start(Backend::Cpu), Err(RunError::Unsupported(_))));
    assert!(start(Backend::Null).expect("starts").step(0).expect("steps").losses.is_empty());
}
