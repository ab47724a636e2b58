//! Runs of a small GPT: every layout, delay and device count gives the same bits, memory is as predicted, faults end runs.

use pipe_ir::ids::{MicrobatchId, ValueId};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Loader, Options, Run, RunError, StepReport};
use pipe_tests::pipelines::{gpt, program};
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 5, rows = 2";

fn verified(devices: u32, schedule: &str) -> Arc<Verified> {
    Arc::new(program(&gpt(SIZES, devices, 4, schedule)).expect("accepted"))
}

/// Losses of three steps and the weights after them, by name.
fn train(program: &Arc<Verified>, stress: Option<u64>) -> (Vec<StepReport>, Vec<(String, Vec<u32>)>) {
    let data = Arc::new(Data::synthetic(program.program()));
    let mut run =
        Run::start(Arc::clone(program), &Options { stress, ..Options::new(Backend::Cpu, 3) }, data).expect("starts");
    let reports = (0..3).map(|step| run.step(step).expect("steps")).collect();
    let mut weights = Vec::new();
    for (index, value) in program.program().values.iter().enumerate() {
        for (slot, tensor) in value.tensors.iter().enumerate().filter(|_| value.kind == ValueKind::Parameters) {
            let numbers = run.read(ValueId::from_index(index), slot).expect("a device holds it");
            weights.push((tensor.name.clone(), numbers.iter().map(|number| number.to_bits()).collect()));
        }
    }
    weights.sort();
    (reports, weights)
}

fn losses(reports: &[StepReport]) -> Vec<Vec<(MicrobatchId, u32)>> {
    let bits = |report: &StepReport| report.losses.iter().map(|(m, loss)| (*m, loss.to_bits())).collect();
    reports.iter().map(bits).collect()
}

#[test]
fn layouts_and_delays_change_no_bit() {
    let (reports, weights) = train(&verified(1, "1f1b"), None);
    assert!(reports.iter().all(|report| report.losses.len() == 4));
    for (devices, schedule, stress) in
        [(2, "1f1b", None), (3, "gpipe", None), (2, "v_half", Some(5)), (4, "zb_h1", Some(6))]
    {
        let (other_reports, other_weights) = train(&verified(devices, schedule), stress);
        assert_eq!(losses(&reports), losses(&other_reports), "{schedule} on {devices}");
        assert_eq!(weights, other_weights, "{schedule} on {devices}");
    }
}

#[test]
fn the_loss_of_untrained_weights_is_that_of_guessing() {
    let (reports, _) = train(&verified(2, "1f1b"), None);
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
