//! CPU training of a GPT with 6.5 million weights on 4 devices, beside PyTorch where it is installed.
//!
//! `PYTHON=path/to/python cargo bench -p pipe-benches --bench train` chooses the Python that has PyTorch; `-- llama`
//! behind it trains a Llama of 8 blocks instead.

use pipe_benches::{median, program};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const GPT: &str = include_str!("../gpt.pipe");
const LLAMA: &str = include_str!("../llama.pipe");
const TORCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/torch_gpt.py");
const STEPS: usize = 8;
const WARM_UP: usize = 2;
const TOKENS: i64 = 128 * 2;
/// How often everything is measured, in turns, since a machine is not always as quick.
const ROUNDS: usize = 3;

fn pipec(model: &str, microbatches: i64, schedule: &str, profile: bool) -> f64 {
    let text = model.replace("schedule 1f1b", &format!("schedule {schedule}"));
    let program = Arc::new(program("bench.pipe", &text, &[("microbatches", microbatches)]));
    let data = Arc::new(Data::synthetic(program.program()));
    let options = Options { profile, ..Options::new(Backend::Cpu, 1) };
    let mut run = Run::start(program, &options, data).expect("it runs on the CPU");
    let times = (0..STEPS + WARM_UP).map(|step| {
        let start = Instant::now();
        run.step(step as u64).expect("it runs on the CPU");
        start.elapsed().as_secs_f64()
    });
    let seconds = median(times.skip(WARM_UP).collect());
    if profile {
        println!("\nwhere the time of the kernels goes, over all devices:\n{}", run.profile());
    }
    (microbatches * TOKENS) as f64 / seconds
}

fn torch(model: &str, mode: &str, microbatches: i64) -> Option<f64> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let (microbatches, steps) = (microbatches.to_string(), STEPS.to_string());
    let arguments = [TORCH, "--model", model, "--mode", mode, "--microbatches", &microbatches, "--steps", &steps];
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
    let is_llama = std::env::args().any(|argument| argument == "llama");
    let (name, model) = if is_llama { ("llama", LLAMA) } else { ("gpt", GPT) };
    let schedules = if is_llama { &["1f1b"][..] } else { &["1f1b", "zb_h1", "v_half", "zb_v"] };
    let sizes = if is_llama { &[8][..] } else { &[8, 16] };
    println!(
        "{name}: 8 blocks, hidden 256, sequence 128, 2 sequences per microbatch; tokens/s, medians of {ROUNDS} rounds, \
         each the median of {STEPS} steps\n"
    );
    let modes = [("PyTorch, 4 ranks over gloo, 1F1B", "pipeline"), ("PyTorch, one process, 2 threads", "single")];
    // By row and size: of each round.
    let mut rates = vec![vec![Vec::new(); sizes.len()]; schedules.len() + modes.len()];
    for _ in 0..ROUNDS {
        for (size, microbatches) in sizes.iter().copied().enumerate() {
            let own = schedules.iter().map(|schedule| Some(pipec(model, microbatches, schedule, false)));
            let others = modes.iter().map(|(_, mode)| torch(name, mode, microbatches));
            for (row, rate) in rates.iter_mut().zip(own.chain(others)) {
                row[size].extend(rate);
            }
        }
    }
    let line = |name: &str, cells: Vec<String>| {
        println!("{name:<44}{}", cells.iter().map(|cell| format!(" {cell:>8}")).collect::<String>());
    };
    line("", sizes.iter().map(|size| format!("M = {size}")).collect());
    let names = schedules.iter().map(|schedule| format!("pipec, 4 CPU devices, {schedule}"));
    for (name, row) in names.chain(modes.map(|(name, _)| name.to_owned())).zip(rates) {
        let cell = |own: Vec<f64>| if own.is_empty() { "-".to_owned() } else { format!("{:.0}", median(own)) };
        line(&name, row.into_iter().map(cell).collect());
    }
    pipec(model, 8, "1f1b", true);
}
