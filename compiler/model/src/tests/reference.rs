//! The standard GPT against figures from an independent implementation: `tests/data/reference_gpt`
//! says how they were made.

use super::{FUSED, GPT, compile, sound, step_on};
use serde_json::Value;
use std::collections::BTreeMap;

const FIGURES: &str = include_str!("../../../../tests/data/reference_gpt/reference_gpt_mixed.json");
const CLASSES: usize = 32;

/// The reference's tokens of step 0; a target is the next token.
fn token(name: &str, microbatch: u32, position: usize) -> f64 {
    let (row, column) = (position / 8, position % 8);
    let at = if name == "targets" { column + 1 } else { column };
    ((7 * at + 3 * row + 11 * microbatch as usize) % CLASSES) as f64
}

fn figure(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Sum, and sum with weights that repeat from 1 to 7.
fn checksums(elements: &[f64]) -> [f64; 2] {
    let weighted = elements.iter().enumerate().map(|(at, element)| element * (1 + at % 7) as f64);
    [elements.iter().sum(), weighted.sum()]
}

#[test]
fn losses_and_gradients_of_a_gpt_agree_with_an_independent_implementation() {
    let figures: Value = serde_json::from_str(FIGURES).expect("the figures are JSON");
    let arguments = [("vocab", 32), ("hidden", 16), ("heads", 2), ("blocks", 2), ("sequence", 8), ("rows", 2)];
    let model = sound(GPT, &arguments);
    let weights =
        model.layers.iter().flat_map(|layer| layer.weights.iter().map(|w| format!("{}.{}", layer.name, w.name)));
    let numbers: BTreeMap<String, usize> = weights.enumerate().map(|(number, name)| (name, number)).collect();
    let weight = |name: &str, j: usize| {
        let (i, j) = (numbers[name] as f64, j as f64);
        f64::from(u8::from(name.ends_with("gain"))) + 0.2 * (0.7 * i + 0.9 * j + 0.03 * j * j).sin()
    };
    let found = step_on(&compile(&model, 2, &FUSED, 2), 2, &weight, &token);
    let expected = &figures["adamw"][0];
    for (microbatch, loss) in found.losses.iter().enumerate() {
        assert!((loss - figure(&expected["microbatch_losses"][microbatch])).abs() < 1e-8, "loss {loss}");
    }
    assert_eq!(found.gradients.len(), figures["parameters"].as_array().expect("a list").len());
    for (name, gradient) in &found.gradients {
        let sums = &expected["grad_checksums"][numbers[name]];
        for (at, sum) in checksums(gradient).into_iter().enumerate() {
            assert!((sum - figure(&sums[at])).abs() < 1e-6, "{name}: {sum}, not {}", sums[at]);
        }
    }
}
