//! `data`: pipelines side by side learn what one device learns, beside all that pipelines can do.

use pipe_compiler::{Request, elaborate};
use pipe_ir::instruction::Instruction;
use pipe_ir::task::TaskKind;
use pipe_tests::cases::{compile_text, read, root};
use pipe_tests::learned::{apart, verified};
use pipe_tests::slice::takes_all;
use std::path::Path;

const GPT: &str = "gpt(vocab = 24, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2)";
const LLAMA: &str = "llama(vocab = 24, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2)";

#[test]
fn pipelines_side_by_side_learn_what_one_device_learns() {
    let all = [
        "devices 2 data 2 zero 1 schedule chimera",
        "devices 2 data 2 tensor 2 schedule seq_1f1b",
        "devices 2 data 2 zero 3 tensor 2 schedule zb_h1",
        "devices 1 data 4 microbatches 2 zero 2 schedule gpipe",
        "devices 2 data 2 offload optimizer recompute F[s, m] if m == 1 schedule 1f1b",
        "devices 2 data 4 microbatches 2 schedule dp_1f1b",
        "devices 2 data 2 schedule interleaved_1f1b",
        "devices 2 data 2 zero 2 schedule v_half",
        "devices 2 data 2 offload activations schedule 1f1b",
        "devices 2 data 2 frozen s if s == 0 schedule 1f1b",
        "devices 2 data 8 microbatches 1 zero 1 schedule seq_1f1b(slices = 4)",
    ];
    let all = if takes_all() { &all[..] } else { &all[..5] };
    for lines in all {
        for model in if takes_all() { &[GPT, LLAMA][..] } else { &[GPT] } {
            let frozen = if lines.contains("frozen") { "devices 2 frozen s if s == 0" } else { "devices 1" };
            let one = verified(model, &format!("precision f64 microbatches 8 {frozen} schedule gpipe"));
            let several = verified(model, &format!("precision f64 {lines}"));
            let apart = apart(&one, &several);
            assert!(apart < 1e-9, "{model}, {lines}: {apart:e}");
        }
    }
}

/// Each pipeline has devices of its own, next to those of the others, and takes its turn of the microbatches.
#[test]
fn pipelines_take_microbatches_in_turn() {
    let program = verified(GPT, "devices 2 data 3 schedule 1f1b");
    let program = program.program();
    assert_eq!((program.devices.len(), program.n_microbatches), (6, 12));
    for (device, code) in program.devices.iter().enumerate() {
        for instruction in &code.step {
            if let Instruction::Run { exec, microbatch, .. } = instruction {
                let stage = program.exec(*exec).stage.index();
                let is_update = program.exec(*exec).kind == TaskKind::Update;
                assert_eq!(device / 3, stage);
                assert!(is_update || device % 3 == microbatch.index() % 3);
            }
        }
    }
}

/// What is said of one pipeline holds of each: units of activation memory, and which earlier microbatches stages read.
#[test]
fn each_pipeline_is_as_one_alone() {
    let text =
        "pipeline p { devices 2 data 3 microbatches 4 schedule 1f1b require peak <= 2 require peak <= 1 * 1f1b }";
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    assert!(compilation.report.ok, "{:#?}", compilation.diagnostics);
    let example = root().join("examples/decode.pipe");
    let settings = vec![("data".to_owned(), 2)];
    let request = Request { choice: elaborate::Request { settings, ..Default::default() }, ..Request::default() };
    let alone = compile_text("decode.pipe", &read(&example), Path::new("."), &Request::default()).0.report;
    let several = compile_text("decode.pipe", &read(&example), Path::new("."), &request).0.report;
    assert!(several.ok, "{:#?}", several.diagnostics);
    assert_eq!(several.figures.makespan, alone.figures.makespan);
}
