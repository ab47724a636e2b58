//! Stages with several inputs and outputs: the same gradients in every layout, and those that differences measure.

use super::gradients::check;
use super::{FUSED, SPLIT, compile, noise, sound, step};
use crate::{Kinds, Layer, Leaf, Model, StageRequest, Tape, stages};
use pipe_ir::graph::{Binary, DType, TensorType, Unary};
use pipe_ir::program::Access;
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use pipe_syntax::source::{FileId, Span};
use std::collections::BTreeMap;

const LAYERS: &str = "
    layer start() {
        data tokens: i32[3]
        weight table: [5, 4] = normal(1)
        output gather(table, tokens)
    }
    layer dense() {
        input x
        weight up: [4, 4] = normal(1)
        output tanh(matmul(x, up))
    }";

const CHAIN: &str = "
    layer finish() {
        input x
        data targets: i32[3]
        weight up: [4, 5] = normal(1)
        loss cross_entropy(matmul(x, up), targets)
    }
    model m() { start() repeat 5 { dense() } finish() }";

/// A layer that reads two others: tanh(a) * b + a.
fn join(name: &str, a: usize, b: usize) -> Layer {
    let ty = TensorType::f32(&[3, 4]);
    let mut tape = Tape::new(DType::F32);
    let [left, right] = [0, 1].map(|port| tape.leaf(Leaf::Activation(port), ty.clone()));
    let tanh = tape.unary(Unary::Tanh, left);
    let product = tape.binary(Binary::Mul, tanh, right);
    let output = tape.binary(Binary::Add, product, left);
    let span = Span { file: FileId(0), start: 0, end: 0 };
    let (inputs, weights) = (vec![a, b], Vec::new());
    let (part, carried, names) = (None, Vec::new(), BTreeMap::new());
    Layer { name: name.into(), part, span, inputs, tape, output, weights, carried, names }
}

/// 0 -> 1 -> 2 -> 3(2, 0) -> 4(1, 3) -> 5 -> 6, and the loss reads 6.
fn skips() -> Model {
    let mut model = sound(&format!("{LAYERS}{CHAIN}"), &[]);
    model.layers[3] = join("3.join", 2, 0);
    model.layers[4] = join("4.join", 1, 3);
    model
}

#[test]
fn skip_connections_give_the_same_gradients_in_every_layout() {
    let model = skips();
    let whole = step(&compile(&model, 1, &FUSED, 3), 3, &noise);
    assert!(whole.gradients.values().all(|gradient| gradient.iter().any(|element| *element != 0.0)));
    for n_stages in 1..=7 {
        for kinds in [&FUSED[..], &SPLIT[..]] {
            assert_eq!(step(&compile(&model, n_stages, kinds, 3), 3, &noise), whole, "{n_stages} stages, {kinds:?}");
        }
    }
}

#[test]
fn skip_connections_have_the_derivative_that_differences_measure() {
    for n_stages in [1, 3, 7] {
        check(&skips(), n_stages, noise);
    }
}

#[test]
fn every_reader_writes_a_gradient_of_its_own() {
    let set = compile(&skips(), 7, &FUSED, 1);
    let names = |kind| -> Vec<&str> {
        set.values.iter().filter(|value| value.kind == kind).map(|value| value.name.as_str()).collect()
    };
    let stages = ["s0", "s1", "s2", "s3", "s4", "s5"].map(|stage| format!("activation.{stage}"));
    assert_eq!(names(ValueKind::Activation), stages);
    let gradients = ["s0.s1", "s0.s3", "s1.s2", "s1.s4", "s2", "s3", "s4", "s5"];
    assert_eq!(names(ValueKind::Gradient), gradients.map(|name| format!("gradient.{name}")));
    for value in set.values.iter().enumerate().filter(|(_, value)| value.kind == ValueKind::Gradient) {
        let writers = set.execs.iter().filter(|exec| {
            let writes = |one: &pipe_ir::program::Operand| one.value.index() == value.0 && one.access == Access::Write;
            exec.kind == TaskKind::Backward && exec.operands.iter().any(writes)
        });
        assert_eq!(writers.count(), 1, "{}", value.1.name);
    }
}

#[test]
fn a_stage_hands_on_several_tensors() {
    let request =
        StageRequest { layers: &[0..3, 3..7], kinds: &[Kinds::of(&FUSED); 2], n_microbatches: 1, optimizer: None };
    let set = stages(&skips(), &request);
    let values = set.values.iter().filter(|value| [ValueKind::Activation, ValueKind::Gradient].contains(&value.kind));
    let names: Vec<&str> = values.map(|value| value.name.as_str()).collect();
    let expected = [0, 1, 2].map(|port| [format!("activation.s0.{port}"), format!("gradient.s0.{port}")]);
    assert_eq!(names, expected.concat());
    assert_eq!(step(&set, 1, &noise), step(&compile(&skips(), 1, &FUSED, 1), 1, &noise));
}

const TIED: &str = "
    layer finish() {
        input x
        data targets: i32[3]
        weight rows: [5, 4] = zeros
        loss cross_entropy(matmul(x, transpose(rows, 1, 0)), targets)
    }
    model m() {
        let words = start()
        let first = dense()
        let second = dense() with up = first.up
        dense() with up = second.up
        finish() with rows = words.table
    }";

#[test]
fn tied_weights_have_the_derivative_that_differences_measure() {
    let model = sound(&format!("{LAYERS}{TIED}"), &[]);
    for n_stages in 1..=5 {
        check(&model, n_stages, noise);
        let set = compile(&model, n_stages, &FUSED, 1);
        let names: Vec<String> = step(&set, 1, &noise).gradients.into_keys().collect();
        assert_eq!(names, ["0.start.table", "1.dense.up"], "{n_stages} stages");
    }
}

#[test]
fn stages_that_share_a_weight_are_one_group() {
    let set = compile(&sound(&format!("{LAYERS}{TIED}"), &[]), 5, &FUSED, 1);
    let stages: Vec<Vec<u32>> =
        set.weights.iter().map(|group| group.stages.iter().map(|stage| stage.0).collect()).collect();
    assert_eq!(stages, [vec![0, 4], vec![1, 2, 3]]);
}
