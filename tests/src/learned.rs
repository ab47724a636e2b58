//! What programs learn in three steps, and how far apart two of them are.

use crate::cases::compile_text;
use crate::training::{assert_peaks, losses, start, steps};
use pipe_compiler::Request;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::state;
use pipe_runtime::numbers::decode;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A model with these lines of a pipeline, and four microbatches unless they say how many.
///
/// # Panics
/// If it is not accepted.
pub fn verified(model: &str, lines: &str) -> Arc<Verified> {
    verified_beside("", model, lines)
}

/// The same, beside layers and models of its own.
///
/// # Panics
/// If it is not accepted.
pub fn verified_beside(layers: &str, model: &str, lines: &str) -> Arc<Verified> {
    let microbatches = if lines.contains("microbatches") { "" } else { "microbatches 4" };
    let text = format!(
        "import std.models.gpt
        import std.models.llama
        {layers}
        pipeline p {{
            model {model}
            {microbatches}
            {lines}
            train {{ data synthetic steps 20 optimizer adamw(learning_rate = 0.01) }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}\n{text}", compilation.diagnostics)))
}

/// What three steps learn.
#[derive(PartialEq)]
pub struct Learned {
    /// Of every microbatch of each step.
    pub losses: Vec<f64>,
    /// Weights and state, by name.
    pub tensors: BTreeMap<String, Vec<f64>>,
}

/// What three steps of a program learn.
///
/// # Panics
/// If measured peaks are not the compiled ones.
pub fn learned(program: &Arc<Verified>, stress: Option<u64>) -> Learned {
    let mut run = start(program, stress);
    let reports = steps(&mut run, 0..3);
    assert_peaks(run.program(), &reports);
    let losses = losses(&reports).into_iter().flatten().map(|(_, loss)| f64::from_bits(loss)).collect();
    let tensors = state(&run, 3).expect("read").tensors.into_iter();
    Learned { losses, tensors: tensors.map(|own| (own.name, decode(own.ty.dtype, &own.data))).collect() }
}

/// How far apart two lists of numbers are, by the largest number of the first.
fn distance(one: &[f64], other: &[f64]) -> f64 {
    assert_eq!(one.len(), other.len());
    let largest = one.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    one.iter().zip(other).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs())) / largest
}

/// How far apart tensors of the same names are, each by its largest number.
///
/// # Panics
/// If there are others.
pub fn tensors_apart(one: &BTreeMap<String, Vec<f64>>, other: &BTreeMap<String, Vec<f64>>) -> f64 {
    assert!(one.keys().eq(other.keys()));
    let tensors = one.iter().map(|(name, own)| match name.contains("qkv_bias") {
        // Gradients of the biases of keys are 0, but for rounding, and AdamW divides them by their size.
        true => 0.0,
        false => distance(own, &other[name]),
    });
    tensors.fold(0.0, f64::max)
}

/// How far apart what two programs learn is, by the largest number of each tensor.
///
/// # Panics
/// If they have other tensors.
pub fn apart(one: &Arc<Verified>, other: &Arc<Verified>) -> f64 {
    let (one, other) = (learned(one, None), learned(other, None));
    // Slices have losses of their own.
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let losses = match one.losses.len() == other.losses.len() {
        true => distance(&one.losses, &other.losses),
        false => distance(&[mean(&one.losses)], &[mean(&other.losses)]),
    };
    tensors_apart(&one.tensors, &other.tensors).max(losses)
}

/// A GPT whose head scores tokens with the table that embeds them.
pub const TIED: &str = "
    layer tied_head(hidden, vocab, sequence, rows) {
        input x
        data targets: i32[rows, sequence]
        weight gain: [hidden] = ones
        weight table: [vocab, hidden] = normal(0.02)
        loss cross_entropy(matmul(x * gain, transpose(table, 1, 0)), targets)
    }
    model tied(vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 5, rows = 2) {
        let words = embedding(vocab, hidden, sequence, rows)
        repeat blocks { block(hidden, heads, blocks) }
        tied_head(hidden, vocab, sequence, rows) with table = words.token
    }";
