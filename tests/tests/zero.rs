//! ZeRO: replicas that divide the state of their weights learn the same bits, in as much memory as was predicted.

use pipe_compiler::Request;
use pipe_ir::instruction::Collective;
use pipe_ir::program::Space;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::{Verified, verify};
use pipe_runtime::checkpoint::{resume, save, state};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_schedule::policy::zero::Zero;
use pipe_tests::cases::{compile_text, report};
use pipe_tests::learned::TIED;
use pipe_tests::pipelines::{gpt, in_precision, verified};
use pipe_tests::programs::{assert_read_back, divided, stages_with_updates};
use pipe_tests::schedules::{Dice, Size, replicated};
use pipe_tests::shared::{ADAMW, SIZES, STAGED, collectives, gatherings, held, learn, saved};
use pipe_tests::slice::slice;
use pipe_tests::training::{losses, start, steps};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Compares all stages of ZeRO with a run that divides nothing.
fn differences(name: &str, text: impl Fn(&str) -> String, seed: u64) -> Vec<String> {
    let plain = verified(&text(""));
    let expected = learn(&plain, None, 3);
    let mut found = Vec::new();
    let stressed = |stage: u64| (stage, Some(seed + stage));
    for (stage, stress) in [(1, None), (2, None), (3, None), stressed(1), stressed(2), stressed(3)] {
        let divided = verified(&text(&format!("zero {stage}")));
        let learned = learn(&divided, stress, 3);
        let (exchanged, gathered) =
            (collectives(divided.program(), Collective::AllGather), gatherings(divided.program()));
        if (exchanged > 0, gathered > 0) != (stage < 3, stage == 3) {
            found.push(format!("{name}, zero {stage}: {exchanged} exchanges and {gathered} gatherings of weights"));
        }
        if learned.losses != expected.losses || learned.tensors != expected.tensors {
            found.push(format!("{name}, zero {stage}, stress {stress:?}: other losses, weights or state"));
        }
        if stage == 1 && learned.gradients != expected.gradients
            || stage > 1 && !learned.gradients.iter().all(|(_, bytes)| bytes.is_empty())
        {
            found.push(format!("{name}, zero {stage}, stress {stress:?}: other gradients"));
        }
    }
    found
}

/// Two pipelines side by side, with two stages on each device: weights come and go, more often in
/// the pipeline with more microbatches.
const INTERLEAVED: &str = "
    schedule dp_interleaved {
        stages D
        place s, m on D / 2 * (m % 2) + s % (D / 2)
        order d {
            let own = (M - d / (D / 2) + 1) / 2
            repeat own { F[d % (D / 2)] F[d % (D / 2) + D / 2] }
            repeat own { BW[d % (D / 2) + D / 2] BW[d % (D / 2)] }
        }
    }";

#[test]
fn every_schedule_with_replicas_learns_the_same_bits() {
    let cases = [
        (4, 6, "dp_1f1b"),
        (3, 5, "dp_1f1b(replicas = 3)"),
        (4, 9, "dp_1f1b(replicas = 4)"),
        (4, 2, "dp_1f1b(replicas = 4)"),
        (4, 8, "chimera"),
        (2, 5, "chimera"),
        (2, 4, "dualpipe"),
        (4, 6, "dp_1f1b recompute all"),
        (4, 7, "chimera"),
        (4, 8, "dualpipe"),
        (4, 6, "dp_interleaved"),
        (4, 7, "dp_interleaved"),
        (4, 3, "dp_interleaved"),
    ];
    let mut failures = Vec::new();
    for (seed, (devices, microbatches, schedule)) in slice(3, (0..).zip(cases)) {
        let text = |line: &str| {
            let text = gpt(SIZES, devices, microbatches, &format!("{schedule} {line}"));
            text.replacen("pipeline", &format!("{INTERLEAVED} pipeline"), 1)
        };
        failures.extend(differences(&format!("{schedule} on {devices}"), text, seed));
    }
    report(&failures);
}

#[test]
fn every_optimizer_learns_the_same_bits_in_both_precisions() {
    let mut failures = Vec::new();
    for precision in ["f32", "f64"] {
        for optimizer in
            [ADAMW, "sgd(learning_rate = 0.1)", "sgd(learning_rate = 0.1, momentum = 0.9, weight_decay = 0.01)"]
        {
            let text = |line: &str| {
                let text = gpt(SIZES, 3, 4, &format!("dp_1f1b(replicas = 3) {line}")).replace(ADAMW, optimizer);
                in_precision(precision, &text)
            };
            failures.extend(differences(&format!("{optimizer} in {precision}"), text, 11));
        }
    }
    report(&failures);
}

