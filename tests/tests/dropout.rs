//! Dropout: masks that follow from the seed, the step, the microbatch and places alone, whatever the layout.

use pipe_compiler::Request;
use pipe_ir::ids::ValueId;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::Run;
use pipe_runtime::checkpoint::state;
use pipe_runtime::numbers::decode;
use pipe_tests::cases::compile_text;
use pipe_tests::ranks::{join, on_ranks};
use pipe_tests::training::{assert_peaks, losses, start, steps};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn verified(text: &str) -> Arc<Verified> {
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}\n{text}", compilation.diagnostics)))
}

const SIZES: &str = "vocab = 24, hidden = 16, heads = 4, blocks = 4, sequence = 8, rows = 2";

/// A GPT with these settings beside its sizes, and these lines of a pipeline.
fn gpt(settings: &str, lines: &str) -> Arc<Verified> {
    verified(&format!(
        "import std.models.gpt
        pipeline p {{
            model gpt({SIZES}, {settings})
            microbatches 4
            {lines}
            train {{ data synthetic steps 20 seed 5 optimizer sgd(learning_rate = 0.5, momentum = 0.9) }}
        }}"
    ))
}

/// Weights and state of the optimizer, by name.
fn tensors(run: &Run) -> BTreeMap<String, Vec<f64>> {
    let tensors = state(run, 3).expect("read").tensors.into_iter();
    tensors.map(|own| (own.name, decode(own.ty.dtype, &own.data))).collect()
}

#[test]
fn every_layout_drops_the_same() {
    let one = |settings: &str| {
        let mut run = start(&gpt(settings, "devices 1 schedule gpipe precision f64"), None);
        let losses = losses(&steps(&mut run, 0..3)).concat();
        (losses, tensors(&run))
    };
    let (expected, weights) = one("dropout = 0.2");
    let (without, _) = one("dropout = 0");
    assert!(expected.iter().zip(&without).all(|(one, other)| one.1 != other.1));
    for (settings, lines) in [
        ("", "devices 4 schedule 1f1b"),
        ("", "devices 2 schedule interleaved_1f1b(chunks = 3)"),
        ("", "devices 2 schedule v_half"),
        ("", "devices 4 schedule zb_h1 recompute all"),
        ("", "devices 4 schedule dp_1f1b(replicas = 2)"),
        ("", "devices 4 schedule chimera zero 3"),
        ("", "devices 2 schedule seq_1f1b"),
        ("", "devices 2 schedule 1f1b offload activations"),
        ("", "devices 2 tensor 2 schedule 1f1b"),
        (", sequence_parallel = 1", "devices 2 tensor 2 schedule zb_h1 recompute all"),
    ] {
        let program = gpt(&format!("dropout = 0.2{settings}"), &format!("{lines} precision f64"));
        let mut run = start(&program, None);
        let reports = steps(&mut run, 0..3);
        assert_peaks(run.program(), &reports);
        // Slices have losses of their own.
        let mean = |losses: &[(_, u64)]| {
            losses.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / losses.len() as f64
        };
        let found = mean(&losses(&reports).concat());
        assert!((found - mean(&expected)).abs() <= 1e-12 * found, "{lines}: {found} and {}", mean(&expected));
        let own = tensors(&run);
        assert!(own.keys().eq(weights.keys()));
        for (name, expected) in &weights {
            let largest = expected.iter().fold(1e-6_f64, |most, x| most.max(x.abs()));
            let apart = expected.iter().zip(&own[name]).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(apart <= 1e-10 * largest, "{lines}, {name}: {apart:e}");
        }
    }
}

#[test]
fn ranks_drop_the_same() {
    let program = gpt("dropout = 0.2", "devices 4 schedule dp_1f1b(replicas = 2)");
    let alone = losses(&steps(&mut start(&program, None), 0..2));
    let reports = on_ranks(4, |job| {
        let mut run = join(&program, None, &job);
        losses(&steps(&mut run, 0..2))
    });
    assert_eq!(reports[0], alone);
}

