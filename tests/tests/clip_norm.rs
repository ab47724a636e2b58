//! Clipping by the norm of all gradients: every layout computes the norm that one device computes, and scales by it.

use pipe_compiler::Request;
use pipe_ir::ids::ValueId;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::Run;
use pipe_runtime::checkpoint::state;
use pipe_runtime::numbers::decode;
use pipe_tests::cases::compile_text;
use pipe_tests::learned::{TIED, tensors_apart};
use pipe_tests::programs::assert_read_back;
use pipe_tests::ranks::{join, on_ranks};
use pipe_tests::slice::slice;
use pipe_tests::training::{assert_peaks, places, start, steps};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const GPT: &str = "gpt(vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 5, rows = 2)";
const SGD: &str = "sgd(learning_rate = 0.2, momentum = 0.9, weight_decay = 0.01)";
const ADAMW: &str = "adamw(learning_rate = 0.01, weight_decay = 0.1)";

/// A pipeline of a model, with its lines and its training settings.
fn verified(model: &str, lines: &str, train: &str) -> Arc<Verified> {
    let text = format!(
        "import std.models.gpt
        import std.models.llama
        {TIED}
        pipeline p {{
            model {model}
            microbatches 4
            {lines}
            train {{ data synthetic steps 20 {train} }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    Arc::new(
        compilation
            .program
            .unwrap_or_else(|| panic!("{:#?} {:#?}\n{text}", compilation.diagnostics, compilation.our_mistakes)),
    )
}

/// Three steps: the norm of each, and weights and state by name. Measured peaks must be the compiled ones.
#[derive(PartialEq, Debug)]
struct Learned {
    norms: Vec<f64>,
    tensors: BTreeMap<String, Vec<f64>>,
}

fn learned(program: &Arc<Verified>, stress: Option<u64>) -> Learned {
    let mut run = start(program, stress);
    let mut norms = Vec::new();
    for step in 0..3 {
        let reports = steps(&mut run, step..step + 1);
        assert_peaks(run.program(), &reports);
        norms.push(run.gradient_norm().expect("a norm"));
        equal_everywhere(&run);
    }
    let tensors = state(&run, 3).expect("read").tensors.into_iter();
    Learned { norms, tensors: tensors.map(|own| (own.name, decode(own.ty.dtype, &own.data))).collect() }
}

/// All devices know the same bits of the sum of squares.
fn equal_everywhere(run: &Run) {
    let norm = run.program().gradient_norm().expect("a norm");
    let all = run.read_all(norm, 0);
    assert_eq!(all.len(), run.program().devices.len());
    assert!(all.windows(2).all(|pair| pair[0][..8] == pair[1][..8]));
}

/// How far apart two runs are: their norms, and each tensor by its largest number.
fn apart(one: &Learned, other: &Learned) -> [f64; 2] {
    let norms = one.norms.iter().zip(&other.norms).map(|(a, b)| (a - b).abs() / a);
    [norms.fold(0.0, f64::max), tensors_apart(&one.tensors, &other.tensors)]
}

#[test]
fn every_layout_has_the_norm_of_one_device() {
    let tied = "tied()";
    let llama = "llama(vocab = 24, hidden = 16, heads = 4, blocks = 4, sequence = 8, rows = 2)";
    let gpt = "gpt(vocab = 24, hidden = 16, heads = 4, blocks = 4, sequence = 8, rows = 2)";
    let cases = [
        (GPT, "devices 4 schedule 1f1b"),
        (GPT, "devices 2 schedule interleaved_1f1b(chunks = 2)"),
        (GPT, "devices 2 schedule v_half"),
        (GPT, "devices 4 schedule zb_h1 recompute all"),
        (GPT, "devices 4 schedule dp_1f1b(replicas = 2)"),
        (GPT, "devices 4 schedule dp_1f1b(replicas = 2) zero 1"),
        (GPT, "devices 4 schedule dp_1f1b(replicas = 4) zero 2"),
        (GPT, "devices 4 schedule dp_1f1b(replicas = 2) zero 3"),
        (GPT, "devices 4 schedule chimera zero 1"),
        (GPT, "devices 4 schedule chimera zero 3"),
        (GPT, "devices 2 schedule 1f1b offload optimizer"),
        (GPT, "devices 2 schedule 1f1b offload optimizer, parameters, activations"),
        (GPT, "devices 4 schedule dp_1f1b(replicas = 2) zero 1 offload optimizer"),
        (tied, "devices 4 schedule 1f1b"),
        (tied, "devices 4 schedule dp_1f1b(replicas = 2) zero 2"),
        (tied, "devices 4 schedule chimera zero 3"),
        (llama, "devices 2 tensor 2 schedule zb_h1"),
        (gpt, "devices 1 tensor 2 schedule gpipe"),
        (gpt, "devices 2 tensor 2 schedule dp_1f1b(replicas = 2)"),
        (gpt, "devices 2 tensor 2 schedule dp_1f1b(replicas = 2) zero 1"),
        (gpt, "devices 2 tensor 2 schedule dp_1f1b(replicas = 2) zero 3"),
        (gpt, "devices 2 tensor 4 schedule interleaved_1f1b(chunks = 2) offload optimizer"),
    ];
    let mut failures = Vec::new();
    for (number, (model, lines)) in slice(3, (0..).zip(cases)) {
        let optimizer = if number % 2 == 0 { SGD } else { ADAMW };
        let train = format!("optimizer {optimizer} clip_norm 0.03");
        let one = learned(&verified(model, "devices 1 schedule gpipe precision f64", &train), None);
        assert!(one.norms.iter().any(|norm| *norm > 0.03), "{:?} are not clipped", one.norms);
        let program = verified(model, &format!("{lines} precision f64"), &train);
        if model != llama {
            // Constants of rotations in double precision lose a bit in JSON.
            assert_read_back(program.program());
        }
        let other = learned(&program, None);
        let [norms, tensors] = apart(&one, &other);
        if norms > 1e-10 || tensors > 1e-10 {
            failures.push(format!("{model} {lines}: norms {norms:e}, tensors {tensors:e} apart"));
        }
        if other != learned(&program, Some(number)) {
            failures.push(format!("{model} {lines}: other bits under stress"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_job_of_ranks_has_the_bits_of_one_process() {
    for (ranks, lines) in [
        (2, "devices 4 schedule 1f1b"),
        (4, "devices 4 schedule dp_1f1b(replicas = 2) zero 3"),
        (2, "devices 2 tensor 2 schedule dp_1f1b(replicas = 2) zero 1"),
    ] {
        let train = format!("optimizer {SGD} clip_norm 0.03");
        let program = verified(&GPT.replace("17", "24"), lines, &train);
        let alone = learned(&program, None).norms;
        let norms = on_ranks(ranks, |job| {
            let mut run = join(&program, None, &job);
            let norm = |step| {
                run.step(step).expect("a step");
                run.gradient_norm().expect("a norm")
            };
            (0..3).map(norm).collect::<Vec<f64>>()
        });
        assert!(norms.iter().all(|own| *own == alone), "{lines}: {norms:?}, {alone:?}");
    }
}

/// Numbers of all tensors of a kind, in the order of their names.
fn numbers(run: &Run, kind: ValueKind) -> Vec<f64> {
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for (value, tensor) in places(run.program(), kind) {
        let name = run.program().value(value).tensors[tensor].name.clone();
        found.push((name, run.read(value, tensor).expect("numbers")));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.into_iter().flat_map(|(_, numbers)| numbers).collect()
}

/// `torch.nn.utils.clip_grad_norm_`: gradients are multiplied with `min(1, most / (norm + 1e-6))`.
#[test]
fn gradients_are_scaled_as_pytorch_does() {
    for most in [0.05, 0.2, 1e9] {
        let train = format!("optimizer sgd(learning_rate = 0.5) clip_norm {most:?}");
        let program = verified(GPT, "devices 2 schedule 1f1b precision f64", &train);
        let mut run = start(&program, None);
        for step in 0..3 {
            let before = numbers(&run, ValueKind::Parameters);
            run.step(step).expect("a step");
            let (after, gradients) =
                (numbers(&run, ValueKind::Parameters), numbers(&run, ValueKind::ParameterGradients));
            let norm = gradients.iter().map(|g| g * g).sum::<f64>().sqrt();
            let found = run.gradient_norm().expect("a norm");
            assert!((found - norm).abs() <= 1e-14 * norm, "{found} instead of {norm}");
            let scale = (most / (norm + 1e-6)).min(1.0);
            assert_eq!(scale < 1.0, most < 1.0, "{norm}");
            for ((before, after), gradient) in before.iter().zip(&after).zip(&gradients) {
                let expected = before - 0.5 * (scale * gradient);
                assert!((after - expected).abs() <= 1e-15, "{after} instead of {expected}");
            }
        }
    }
}

/// In single precision and with rounded activations, layouts differ by rounding.
#[test]
fn single_and_mixed_precision_have_nearly_the_same_norm() {
    let train = format!("optimizer {SGD} clip_norm 0.03");
    for (precision, most) in [("f32", 1e-5), ("bf16", 2e-2)] {
        let of = |lines: &str| learned(&verified(GPT, &format!("{lines} precision {precision}"), &train), None).norms;
        let one = of("devices 1 schedule gpipe");
        for lines in ["devices 4 schedule 1f1b", "devices 4 schedule dp_1f1b(replicas = 2) zero 2"] {
            let other = of(lines);
            let far = one.iter().zip(&other).map(|(a, b)| (a - b).abs() / a).fold(0.0, f64::max);
            assert!(far <= most, "{precision} {lines}: {one:?}, {other:?}");
        }
    }
}

/// What is not clipped learns what it learns without the line, bit for bit.
#[test]
fn a_norm_that_is_small_enough_changes_nothing() {
    let lines = "devices 4 schedule dp_1f1b(replicas = 2) zero 1";
    let clipped = learned(&verified(GPT, lines, &format!("optimizer {ADAMW} clip_norm 1e9")), None);
    let plain = verified(GPT, lines, &format!("optimizer {ADAMW}"));
    assert_eq!(plain.program().gradient_norm(), None);
    let mut run = start(&plain, None);
    steps(&mut run, 0..3);
    assert_eq!(run.gradient_norm(), None);
    let tensors = state(&run, 3).expect("read").tensors.into_iter();
    let tensors: BTreeMap<String, Vec<f64>> = tensors.map(|own| (own.name, decode(own.ty.dtype, &own.data))).collect();
    assert_eq!(clipped.tensors, tensors);
}

/// A value that no checkpoint has: the norm is of one step.
#[test]
fn checkpoints_do_not_have_the_norm() {
    let program = verified(GPT, "devices 2 schedule 1f1b", &format!("optimizer {SGD} clip_norm 0.03"));
    let norm: ValueId = program.program().gradient_norm().expect("a norm");
    let name = &program.program().value(norm).tensors[0].name;
    let mut run = start(&program, None);
    steps(&mut run, 0..1);
    assert!(state(&run, 1).expect("read").tensors.iter().all(|tensor| tensor.name != *name));
}
