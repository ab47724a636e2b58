//! `precision bf16` from source to checkpoint: which tensors are stored in half the bytes, the same
//! bits in every layout, losses beside those of single precision.

use pipe_ir::graph::DType;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::{resume, save, state};
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{report, root};
use pipe_tests::pipelines::{self, gpt, program, verified};
use pipe_tests::training::{Bits, assert_peaks, bits, losses, start, steps};
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 6, rows = 2";

fn in_precision(precision: &str, devices: u32, schedule: &str) -> Arc<Verified> {
    verified(&pipelines::in_precision(precision, &gpt(SIZES, devices, 4, schedule)))
}

fn mixed(devices: u32, schedule: &str) -> Arc<Verified> {
    in_precision("bf16", devices, schedule)
}

/// Losses of some steps, then weights and optimizer state. The measured peaks must be the compiled ones.
fn learn(program: &Arc<Verified>, stress: Option<u64>) -> (Vec<f64>, [Vec<Bits>; 2]) {
    let mut run = start(program, stress);
    let stride = u64::from(program.program().n_steps);
    let reports: Vec<_> = (0..2).flat_map(|step| steps(&mut run, step * stride..step * stride + 1)).collect();
    assert_peaks(program.program(), &reports);
    let losses = losses(&reports).into_iter().flatten().map(|(_, loss)| f64::from_bits(loss)).collect();
    (losses, [ValueKind::Parameters, ValueKind::OptimizerState].map(|kind| bits(&run, kind)))
}

#[test]
fn what_is_kept_and_sent_takes_half_the_bytes() {
    let program = mixed(2, "zb_h1");
    for value in &program.program().values {
        let of = |dtype| value.tensors.iter().filter(|slot| slot.ty.dtype == dtype).count();
        match value.kind {
            ValueKind::Parameters | ValueKind::ParameterGradients | ValueKind::OptimizerState | ValueKind::Loss => {
                assert_eq!(of(DType::F32), value.tensors.len(), "{}", value.name);
            }
            ValueKind::Activation | ValueKind::Gradient | ValueKind::DeferredGradient => {
                assert_eq!(of(DType::BF16), value.tensors.len(), "{}", value.name);
            }
            // Of norms, two numbers of a row stay as they are computed.
            ValueKind::SavedForInput | ValueKind::SavedForWeight => {
                let wide = value.tensors.iter().filter(|slot| slot.ty.dtype == DType::F32);
                let statistics = wide.clone().filter(|slot| slot.name.contains("statistics")).count();
                assert_eq!(statistics, wide.count(), "{value:?}");
            }
            ValueKind::Data | ValueKind::Scratch | ValueKind::Carried | ValueKind::CarriedGradient => {}
            ValueKind::Held | ValueKind::Exchanged | ValueKind::GradientNorm => {}
        }
    }
}

#[test]
fn the_activations_of_shakespeare_take_half_the_bytes() {
    let text = std::fs::read_to_string(root().join("examples/shakespeare.pipe")).expect("the example");
    let [single, mixed] = ["f32", "bf16"].map(|precision| {
        let text = text.replacen("    devices", &format!("    precision {precision}\n    devices"), 1);
        program(&text).unwrap_or_else(|why| panic!("{text}: {why}"))
    });
    let bytes = |program: &Verified, kinds: &[ValueKind]| -> u64 {
        let values = program.program().values.iter();
        values.filter(|value| kinds.contains(&value.kind)).map(|value| value.bytes.0).sum()
    };
    let kept = [ValueKind::SavedForInput, ValueKind::SavedForWeight, ValueKind::DeferredGradient];
    let sent = [ValueKind::Activation, ValueKind::Gradient];
    let state = [ValueKind::Parameters, ValueKind::ParameterGradients, ValueKind::OptimizerState];
    assert_eq!(bytes(&single, &state), bytes(&mixed, &state));
    assert_eq!(bytes(&single, &sent), 2 * bytes(&mixed, &sent));
    // Two numbers of each row of the norms, and tokens, are as large as before.
    let (single, mixed) = (bytes(&single, &kept), bytes(&mixed, &kept));
    assert!(2 * mixed <= single + single / 50, "{mixed} bytes beside {single}");
}

#[test]
fn every_layout_learns_the_same_bits() {
    let layouts = [
        (1, "gpipe"),
        (2, "1f1b"),
        (3, "1f1b recompute all"),
        (2, "zb_v"),
        (4, "zb_h1"),
        (2, "dualpipe_v recompute 0..S - 1"),
        (2, "1f1b offload activations, optimizer"),
    ];
    let first = learn(&mixed(1, "gpipe"), None);
    let mut failures = Vec::new();
    for (seed, (devices, schedule)) in (5..).zip(layouts) {
        if learn(&mixed(devices, schedule), Some(seed)) != first {
            failures.push(format!("{schedule} on {devices} devices"));
        }
    }
    report(&failures);
}

#[test]
fn every_standard_schedule_learns_the_same_bits_with_recomputation() {
    let mut failures = Vec::new();
    for (index, (name, _)) in (0_u64..).zip(SCHEDULES) {
        let plain = learn(&mixed(2, name), None);
        if learn(&mixed(2, &format!("{name} recompute all")), Some(index)) != plain {
            failures.push((*name).to_owned());
        }
    }
    report(&failures);
}

#[test]
fn losses_stay_close_to_those_of_single_precision() {
    for (devices, schedule) in [(2, "1f1b"), (2, "zb_v"), (2, "seq_1f1b(slices = 3)"), (4, "dp_1f1b zero 1")] {
        let [single, mixed] = ["f32", "bf16"].map(|precision| {
            let mut run = start(&in_precision(precision, devices, schedule), None);
            let losses: Vec<f64> = steps(&mut run, 0..20).iter().filter_map(pipe_runtime::StepReport::loss).collect();
            losses
        });
        assert_eq!((single.len(), mixed.len()), (20, 20));
        assert!(single[19] < single[0], "{single:?}");
        for (step, (single, mixed)) in single.iter().zip(&mixed).enumerate() {
            assert!((single - mixed).abs() <= 2e-2 * single.abs(), "{schedule}, step {step}: {mixed} beside {single}");
        }
        assert_ne!(single, mixed, "{schedule}");
    }
}

#[test]
fn a_checkpoint_is_that_of_single_precision() {
    let folder = std::env::temp_dir().join(format!("pipec-mixed-{}", std::process::id()));
    let mut unbroken = start(&mixed(2, "1f1b"), None);
    steps(&mut unbroken, 0..2);
    let file = save(&folder, &state(&unbroken, 2).expect("read")).expect("saved");
    let mut resumed = start(&mixed(4, "zb_h1"), None);
    assert_eq!(resume(&mut resumed, &file).expect("fits"), 2);
    assert_eq!(losses(&steps(&mut resumed, 2..4)), losses(&steps(&mut unbroken, 2..4)));
    assert!(bits(&resumed, ValueKind::OptimizerState) == bits(&unbroken, ValueKind::OptimizerState));
    let mut single = start(&in_precision("f32", 2, "1f1b"), None);
    assert_eq!(resume(&mut single, &file).expect("weights are single precision in both"), 2);
    std::fs::remove_dir_all(folder).expect("the folder is ours");
}