/// The gradients of weights whose dropout is summed up: 0, or as large for all.
const WEIGHTS: &str = "
    layer first(n) {
        data x: f32[1]
        weight a: [n, 64, 8] = ones
        weight b: [n, 64, 8] = ones
        output x * (sum(dropout(a, 0.25)) + sum(dropout(b, 0.25)))
    }
    layer second(n) {
        input y
        weight c: [n, 64, 8] = ones
        loss reshape(sum(y, 0), []) * 0.000001 + sum(dropout(c, 0.25))
    }
    model m(n = 40) { first(n) second(n) }";

#[test]
fn masks_have_the_rate_and_differ() {
    let lines = "devices 1 microbatches 1 schedule gpipe";
    let train = "data synthetic steps 9 optimizer sgd(learning_rate = 0.000001)";
    let program = verified(&format!("{WEIGHTS} pipeline p {{ model m {lines} train {{ {train} }} }}"));
    let mut run = start(&program, None);
    let mut masks: Vec<(String, Vec<bool>)> = Vec::new();
    for step in 0..2 {
        run.step(step).expect("a step");
        let values = run.program().values.iter().enumerate();
        let gradients = values.filter(|(_, value)| value.kind == ValueKind::ParameterGradients);
        for (index, value) in gradients {
            for (tensor, slot) in value.tensors.iter().enumerate() {
                let numbers = run.read(ValueId::from_index(index), tensor).expect("gradients");
                let kept = numbers.iter().find(|number| **number != 0.0).copied().expect("some are kept");
                assert!(numbers.iter().all(|number| *number == 0.0 || *number == kept), "{}", slot.name);
                masks.push((slot.name.clone(), numbers.iter().map(|number| *number == 0.0).collect()));
            }
        }
    }
    // Counts of independent draws of this probability lie within 5 standard deviations.
    let check = |what: &str, count: usize, of: usize, probability: f64| {
        let (mean, deviation) = (of as f64 * probability, (of as f64 * probability * (1.0 - probability)).sqrt());
        assert!((count as f64 - mean).abs() < 5.0 * deviation, "{what}: {count} of {of}, {mean} expected");
    };
    for (number, (name, mask)) in masks.iter().enumerate() {
        check(name, mask.iter().filter(|dropped| **dropped).count(), mask.len(), 0.25);
        for distance in [1, 2, 8, 64, 512, 513] {
            let pairs = mask.iter().zip(&mask[distance..]);
            let both = pairs.filter(|(one, other)| **one && **other).count();
            check(&format!("{name}, {distance} apart"), both, mask.len() - distance, 0.0625);
        }
        for (other_name, other) in &masks[..number] {
            let both = mask.iter().zip(other).filter(|(one, other)| **one && **other).count();
            check(&format!("{name} and {other_name}"), both, mask.len(), 0.0625);
        }
    }
    // Axes: how many are dropped in each plane.
    for (name, mask) in &masks {
        for (stride, size) in [(512, 40), (8, 64), (1, 8)] {
            for plane in 0..size {
                let own = mask.iter().enumerate().filter(|(at, _)| at / stride % size == plane);
                let dropped = own.filter(|(_, dropped)| **dropped).count();
                check(&format!("{name}, plane {plane} of {size}"), dropped, mask.len() / size, 0.25);
            }
        }
    }
}

#[test]
fn nothing_is_dropped_where_nothing_is_trained() {
    let of = |settings: &str| {
        let program = gpt(settings, "devices 2 schedule 1f1b frozen all");
        losses(&steps(&mut start(&program, None), 0..1))
    };
    assert_eq!(of("dropout = 0.3"), of("dropout = 0"));
}

#[test]
fn a_model_is_the_same_whatever_it_drops() {
    let of = |settings: &str| {
        let program = gpt(settings, "devices 2 schedule 1f1b");
        program.program().training.as_ref().and_then(|training| training.model).expect("a digest")
    };
    assert_eq!(of("dropout = 0.3"), of("dropout = 0"));
    let program = gpt("dropout = 0", "devices 2 schedule 1f1b");
    assert!(program.program().values.iter().flat_map(|value| &value.tensors).all(|slot| !slot.is_key()));
}
