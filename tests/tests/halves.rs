//! Halves of backwards that stand side by side: where both become one run, every bit stays and no
//! device holds more; where others would notice, they stay apart.

use pipe_compiler::Request;
use pipe_ir::ids::MicrobatchId;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_tests::cases::{compile_text, compiled, read, root};
use pipe_tests::training::{Bits, bits, losses, start, steps};
use std::sync::Arc;

const MODEL: &str = "
layer lookup(width) {
    data tokens: i32[2, 4]
    weight table: [7, width] = normal(1)
    output gather(table, tokens)
}
layer dense(width) {
    input x
    weight one: [width, width] = normal(0.5)
    weight other: [width, width] = normal(0.5)
    output x + tanh(matmul(tanh(matmul(tanh(matmul(x, one)), other)), one))
}
layer guess(width) {
    input x
    data targets: i32[2, 4]
    weight table: [7, width] = normal(0.7)
    loss cross_entropy(matmul(x, transpose(table, 1, 0)), targets)
}
model tiny(width = 16) {
    let a = lookup(width)
    let b = dense(width) from a
    let c = dense(width) from b
    let d = dense(width) from c
    let e = dense(width) from d
    let f = dense(width) from e
    let g = dense(width) from f
    guess(width) from g TIE
}
";

/// The program of a pipeline under a schedule; with `apart` every half is a run of its own.
fn program(schedule: &str, lines: &str, apart: bool) -> Verified {
    let tie = if lines.contains("f64") { "with table = a.table" } else { "" };
    let text = MODEL.replace("TIE", tie)
        + schedule
        + &format!(
            "\npipeline p {{ model tiny() train {{ data synthetic steps 2 optimizer adamw(learning_rate = 0.01) }} {lines} }}"
        );
    let request = Request { apart, ..Request::default() };
    let found = compiled("halves.pipe", &text, &request);
    assert!(found.report.ok, "{lines}: {:#?}", found.report.diagnostics);
    found.program.expect("it was accepted")
}

/// By device: how many runs are of both halves.
fn both(program: &Program) -> Vec<usize> {
    let is_both = |one: &&Instruction| match **one {
        Instruction::Run { exec, .. } => program.exec(exec).kind == TaskKind::Backward,
        _ => false,
    };
    program.devices.iter().map(|code| code.step.iter().filter(is_both).count()).collect()
}

fn peaks(program: &Program) -> Vec<Bytes> {
    program.devices.iter().map(|code| code.peak).collect()
}

/// What two steps of a program give.
#[derive(PartialEq)]
struct Learned {
    losses: Vec<Vec<(MicrobatchId, u64)>>,
    parameters: Vec<Bits>,
    state: Vec<Bits>,
}

fn learned(program: Verified) -> Learned {
    let stated = peaks(program.program());
    let mut run = start(&Arc::new(program), None);
    let reports = steps(&mut run, 0..2);
    for report in &reports {
        assert_eq!(report.devices.iter().map(|device| device.peak).collect::<Vec<_>>(), stated);
    }
    let parameters = bits(&run, ValueKind::Parameters);
    Learned { losses: losses(&reports), parameters, state: bits(&run, ValueKind::OptimizerState) }
}

#[test]
fn one_run_for_both_halves_learns_the_same_bits_and_holds_no_more() {
    let mut joined = Vec::new();
    for name in ["zb_h1", "zb_h2", "zb_v", "v_min", "v_half", "v_zb", "v_flex"] {
        for devices in [1, 2, 4] {
            for (precision, more) in [("f32", ""), ("f64", ""), ("bf16", "recompute all")] {
                if devices == 4 && !name.starts_with("zb_h") {
                    continue;
                }
                let lines = format!(
                    "precision {precision} {more} devices {devices} microbatches {} schedule {name}",
                    2 * devices
                );
                let [apart, one] = [true, false].map(|apart| program("", &lines, apart));
                let count = both(one.program()).iter().sum::<usize>();
                assert_eq!(count > 0, apart.program() != one.program(), "{lines}");
                if count == 0 {
                    continue;
                }
                let [before, after] = [&apart, &one].map(|program| peaks(program.program()));
                assert!(before.iter().zip(&after).all(|(before, after)| after <= before) && before != after, "{lines}");
                assert!(learned(apart) == learned(one), "{lines}");
                joined.push((name, devices));
            }
        }
    }
    joined.dedup();
    for expected in [("zb_h1", 2), ("zb_h1", 4), ("zb_h2", 4), ("v_half", 1)] {
        assert!(joined.contains(&expected), "{joined:?}");
    }
}

