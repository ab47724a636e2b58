//! `pipec check` as a whole process: parsing, proofs, timeline, lowering and verification of large schedules.

use pipe_benches::{median, watch};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Devices, microbatches; always 2 stages per device.
const SIZES: [(u64, u64); 5] = [(8, 64), (64, 128), (64, 512), (64, 2048), (64, 4096)];
const RUNS: usize = 5;

/// The release binary beside this benchmark's own folder.
fn pipec() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let binary = own.parent()?.parent()?.join("pipec");
    binary.exists().then_some(binary)
}

fn main() -> ExitCode {
    let Some(pipec) = pipec() else {
        eprintln!("build the binary first: cargo build --release");
        return ExitCode::FAILURE;
    };
    println!("pipec check std:interleaved_1f1b --set chunks=2, whole process, median of {RUNS} runs\n");
    println!(
        "{:>8} {:>13} {:>10} {:>10} {:>12} {:>10}",
        "devices", "microbatches", "tasks", "seconds", "ns per task", "peak MiB"
    );
    for (devices, microbatches) in SIZES {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let mut command = Command::new(&pipec);
            command.args(["check", "std:interleaved_1f1b", "--quiet", "--set", "chunks=2"]);
            command.args(["--set", &format!("devices={devices}"), "--set", &format!("microbatches={microbatches}")]);
            match watch(&mut command) {
                Ok(watched) => runs.push(watched),
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        let tasks = devices * 2 * microbatches * 2;
        let seconds = median(runs.iter().map(|run| run.wall.as_secs_f64()).collect());
        let peak = runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
        let each = seconds * 1e9 / tasks as f64;
        println!(
            "{devices:>8} {microbatches:>13} {tasks:>10} {seconds:>10.3} {each:>12.0} {:>10.0}",
            peak as f64 / f64::from(1 << 20)
        );
    }
    ExitCode::SUCCESS
}
