//! The z-loss: against its formula on logits of a run, and the same wherever the logits are divided.

use pipe_compiler::Request;
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::cases::compile_text;
use pipe_tests::training::{distance, losses, start, steps};
use std::path::Path;
use std::sync::Arc;

fn verified(text: &str) -> Arc<Verified> {
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}\n{text}", compilation.diagnostics)))
}

/// A standard model with these lines of a pipeline, in double precision.
fn of_model(model: &str, lines: &str) -> Arc<Verified> {
    verified(&format!(
        "import std.models.gpt
        import std.models.llama
        pipeline p {{
            model {model}
            microbatches 4
            precision f64
            {lines}
            train {{ data synthetic steps 20 optimizer sgd(learning_rate = 0.5) }}
        }}"
    ))
}

/// (log sum e^x)^2 of rows of logits, also of ones whose powers of e are infinite.
#[test]
fn it_is_the_mean_of_squared_logarithms_of_sums() {
    for scale in [1.0, 1000.0] {
        let text = format!(
            "layer only() {{
                data x: f32[2, 3, 5]
                weight w: [5] = ones
                loss z_loss(x * w * {scale:?})
            }}
            model m() {{ only() }}
            pipeline p {{
                model m devices 1 microbatches 1 schedule gpipe precision f64
                train {{ data synthetic steps 1 optimizer sgd(learning_rate = 0.1) }}
            }}"
        );
        let program = verified(&text);
        let numbers: Vec<f64> = (0..30).map(|at| f64::from(at * 7 % 30) / 10.0 - 1.5).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let fill = Box::new(move |_, _, _: &_, out: &mut [u8]| out.copy_from_slice(&bytes));
        let data = Arc::new(Data::from_fn(program.program(), fill));
        let mut run = Run::start(Arc::clone(&program), &Options::new(Backend::Cpu, 3), data).expect("a run");
        let loss = run.step(0).expect("a step").losses[0].1;
        let of_row = |row: &[f64]| {
            let top = row.iter().map(|x| x * scale).fold(f64::NEG_INFINITY, f64::max);
            (row.iter().map(|x| (x * scale - top).exp()).sum::<f64>().ln() + top).powi(2)
        };
        let expected = numbers.chunks(5).map(of_row).sum::<f64>() / 6.0;
        assert!((loss - expected).abs() <= 1e-13 * expected, "{loss} instead of {expected}");
    }
}

#[test]
fn every_layout_learns_the_same() {
    let sizes = "vocab = 24, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2";
    for (model, lines) in [
        ("gpt", "devices 2 schedule 1f1b"),
        ("gpt", "devices 2 tensor 2 schedule 1f1b"),
        ("gpt", "devices 2 schedule seq_1f1b"),
        ("llama", "devices 1 tensor 4 schedule gpipe"),
        ("llama", "devices 2 tensor 2 schedule zb_h1 recompute all"),
    ] {
        let of = |weight: &str, lines: &str| of_model(&format!("{model}({sizes}, z_loss = {weight})"), lines);
        let learned = |program: &Arc<Verified>| {
            let mut run = start(program, None);
            let all = losses(&steps(&mut run, 0..3)).concat().into_iter().map(|(_, loss)| f64::from_bits(loss));
            let all: Vec<f64> = all.collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            (mean, pipe_tests::training::bits(&run, ValueKind::Parameters))
        };
        let one = learned(&of("0.01", "devices 1 schedule gpipe"));
        let other = learned(&of("0.01", lines));
        assert!((one.0 - other.0).abs() <= 1e-12 * one.0, "{model} {lines}: {} and {}", one.0, other.0);
        let mut sorted = [one.1, other.1];
        sorted.iter_mut().for_each(|tensors| tensors.sort());
        let [first, second] = sorted;
        assert!(distance(&first, &second) <= 1e-9, "{model} {lines}: {}", distance(&first, &second));
        // The logarithm of 24 classes that are nearly alike, squared.
        let without = learned(&of("0", "devices 1 schedule gpipe")).0;
        assert!((one.0 - without - 0.01 * 24_f64.ln().powi(2)).abs() < 0.01, "{} and {without}", one.0);
    }
}

/// Members exchange numbers for each row, not the logits.
#[test]
fn members_do_not_gather_the_logits() {
    let sizes = "vocab = 64, hidden = 16, heads = 4, blocks = 1, sequence = 8, rows = 2, z_loss = 0.01";
    let program = of_model(&format!("gpt({sizes})"), "devices 1 tensor 2 schedule gpipe");
    let program = program.program();
    let logits = 2 * 8 * 64 * 8;
    for instruction in &program.devices[0].step {
        if let Instruction::CollStart { buffer, collective, .. } = instruction {
            let bytes = program.devices[0].buffers[buffer.index()].bytes.0;
            assert!(*collective != Collective::AllGather || bytes < logits, "{bytes} bytes are gathered");
        }
    }
}