#[test]
fn tied_weights_learn_the_same_bits() {
    let mut failures = Vec::new();
    for (devices, microbatches, schedule) in [(4, 6, "dp_1f1b"), (4, 6, "chimera"), (2, 4, "chimera")] {
        let text = |line: &str| {
            let text = gpt("", devices, microbatches, &format!("{schedule} {line}"));
            text.replace("gpt()", "tied").replacen("pipeline", &format!("{TIED} pipeline"), 1)
        };
        failures.extend(differences(&format!("{schedule} on {devices}"), text, 5));
    }
    report(&failures);
}

/// Weights of 64 bytes or less, so that some of four devices have nothing to update.
const SMALL: &str = "
    layer line(n) {
        data x: f32[n]
        data y: f32[n]
        weight slope: [1] = normal(1)
        weight offset: [1] = zeros
        let error = x * slope + offset - y
        loss reshape(mean(error * error, 0), [])
    }
    model fit(n = 8) {
        line(n)
    }";

#[test]
fn devices_without_a_share_of_small_weights_have_what_the_others_learn() {
    let text = |line: &str| {
        let text = gpt("", 4, 6, &format!("dp_1f1b(replicas = 4) {line}")).replace("gpt()", "fit");
        text.replacen("pipeline", &format!("{SMALL} pipeline"), 1)
    };
    report(&differences("a line", text, 8));
    let divided = verified(&text("zero 1"));
    let states: Vec<u64> = (0..4).map(|device| held(divided.program(), device, ValueKind::OptimizerState)).collect();
    assert_eq!(
        states.iter().filter(|bytes| **bytes > 0).count(),
        2,
        "two tensors of 4 bytes, 64 bytes apart: {states:?}"
    );
}

/// ZeRO, arXiv 1910.02054, section 5.4 and figure 1: of W + G + K bytes for each weight, stage 1
/// keeps W + G + K / N on each of N devices, stage 2 W + (G + K) / N, and stage 3 (W + G + K) / N.
/// Here weights, gradients and both moments of Adam take 4 bytes each, so that K is 8. Gradients
/// are all there while they are added up; between steps, none of them are.
#[test]
fn each_device_keeps_an_equal_share_of_the_state() {
    for replicas in [2, 3, 4] {
        let text = |line: &str| gpt(SIZES, replicas, 4, &format!("dp_1f1b(replicas = {replicas}) {line}"));
        let [plain, one, two, three] = ["", "zero 1", "zero 2", "zero 3"].map(|line| verified(&text(line)));
        let weights = held(plain.program(), 0, ValueKind::Parameters);
        for device in 0..replicas as usize {
            let of = |program: &Arc<Verified>| {
                [ValueKind::Parameters, ValueKind::ParameterGradients, ValueKind::OptimizerState]
                    .map(|kind| held(program.program(), device, kind))
            };
            assert_eq!(of(&plain), [weights, weights, 2 * weights]);
            let (first, second, third) = (of(&one), of(&two), of(&three));
            assert_eq!((first[0], first[1], second[0], second[1]), (weights, weights, weights, 0));
            assert_eq!((first[2], first[2], third[1]), (second[2], third[2], 0));
            // The share of the state is twice that of the weights.
            assert_eq!(2 * third[0], third[2]);
            let (equal, n) = (2 * weights / u64::from(replicas), u64::from(replicas));
            assert!(first[2] <= equal + 2 * 64 && first[2] + 2 * 64 * n >= equal, "{} of {equal}", first[2]);
            let peak = |program: &Arc<Verified>| program.program().devices[device].peak.0;
            let saved = peak(&plain) - peak(&one);
            assert!(saved + 256 >= 2 * weights - first[2], "{saved} bytes of {}", 2 * weights - first[2]);
            assert!(peak(&two) <= peak(&one));
        }
    }
}

#[test]
fn gradients_leave_stage_by_stage_where_backwards_are() {
    let text = |line: &str| {
        let text = gpt(
            "vocab = 17, hidden = 32, heads = 2, blocks = 10, sequence = 4, rows = 1",
            3,
            3,
            &format!("staged {line}"),
        );
        text.replacen("pipeline", &format!("{STAGED} pipeline"), 1)
    };
    report(&differences("staged", text, 21));
    let peak = |line: &str| verified(&text(line)).program().devices[0].peak.0;
    let [plain, one, two, three] = ["", "zero 1", "zero 2", "zero 3"].map(peak);
    let weights = held(verified(&text("")).program(), 0, ValueKind::Parameters);
    // A sum that takes long hides behind the next stage, and no longer.
    let slow = verified(&text("cost F = 1, BW = 2, comm = 9 zero 2")).program().devices[0].peak.0;
    assert!(slow >= two && one - slow > weights / 3, "{one} {slow} {two} of {weights}");
    // Two thirds of the state, then all gradients but those of a stage or two.
    assert!(plain - one > weights * 5 / 4, "{plain} {one} of {weights}");
    assert!(one - two > weights / 2, "{one} {two} of {weights}");
    // Two thirds of the weights, less those of two stages of six.
    assert!(two - three > weights / 4, "{two} {three} of {weights}");
}

