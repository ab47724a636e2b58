//! Layers with several outputs and a loss beside them: against the same model of layers with one output each.

use pipe_compiler::Request;
use pipe_ir::verify::Verified;
use pipe_tests::cases::compile_text;
use pipe_tests::training::{assert_peaks, losses, start, steps};
use std::path::Path;
use std::sync::Arc;

/// Layers that both models have. Weights are not drawn, so that they are the same under other names.
const COMMON: &str = "
layer look(n) { data drawn: i32[2, 4] weight table: [8, n] = normal(0.7) output gather(table, drawn) }
layer blend(n) { input x input gates weight w: [n, n] = ones output tanh(x + 0.1 * matmul(gates, w)) }
";

/// A layer that tells who was asked, and how evenly.
const SEVERAL: &str = "
layer experts(n) {
    input x
    weight router: [n, n] = ones
    weight up: [n, n] = ones
    let scores = matmul(tanh(x), router) * x
    let gates  = softmax(scores)
    loss 0.3 * reshape(mean(mean(mean(gates * gates, 2), 1), 0), [])
    output x + gates * tanh(matmul(x, up)), gates
}
layer guess(n) {
    input x
    data drawn: i32[2, 4]
    weight out: [n, 8] = ones
    loss cross_entropy(matmul(x, out) * 0.1 + concat(2, x, x), drawn)
}
model net(n = 4) {
    look(n)
    let x, gates = experts(n)
    let y = blend(n) from x, gates
    let z, more = experts(n) from y
    blend(n) from z, more
    guess(n)
}";

/// The same, with a layer for each tensor.
const SINGLE: &str = "
layer gate(n) {
    input x
    weight router: [n, n] = ones
    output softmax(matmul(tanh(x), router) * x)
}
layer expert(n) { input x input gates weight up: [n, n] = ones output x + gates * tanh(matmul(x, up)) }
layer evenness() { input gates output 0.3 * reshape(mean(mean(mean(gates * gates, 2), 1), 0), []) }
layer guess(n) {
    input x
    input one
    input other
    data drawn: i32[2, 4]
    weight out: [n, 8] = ones
    loss cross_entropy(matmul(x, out) * 0.1 + concat(2, x, x), drawn) + one + other
}
model net(n = 4) {
    let start = look(n)
    let gates = gate(n)
    let one = evenness()
    let x = expert(n) from start, gates
    let y = blend(n) from x, gates
    let more = gate(n)
    let other = evenness()
    let z = expert(n) from y, more
    let last = blend(n) from z, more
    guess(n) from last, one, other
}";

fn program(layers: &str, pipeline: &str) -> Arc<Verified> {
    let text = format!(
        "{COMMON}{layers}\npipeline p {{ model net precision f64 {pipeline}
        train {{ data synthetic steps 4 seed 3 optimizer adamw(learning_rate = 0.01, epsilon = 0.001) }} }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}\n{text}", compilation.diagnostics)))
}

/// The mean loss of each step.
fn learned(program: &Arc<Verified>) -> Vec<f64> {
    let mut run = start(program, Some(3));
    let reports = steps(&mut run, 0..4);
    assert_peaks(program.program(), &reports);
    let of_step =
        |step: &Vec<(_, u64)>| step.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / step.len() as f64;
    losses(&reports).iter().map(of_step).collect()
}

fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{what}: {found} instead of {expected}");
    }
}

#[test]
fn several_outputs_and_a_loss_beside_them_learn_what_single_ones_do() {
    let expected = learned(&program(SINGLE, "devices 1 microbatches 4 schedule gpipe"));
    assert!(expected.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 1e-4), "it learns: {expected:?}");
    for pipeline in [
        "devices 1 microbatches 4 schedule gpipe",
        "devices 2 microbatches 4 schedule 1f1b",
        "devices 4 microbatches 4 schedule zb_h1",
        "devices 2 microbatches 4 schedule v_half",
        "devices 3 microbatches 4 schedule 1f1b cut [2, 1, 3] recompute all",
        "devices 4 microbatches 4 schedule dp_1f1b(replicas = 2) zero 3",
        "devices 2 microbatches 4 schedule 1f1b offload activations",
    ] {
        assert_near(&learned(&program(SEVERAL, pipeline)), &expected, pipeline);
    }
}

/// The part of each output is that of its line.
#[test]
fn outputs_of_parts_learn_the_same() {
    let expected = learned(&program(SINGLE, "devices 1 microbatches 4 schedule gpipe"));
    let parts = SEVERAL
        .replace("    let scores", "    part route\n    let scores")
        .replace("    output x + gates", "    part apply\n    output x + gates");
    let pipeline = "devices 2 microbatches 4 schedule 1f1b cut [3, 3]
        parts s = if s == 0 then look, route, apply, blend else route, apply, blend, guess";
    assert_near(&learned(&program(&parts, pipeline)), &expected, "parts");
}
