//! CPU training of a GPT with 6.5 million weights on 4 devices, beside PyTorch where it is installed.
//!
//! `PYTHON=path/to/python cargo bench -p pipe-benches --bench train` chooses the Python that has PyTorch.

use pipe_benches::{median, program};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const PIPELINE: &str = include_str!("../gpt.pipe");
const TORCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/torch_gpt.py");
const STEPS: usize = 8;
const WARM_UP: usize = 2;
const TOKENS: i64 = 128 * 2;

fn pipec(microbatches: i64, schedule: &str, profile: bool) -> f64 {
    let text = PIPELINE.replace("schedule 1f1b", &format!("schedule {schedule}"));
    let program = Arc::new(program("gpt.pipe", &text, &[("microbatches", microbatches)]));
    let data = Arc::new(Data::synthetic(program.program()));
    let options = Options { profile, ..Options::new(Backend::Cpu, 1) };
    let mut run = Run::start(program, &options, data).expect("a GPT runs on the CPU");
    let times = (0..STEPS + WARM_UP).map(|step| {
        let start = Instant::now();
        run.step(step as u64).expect("a GPT runs on the CPU");
        start.elapsed().as_secs_f64()
    });
    let seconds = median(times.skip(WARM_UP).collect());
    if profile {
        println!("\nwhere the time of the kernels goes, over all devices:\n{}", run.profile());
    }
    (microbatches * TOKENS) as f64 / seconds
}

fn torch(mode: &str, microbatches: i64) -> Option<f64> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let arguments = [TORCH, "--mode", mode, "--microbatches", &microbatches.to_string(), "--steps", &STEPS.to_string()];
    let output = Command::new(python).args(arguments).output().ok()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("no figure for PyTorch: {}", text.lines().last().unwrap_or_default());
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().last()?.parse().ok()
}

fn main() {
    println!(
        "GPT: 8 blocks, hidden 256, sequence 128, 2 sequences per microbatch; tokens/s, median of {STEPS} steps\n"
    );
    println!("{:<44} {:>8} {:>8}", "", "M = 8", "M = 16");
    let row = |name: &str, rate: &dyn Fn(i64) -> Option<f64>| {
        let cell = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        println!("{name:<44} {:>8} {:>8}", cell(rate(8)), cell(rate(16)));
    };
    for schedule in ["1f1b", "zb_h1", "v_half", "zb_v"] {
        row(&format!("pipec, 4 CPU devices, {schedule}"), &|microbatches| Some(pipec(microbatches, schedule, false)));
    }
    row("PyTorch, 4 ranks over gloo, 1F1B", &|microbatches| torch("pipeline", microbatches));
    row("PyTorch, one process, 2 threads", &|microbatches| torch("single", microbatches));
    pipec(8, "1f1b", true);
}
