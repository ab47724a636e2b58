//! Models of any shape: chains with layers that skip others, tied weights, attention, branches that join.

use super::one_of;
use crate::schedules::Dice;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A model named `drawn`, and its layers.
pub(super) struct Model {
    pub(super) text: String,
    pub(super) features: BTreeSet<&'static str>,
}

/// Small enough to be compiled and trained many times a second.
const LAYERS: &str = "
layer lookup(width, rows, sequence) {
    data drawn: i32[rows, sequence]
    weight table: [7, width] = normal(1)
    output gather(table, drawn)
}
layer dense(width) {
    input x
    weight matrix: [width, width] = normal(0.5)
    weight bias: [width] = zeros
    output tanh(matmul(x, matrix) + bias)
}
layer plain() {
    input x
    output dropout(x, 0.3) * 0.5 + tanh(x)
}
layer attend(width) {
    input x
    weight query: [width, width] = normal(0.5)
    weight key: [width, width] = normal(0.5)
    output x + causal_attention(matmul(x, query), matmul(x, key), x)
}
layer join(width) {
    input a
    input b
    weight gain: [width] = ones
    output a * gain + b
}
layer sum() {
    input a
    input b
    output tanh(a - b)
}
layer guess(width, rows, sequence) {
    input x
    data drawn: i32[rows, sequence]
    weight table: [7, width] = normal(0.7)
    loss cross_entropy(matmul(x, transpose(table, 1, 0)), drawn)
}
";

impl Model {
    /// A model with at least one layer for each stage, whose sequences can be cut in so many parts.
    pub(super) fn draw(stages: usize, parts: usize, may_tie: bool, dice: &mut Dice) -> Self {
        let (width, rows, sequence) = (2 + dice.below(4), 1 + dice.below(2), parts * (1 + dice.below(2)));
        let mut features = BTreeSet::new();
        let mut text = format!("{LAYERS}model drawn {{\n");
        let n_layers = stages.max(2) + dice.below(4);
        let tie = one_of(&["", "", " with table = l0.table"], dice);
        let tie = if may_tie { tie } else { "" };
        let freezes = dice.below(3) == 0;
        let frozen: Vec<&str> =
            (0..n_layers).map(|_| if freezes && dice.below(2) == 0 { " frozen" } else { "" }).collect();
        if frozen.contains(&" frozen") {
            features.insert("frozen");
        }
        // The last layer learns, and so does the first one if both share a weight.
        let first = if tie.is_empty() { frozen[0] } else { "" };
        let _ = writeln!(text, "let l0 = lookup({width}, {rows}, {sequence}){first}");
        let (mut last, mut dense) = (0, None);
        for (layer, frozen) in frozen.iter().enumerate().take(n_layers - 1).skip(1) {
            let other = dice.below(layer);
            let line = match dice.below(9) {
                0 if layer > 1 => {
                    features.insert("skip");
                    format!("join({width}) from l{last}, l{other}")
                }
                1 if layer > 1 => {
                    features.insert("skip");
                    format!("sum() from l{other}, l{last}")
                }
                2 => format!("plain() from l{last}"),
                3 => format!("attend({width}) from l{last}"),
                4 if may_tie && dense.is_some() => {
                    features.insert("tie");
                    format!("dense({width}) from l{last} with matrix = l{}.matrix", dense.unwrap_or_default())
                }
                _ => {
                    dense = dense.or(Some(layer)).filter(|_| dice.below(3) > 0).or(Some(layer));
                    format!("dense({width}) from l{last}")
                }
            };
            let _ = writeln!(text, "let l{layer} = {line}{frozen}");
            last = layer;
        }
        if !tie.is_empty() {
            features.insert("tie");
        }
        let _ = writeln!(text, "guess({width}, {rows}, {sequence}) from l{last}{tie}\n}}");
        Self { text, features }
    }
}