#[test]
fn the_figures_of_the_shakespeare_example_are_those_of_the_documents() {
    let text = read(&root().join("examples/shakespeare.pipe"));
    let peaks = |schedule: &str, apart: bool| {
        let text = text.replace("schedule v_min", &format!("schedule {schedule}"));
        let text = text.replace("    require peak <= 0.8 * 1f1b\n", "");
        let request = Request { apart, ..Request::default() };
        let (found, _) = compile_text("shakespeare.pipe", &text, &root().join("examples"), &request);
        let program = found.program.unwrap_or_else(|| panic!("{schedule}: {:#?}", found.diagnostics));
        peaks(program.program()).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let rest = ["38.11MiB", "42.36MiB", "50.64MiB"];
    assert_eq!(peaks("zb_h1", true), [&["33.62MiB"], &rest[..]].concat());
    assert_eq!(peaks("zb_h1", false), [&["29.87MiB"], &rest[..]].concat());
    for schedule in ["zb_v", "v_min", "v_zb"] {
        assert_eq!(peaks(schedule, true), peaks(schedule, false), "{schedule}");
    }
    assert_eq!(peaks("v_half", true), ["29.12MiB", "26.60MiB", "28.60MiB", "26.10MiB"]);
    assert_eq!(peaks("v_half", false), ["29.12MiB", "26.60MiB", "28.60MiB", "24.85MiB"]);
}

/// A schedule of two devices by what each does.
fn two(first: &str, second: &str) -> String {
    format!("schedule x {{ stages 2 place s on s order d {{ if d == 0 {{ {first} }} else {{ {second} }} }} }}")
}

#[test]
fn halves_that_others_notice_stay_apart() {
    let lines = "precision f32 devices 2 microbatches 4 schedule x cost F = 1, B = 5, W = 5";
    let of = |schedule: &str, lines: &str| both(program(schedule, lines, false).program());
    let (plain, in_turn) = ("repeat M { F[0] } repeat M { B[0] W[0] }", "repeat M { F[1] B[1] W[1] }");
    assert_eq!(of(&two(plain, in_turn), lines), [4, 0]);
    // Costs say what both take at once: no more than one after the other, or the plan would be too short.
    assert_eq!(of(&two(plain, in_turn), &format!("{lines}, BW = 10")), [4, 0]);
    assert_eq!(of(&two(plain, in_turn), &format!("{lines}, BW = 11")), [0, 0]);
    // The third gradient comes before `W` of the first microbatch: it is to have the slot of the
    // first one, which `B` has read.
    let at_once = "repeat M { F[1] } repeat M { B[1] } repeat M { W[1] }";
    assert_eq!(of(&two(plain, at_once), &format!("{lines}, B[1] = 0.1")), [0, 0]);
    assert_eq!(of(&two("repeat M { F[0] } repeat M { B[0] } repeat M { W[0] }", in_turn), lines), [0, 0]);
    let pair = "repeat M - 1 { F[0] } F[0] & B[0] W[0] repeat M - 1 { B[0] W[0] }";
    assert_eq!(of(&two(pair, in_turn), lines), [0, 0]);
    for more in ["offload activations", "offload optimizer"] {
        assert_eq!(of(&two(plain, in_turn), &format!("{lines} {more}")), [0, 0]);
    }
    // Every gradient of `s1` goes to `s0` on the same device.
    let one =
        "schedule x { stages 2 place s on 0 order d { repeat M { F[0] F[1] } repeat M { B[1] W[1] B[0] W[0] } } }";
    assert_eq!(of(one, "precision f32 devices 1 microbatches 4 schedule x"), [8]);
}
