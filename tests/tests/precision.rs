//! Double precision from source to checkpoint: the same bits in every layout, gradients that
//! differences measure, weights from the same draw as in single precision.

use pipe_ir::graph::DType;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::Run;
use pipe_runtime::checkpoint::{resume, save, state};
use pipe_tests::pipelines::{self, gpt, verified};
use pipe_tests::training::{bits, losses, places, start, steps};
use std::sync::Arc;

const SIZES: &str = "vocab = 7, hidden = 8, heads = 2, blocks = 2, sequence = 5, rows = 2";

fn in_precision(precision: &str, devices: u32, schedule: &str) -> Arc<Verified> {
    verified(&pipelines::in_precision(precision, &gpt(SIZES, devices, 4, schedule)))
}

fn double(devices: u32, schedule: &str) -> Arc<Verified> {
    in_precision("f64", devices, schedule)
}

#[test]
fn every_value_is_in_the_pipelines_precision() {
    for (precision, dtype) in [("f32", DType::F32), ("f64", DType::F64)] {
        let program = in_precision(precision, 2, "zb_h1");
        let tensors = || program.program().values.iter().flat_map(|value| &value.tensors);
        assert!(tensors().all(|slot| slot.ty.dtype == dtype || slot.ty.dtype == DType::I32));
        assert_eq!(program.program().loss_type(), dtype);
        let slots = tensors().filter(|slot| slot.ty.dtype == dtype).count();
        assert!(slots > 50, "{slots} tensors of {dtype}");
    }
}

#[test]
fn every_layout_learns_the_same_bits() {
    let layouts = [(1, "gpipe"), (2, "1f1b"), (2, "zb_v"), (4, "zb_h1")];
    let learned = layouts.map(|(devices, schedule)| {
        let mut run = start(&double(devices, schedule), Some(5));
        let reports = steps(&mut run, 0..3);
        (losses(&reports), bits(&run, ValueKind::Parameters), bits(&run, ValueKind::OptimizerState))
    });
    for (layout, learned_there) in layouts.iter().zip(&learned) {
        assert!(*learned_there == learned[0], "{layout:?}");
    }
}

#[test]
fn weights_start_as_in_single_precision_but_for_the_rounding() {
    let weights = |precision| bits(&start(&in_precision(precision, 2, "1f1b"), None), ValueKind::Parameters);
    let mut more_digits = 0;
    for ((name, single), (_, double)) in weights("f32").iter().zip(&weights("f64")) {
        for (single, double) in single.iter().zip(double) {
            let (single, double) = (f64::from_bits(*single), f64::from_bits(*double));
            assert!((single - double).abs() <= 2.0_f64.powi(-22) * double.abs(), "{name}: {single} and {double}");
            more_digits += usize::from(DType::F32.nearest(double) != double);
        }
    }
    assert!(more_digits > 1000, "{more_digits} weights are no single-precision numbers");
}

/// Loss of the first step with these weights.
fn loss(run: &mut Run, weights: &[Vec<f64>]) -> f64 {
    let places = places(run.program(), ValueKind::Parameters);
    for ((value, tensor), weights) in places.into_iter().zip(weights) {
        assert!(run.write(value, tensor, weights));
    }
    run.step(0).expect("steps").loss().expect("emitted")
}

#[test]
fn gradients_are_what_differences_measure() {
    let mut run = start(&double(2, "zb_h1"), None);
    let all = |run: &Run, kind| -> Vec<Vec<f64>> {
        let read = |(value, tensor)| run.read(value, tensor).expect("a device holds it");
        places(run.program(), kind).into_iter().map(read).collect()
    };
    let weights = all(&run, ValueKind::Parameters);
    loss(&mut run, &weights);
    let gradients = all(&run, ValueKind::ParameterGradients);
    let h = 1e-6;
    for (tensor, gradient) in gradients.iter().enumerate() {
        let position = gradient.len() / 2;
        let mut moved = |by: f64| {
            let mut weights = weights.clone();
            weights[tensor][position] += by;
            loss(&mut run, &weights)
        };
        let measured = (moved(h) - moved(-h)) / (2.0 * h);
        let difference = (measured - gradient[position]).abs();
        assert!(difference < 1e-9, "tensor {tensor}: {}, measured {measured}", gradient[position]);
    }
}

#[test]
fn a_checkpoint_keeps_every_bit_and_its_precision() {
    let folder = std::env::temp_dir().join(format!("pipec-precision-{}", std::process::id()));
    let mut unbroken = start(&double(2, "1f1b"), None);
    steps(&mut unbroken, 0..2);
    let file = save(&folder, &state(&unbroken, 2).expect("read")).expect("saved");
    let mut resumed = start(&double(4, "zb_h1"), None);
    assert_eq!(resume(&mut resumed, &file).expect("fits"), 2);
    assert_eq!(losses(&steps(&mut resumed, 2..4)), losses(&steps(&mut unbroken, 2..4)));
    assert!(bits(&resumed, ValueKind::OptimizerState) == bits(&unbroken, ValueKind::OptimizerState));
    let error = resume(&mut start(&in_precision("f32", 2, "1f1b"), None), &file).expect_err("refused").to_string();
    assert!(error.contains("as f64[7,8], but the program's is f32[7,8]"), "{error}");
    std::fs::remove_dir_all(folder).expect("the folder is ours");
}
