//! Tokens per second of a GPT with 8 blocks of width 256, and which kernels the time goes to.
//!
//!     cargo run --release -p pipe-tests --example gpt_speed -- [schedule] [microbatches] [devices]

use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::pipelines::{gpt, program};
use std::sync::Arc;

/// Sequences of a microbatch, and their length.
const ROWS: u32 = 2;
const SEQUENCE: u32 = 128;
const STEPS: u64 = 6;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let schedule = arguments.first().map_or("1f1b", String::as_str);
    let number =
        |position: usize, default: u32| arguments.get(position).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (microbatches, devices) = (number(1, 8), number(2, 4));
    let sizes = format!("hidden = 256, heads = 8, blocks = 8, sequence = {SEQUENCE}, rows = {ROWS}");
    let program = Arc::new(program(&gpt(&sizes, devices, microbatches, schedule))?);
    let tokens = f64::from(microbatches * ROWS * SEQUENCE);
    for profile in [false, true] {
        let options = Options { profile, ..Options::new(Backend::Cpu, 7) };
        let data = Arc::new(Data::synthetic(program.program()));
        let mut run = Run::start(Arc::clone(&program), &options, data).map_err(|error| error.to_string())?;
        for step in 0..STEPS {
            let report = run.step(step).map_err(|error| error.to_string())?;
            let seconds = report.wall.0 as f64 * 1e-9;
            let loss = report.loss().unwrap_or_default();
            println!("step {step}: {:.0} tokens/s, {:.1} ms, loss {loss:.3}", tokens / seconds, seconds * 1e3);
        }
        println!("{}", run.profile());
    }
    Ok(())
}