#[test]
fn a_checkpoint_fits_with_and_without() {
    let folder = std::env::temp_dir().join(format!("pipec-zero-{}", std::process::id()));
    let text = |line: &str| gpt(SIZES, 4, 6, &format!("dp_1f1b(replicas = 4) {line}"));
    let programs = ["", "zero 1", "zero 2", "zero 3"].map(|line| verified(&text(line)));
    let mut unbroken = start(&programs[0], None);
    let expected = losses(&steps(&mut unbroken, 0..5));
    for (from, to) in [(0, 1), (1, 0), (2, 0), (1, 2), (0, 3), (3, 0), (3, 1), (2, 3)] {
        let own = folder.join(format!("{from}-{to}"));
        let mut first = start(&programs[from], None);
        steps(&mut first, 0..3);
        save(&own, &state(&first, 3).expect("read")).expect("saved");
        let mut second = start(&programs[to], None);
        assert_eq!(resume(&mut second, &own).expect("fits"), 3);
        assert_eq!(losses(&steps(&mut second, 3..5)), expected[3..], "from {from} to {to}");
        assert_eq!(saved(&second), saved(&unbroken), "from {from} to {to}");
    }
    std::fs::remove_dir_all(&folder).expect("written here");
}

#[test]
fn the_state_of_shares_lives_with_the_hosts() {
    let text = |line: &str| gpt(SIZES, 4, 6, &format!("dp_1f1b {line}")).replace(" memory 4GiB", "");
    let [plain, divided, away] = ["", "zero 1", "zero 1 offload optimizer"].map(|line| verified(&text(line)));
    let (expected, found) = (learn(&plain, None, 3), learn(&away, Some(2), 3));
    assert_eq!((expected.losses, expected.tensors), (found.losses, found.tensors));
    for (own, other) in away.program().devices.iter().zip(&divided.program().devices) {
        assert!(own.host.peak > Bytes::ZERO && own.peak < other.peak);
    }
}

#[test]
fn programs_with_shares_are_read_as_they_are_written() {
    for zero in [2, 3] {
        let program = verified(&gpt(SIZES, 4, 6, &format!("dp_1f1b(replicas = 4) zero {zero}")));
        let program = program.program();
        assert!(program.values.iter().flat_map(|value| &value.tensors).any(|slot| slot.part.is_some()));
        assert_eq!(program.values.iter().any(|value| value.share.is_some()), zero == 3);
        assert!(program.devices.iter().all(|code| code.extent(Space::Host).arena == Bytes::ZERO));
        assert_read_back(program);
    }
}

#[test]
fn the_error_names_the_stage_that_would_fit() {
    let text = |devices: &str, line: &str| {
        gpt(SIZES, 4, 6, &format!("dp_1f1b(replicas = 4) {line}")).replace("devices 4 memory 4GiB", devices)
    };
    let arena = |line: &str| {
        let programs = verified(&text("devices 4", line));
        programs.program().devices.iter().map(|code| code.arena.0).max().unwrap_or_default()
    };
    let limit = arena("zero 1").div_ceil(1024);
    assert!(arena("") > 1024 * limit, "{} {limit}", arena(""));
    let source = text(&format!("devices 4 memory {limit}KiB"), "");
    let (compilation, _) = compile_text("x.pipe", &source, Path::new("."), &Request::default());
    let help: Vec<_> = compilation.diagnostics.iter().filter_map(|found| found.help.as_deref()).collect();
    assert!(help.iter().any(|help| help.contains("`zero 1` would fit: d0 then needs ")), "{help:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_replicas_that_divide_are_verified_and_run_with_the_stated_peak(seed: u64) {
        let mut dice = Dice(seed);
        let size = Size { devices: 2 + dice.below(4), stages: 1 + dice.below(6), microbatches: 1 + dice.below(8) };
        let schedule = replicated(size, &mut dice);
        // Where memory lacks, weights come later.
        for asked in Zero::ALL.map(|zero| (zero, None)).into_iter().chain([(Zero::ALL[2], Some(Bytes(1)))]) {
            let program = verify(divided(&schedule, &stages_with_updates(&schedule), asked));
            let program = Arc::new(program.map_err(|errors| TestCaseError::fail(format!("{errors:#?}")))?);
            let options = Options { stress: Some(seed).filter(|seed| seed % 8 == 0), ..Options::new(Backend::Null, 0) };
            let data = Arc::new(Data::synthetic(program.program()));
            let failure = |error: pipe_runtime::RunError| TestCaseError::fail(error.to_string());
            let mut run = Run::start(Arc::clone(&program), &options, data).map_err(failure)?;
            for step in 0..2 {
                let report = run.step(step).map_err(failure)?;
                let stated = program.program().devices.iter().map(|code| code.peak);
                prop_assert!(report.devices.iter().map(|device| device.peak).eq(stated));
            }
        }
    }
}
