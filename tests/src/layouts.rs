//! Layouts of a small model, which all learn the same: schedules, replicas, slices, tensor-parallel groups, ZeRO.

use crate::cases::compile_text;
use crate::training::{assert_peaks, losses, steps};
use pipe_compiler::Request;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::state;
use pipe_runtime::data::Data;
use pipe_runtime::numbers::decode;
use pipe_runtime::{Backend, Options, Run};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Settings of the model and lines of a pipeline that has 4 microbatches, or 2 in each of two pipelines.
pub const LAYOUTS: [(&str, &str); 11] = [
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
    ("", "devices 2 data 2 schedule zb_v zero 1"),
];

/// Losses of three steps, and all tensors after them, by name.
pub type Learned = (f64, BTreeMap<String, Vec<f64>>);

/// A program.
///
/// # Panics
/// If the text has errors.
#[must_use]
pub fn verified(text: &str) -> Arc<Verified> {
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    let program = compilation.program.unwrap_or_else(|| panic!("{:#?}\n{text}", compilation.diagnostics));
    Arc::new(program.of_members())
}

/// What three steps learn from random data, or from the data in a folder: the mean loss, weights and state of the
/// optimizer.
///
/// # Panics
/// If the run fails, or takes other memory than was compiled.
#[must_use]
pub fn learn(program: &Arc<Verified>, folder: Option<&Path>) -> Learned {
    let data = match folder {
        Some(folder) => Data::open(program.program(), folder).expect("data"),
        None => Data::synthetic(program.program()),
    };
    let options = Options::new(Backend::Cpu, 3);
    let mut run = Run::start(Arc::clone(program), &options, Arc::new(data)).expect("it starts");
    let reports = steps(&mut run, 0..3);
    assert_peaks(run.program(), &reports);
    // Slices have losses of their own.
    let losses = losses(&reports).concat();
    let mean = losses.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / losses.len() as f64;
    let tensors = state(&run, 3).expect("read").tensors.into_iter();
    (mean, tensors.map(|own| (own.name, decode(own.ty.dtype, &own.data))).collect())
}

/// Compares what two layouts learned in double precision.
///
/// # Panics
/// If they differ by more than rounding.
pub fn compare(layout: &str, (loss, tensors): &Learned, (found_loss, found): &Learned) {
    assert!((found_loss - loss).abs() <= 1e-12 * loss.abs(), "{layout}: {found_loss} and {loss}");
    assert!(found.keys().eq(tensors.keys()), "{layout}");
    for (name, expected) in tensors {
        let largest = expected.iter().fold(1e-6_f64, |most, x| most.max(x.abs()));
        let apart = expected.iter().zip(&found[name]).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(apart <= 1e-10 * largest, "{layout}, {name}: {apart:e}");
    }
}
