//! Four optimizer steps of a small GPT, in single and in double precision, against an independent
//! implementation in double precision.
//!
//! `tests/data/reference_gpt` says how its figures were made: weights and tokens are given by formulas.

use pipe_ir::graph::DType;
use pipe_ir::ids::MicrobatchId;
use pipe_ir::value::{TensorSlot, ValueKind};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::cases::report;
use pipe_tests::pipelines::program;
use pipe_tests::training::places;
use serde_json::Value;
use std::sync::Arc;

const FIGURES: &str = include_str!("../data/reference_gpt/reference_gpt_mixed.json");
const ADAMW: &str = "adamw(learning_rate = 0.01, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, epsilon = 0.00000001)";
const SGD: &str = "sgd(learning_rate = 0.1)";

/// Devices and schedules that share out the four layers.
const LAYOUTS: [(u32, &str); 5] = [(1, "1f1b"), (2, "zb_v"), (2, "v_half"), (4, "zb_h1"), (2, "interleaved_1f1b")];

fn pipeline((devices, schedule): (u32, &str), precision: &str, optimizer: &str) -> String {
    format!(
        "import std.models.gpt
        pipeline reference {{
            model gpt(vocab = 32, hidden = 16, heads = 2, blocks = 2, sequence = 8, rows = 2)
            precision {precision}
            devices {devices} memory 1GiB
            microbatches 2
            schedule {schedule}
            train {{ data synthetic steps 4 seed 1 optimizer {optimizer} }}
        }}"
    )
}

/// The reference's tokens; a target is the next token.
fn tokens(step: u64, microbatch: MicrobatchId, slot: &TensorSlot, bytes: &mut [u8]) {
    assert_eq!((slot.ty.dtype, slot.ty.shape.as_slice()), (DType::I32, [2, 8].as_slice()), "{}", slot.name);
    let skip = usize::from(slot.name == "targets");
    for (position, out) in bytes.chunks_exact_mut(4).enumerate() {
        let (row, at) = (position / 8, position % 8 + skip);
        let token = (7 * at + 3 * row + 11 * microbatch.index() + 5 * step as usize) % 32;
        out.copy_from_slice(&(token as i32).to_ne_bytes());
    }
}

/// Starts a run with the reference's weights.
fn start(text: &str) -> Run {
    let program = Arc::new(program(text).expect("accepted"));
    let data = Arc::new(Data::from_fn(program.program(), Box::new(tokens)));
    let mut run = Run::start(program, &Options::new(Backend::Cpu, 1), data).expect("starts");
    for (i, (value, tensor)) in places(run.program(), ValueKind::Parameters).into_iter().enumerate() {
        let slot = &run.program().value(value).tensors[tensor];
        let base = f64::from(u8::from(slot.name.ends_with("gain")));
        let weight = |j: u64| {
            let (i, j) = (i as f64, j as f64);
            base + 0.2 * (0.7 * i + 0.9 * j + 0.03 * j * j).sin()
        };
        let weights: Vec<f64> = (0..slot.ty.elements()).map(weight).collect();
        assert!(run.write(value, tensor, &weights));
    }
    run
}

fn figure(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Sum, and sum with weights that repeat from 1 to 7.
fn checksums(elements: &[f64]) -> [f64; 2] {
    let weighted = elements.iter().enumerate().map(|(at, element)| element * (1 + at % 7) as f64);
    [elements.iter().sum(), weighted.sum()]
}

/// What differs from the figures in the parameters (or gradients) after a step.
fn differences(run: &Run, kind: ValueKind, expected: &Value, tolerance: impl Fn(&str) -> f64) -> Vec<String> {
    let places = places(run.program(), kind);
    assert_eq!(places.len(), expected.as_array().expect("a list").len());
    let mut found = Vec::new();
    for ((value, tensor), expected) in places.into_iter().zip(expected.as_array().expect("a list")) {
        let name = &run.program().value(value).tensors[tensor].name;
        let sums = checksums(&run.read(value, tensor).expect("a device holds it"));
        for (at, sum) in sums.into_iter().enumerate() {
            let expected = figure(&expected[at]);
            if (sum - expected).abs() > tolerance(name) * (1.0 + expected.abs()) {
                found.push(format!("{} of {name}: {sum}, not {expected}", ["sum", "weighted sum"][at]));
            }
        }
    }
    found
}

fn agree(text: &str, figures: &Value, tolerance: impl Fn(&str) -> f64) -> Vec<String> {
    let mut run = start(text);
    let mut found = Vec::new();
    for (step, expected) in figures.as_array().expect("a list").iter().enumerate() {
        let report = run.step(step as u64).expect("steps");
        for ((_, loss), expected) in report.losses.iter().zip(expected["microbatch_losses"].as_array().expect("a list"))
        {
            let expected = figure(expected);
            if (loss - expected).abs() > tolerance("loss") * expected {
                found.push(format!("step {step}: loss {loss}, not {expected}"));
            }
        }
        assert_eq!(report.losses.len(), 2);
        let gradients = differences(&run, ValueKind::ParameterGradients, &expected["grad_checksums"], &tolerance);
        let parameters = differences(&run, ValueKind::Parameters, &expected["param_checksums"], &tolerance);
        found.extend(gradients.iter().map(|text| format!("step {step}, gradient: {text}")));
        found.extend(parameters.iter().map(|text| format!("step {step}: {text}")));
    }
    found
}

/// Compares every layout, and says which one differs.
fn agree_in_every_layout(precision: &str, optimizer: &str, figures: &str, tolerance: fn(&str) -> f64) {
    let all: Value = serde_json::from_str(FIGURES).expect("the figures are JSON");
    let differences = LAYOUTS.into_iter().flat_map(|layout| {
        let found = agree(&pipeline(layout, precision, optimizer), &all[figures], tolerance);
        found.into_iter().map(move |text| format!("{} on {} devices: {text}", layout.1, layout.0))
    });
    report(&differences.collect::<Vec<_>>());
}

#[test]
fn sgd_agrees_with_the_reference() {
    agree_in_every_layout("f32", SGD, "sgd", |_| 1e-5);
}

#[test]
fn adamw_agrees_with_the_reference() {
    // Biases of keys have a gradient of exactly zero; AdamW makes steps of its rounding errors,
    // without effect on losses.
    agree_in_every_layout("f32", ADAMW, "adamw", |name| if name.ends_with("qkv_bias") { 0.05 } else { 1e-5 });
}

#[test]
fn double_precision_agrees_with_the_reference_to_its_rounding_errors() {
    agree_in_every_layout("f64", SGD, "sgd", |_| 1e-12);
    // As above, but rounding errors below epsilon, 1e-8, make small steps.
    agree_in_every_layout("f64", ADAMW, "adamw", |name| if name.ends_with("qkv_bias") { 1e-6 } else { 1e-11 });
}
