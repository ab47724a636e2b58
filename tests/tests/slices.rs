//! Models cut along their sequence: they learn what whole sequences teach one device, in less
//! memory, and the same from run to run.

use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_tests::pipelines::{self, gpt, in_precision, program};
use pipe_tests::slice::slice;
use pipe_tests::training::{Bits, bits, distance, losses, start, steps};
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 8, rows = 2";

fn verified(precision: &str, devices: u32, schedule: &str) -> Arc<Verified> {
    pipelines::verified(&in_precision(precision, &gpt(SIZES, devices, 5, schedule)))
}

/// Mean losses of two steps, gradients after the first, weights after the second.
fn learn(program: &Arc<Verified>, stress: Option<u64>) -> (Vec<f64>, [Vec<Bits>; 2]) {
    let mut run = start(program, stress);
    let mut reports = steps(&mut run, 0..1);
    let gradients = bits(&run, ValueKind::ParameterGradients);
    reports.extend(steps(&mut run, 1..2));
    let mean =
        |step: Vec<(_, u64)>| step.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / step.len() as f64;
    (losses(&reports).into_iter().map(mean).collect(), [gradients, bits(&run, ValueKind::Parameters)])
}

#[test]
fn slices_teach_what_whole_sequences_teach() {
    for (precision, gradients, weights) in [("f32", 1e-6, 1e-3), ("f64", 1e-12, 1e-9)] {
        let alone = learn(&verified(precision, 1, "1f1b"), None);
        for slices in [1, 2, 4, 8] {
            let schedule = format!("seq_1f1b(slices = {slices})");
            let on_one = learn(&verified(precision, 1, &schedule), None);
            let loss = (on_one.0[0] - alone.0[0]).abs() / alone.0[0];
            assert!(loss < gradients, "{schedule}: loss {loss}");
            for ((own, expected), allowed) in on_one.1.iter().zip(&alone.1).zip([gradients, weights]) {
                let apart = distance(expected, own);
                assert!(apart < allowed, "{schedule} in {precision}: {apart}");
            }
            for (devices, stress) in [(2, None), (3, Some(5)), (4, Some(6))] {
                let there = learn(&verified(precision, devices, &schedule), stress);
                assert!(there == on_one, "{schedule} on {devices} devices, stress {stress:?}");
            }
        }
    }
}

/// TeraPipe (arXiv 2102.07988): all slices of all microbatches go forward, then all go backward.
fn terapipe(precision: &str, devices: u32, shares: &str, tasks: &str) -> Arc<Verified> {
    let schedule = format!(
        "schedule terapipe {{
            stages D
            slices {shares}
            place s on s
            order d {{
                repeat M * Q {{ F[d] }}
                repeat M * Q {{ {tasks} }}
            }}
        }}"
    );
    pipelines::verified(&format!("{}\n{schedule}", in_precision(precision, &gpt(SIZES, devices, 3, "terapipe"))))
}

#[test]
fn slices_of_unequal_length_teach_what_whole_sequences_teach() {
    let alone = pipelines::verified(&in_precision("f64", &gpt(SIZES, 1, 3, "1f1b")));
    let alone = learn(&alone, None);
    for shares in slice(2, ["[3, 2, 2, 1]", "[1, 7]", "[1, 1, 1, 1, 4]", "[6, 10]", "[2, 1, 1]"]) {
        for tasks in ["BW[d]", "B[d] W[d]", "R[d] BW[d]"] {
            let on_one = learn(&terapipe("f64", 1, shares, tasks), None);
            let loss = (on_one.0[0] - alone.0[0]).abs() / alone.0[0];
            assert!(loss < 1e-12, "{shares} {tasks}: loss {loss}");
            for ((own, expected), allowed) in on_one.1.iter().zip(&alone.1).zip([1e-12, 1e-9]) {
                let apart = distance(expected, own);
                assert!(apart < allowed, "{shares} {tasks}: {apart}");
            }
            let there = learn(&terapipe("f64", 4, shares, tasks), Some(7));
            assert!(there == on_one, "{shares} {tasks} on 4 devices");
        }
    }
}

#[test]
fn a_slice_that_is_nearly_nothing_has_values_of_its_own() {
    let text = "schedule few {
        stages D
        slices [99999998, 1, 1]
        place s on s
        order d {
            repeat M * Q { F[d] }
            repeat M * Q { BW[d] }
        }
    }
    pipeline test { devices 2 microbatches 2 schedule few }";
    let found = program(text).expect("accepted");
    assert!(found.program().values.iter().all(|value| value.bytes.0 > 0));
}

#[test]
fn slices_of_unequal_length_are_told_apart_in_the_text_of_a_program() {
    let program = terapipe("f32", 2, "[3, 2, 2, 1]", "BW[d]");
    let text = pipe_ir::text::print(program.program());
    assert!(text.starts_with("program test stages 2 microbatches 12 slices [3,2,2,1]\n"), "{}", &text[..80]);
    assert_eq!(pipe_ir::text::parse(&text).expect("it can be read").program, *program.program());
    // The first slice has 3 of 8 positions, and the last one has 1.
    let bytes = |name: &str| program.program().values.iter().find(|value| value.name == name).expect(name).bytes.0;
    assert_eq!([bytes("activation.s0.q0"), bytes("activation.s0.q3")], [384, 128]);
}

#[test]
fn slices_need_less_memory_than_whole_sequences() {
    let peaks = ["1f1b", "seq_1f1b(slices = 2)", "seq_1f1b(slices = 4)"].map(|schedule| {
        let program = verified("f32", 4, schedule);
        program.program().devices.iter().map(|code| code.peak).max().expect("four devices")
    });
    assert!(peaks[1] < peaks[0] && peaks[2] < peaks[1], "{peaks:?}");
}

/// A model of numbers and targets, both cut along the sequence.
fn of_numbers(precision: &str, schedule: &str) -> Arc<Verified> {
    let text = format!(
        "layer guess(width, sequence, rows) {{
            data seen: f32[rows, sequence, width]
            data drawn: i32[rows, sequence]
            weight matrix: [width, 7] = normal(0.7)
            loss cross_entropy(matmul(seen, matrix), drawn)
        }}
        model numbers(width = 3, sequence = 4, rows = 2) {{ guess(width, sequence, rows) }}
        pipeline test {{
            model numbers
            precision {precision}
            devices 1
            microbatches 2
            schedule {schedule}
            train {{ data synthetic steps 2 seed 7 optimizer adamw(learning_rate = 0.01) }}
        }}"
    );
    Arc::new(program(&text).expect("accepted"))
}

#[test]
fn slices_of_numbers_are_parts_of_the_whole() {
    for (precision, allowed) in [("f32", 1e-6), ("f64", 1e-12)] {
        let whole = learn(&of_numbers(precision, "1f1b"), None);
        for schedule in ["seq_1f1b(slices = 2)", "seq_1f1b(slices = 4)"] {
            let apart = distance(&whole.1[0], &learn(&of_numbers(precision, schedule), None).1[0]);
            assert!(apart < allowed, "{schedule} in {precision}: {apart}");
        }
    }
}
