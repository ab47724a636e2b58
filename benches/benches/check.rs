//! `pipec check` and `pipec build` as whole processes, from two thousand to ten million tasks,
//! beside PyTorch's lowering of the same schedule where it is installed. Prints the table of
//! `docs/benchmarks.md`.
//!
//! `PYTHON=path/to/python cargo bench -p pipe-benches --bench check` chooses the Python that has PyTorch.

use pipe_benches::{Watched, median, watch};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const TORCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/torch_lowering.py");

/// A size of the interleaved schedule, with 2 stages per device.
#[derive(Clone, Copy)]
struct Size {
    devices: u64,
    microbatches: u64,
    /// How often each command runs.
    runs: usize,
    /// Whether PyTorch is asked, too: it needs minutes and tens of gigabytes for the largest ones.
    beside_torch: bool,
}

const fn size(devices: u64, microbatches: u64, runs: usize, beside_torch: bool) -> Size {
    Size { devices, microbatches, runs, beside_torch }
}

const SIZES: [Size; 7] = [
    size(8, 64, 5, true),
    size(64, 128, 5, true),
    size(64, 512, 5, true),
    size(64, 2048, 5, false),
    size(64, 4096, 5, false),
    size(1024, 1024, 3, false),
    size(1024, 2048, 3, false),
];

impl Size {
    const fn tasks(self) -> u64 {
        self.devices * 2 * self.microbatches * 2
    }

    /// Time and memory of a command on the schedule of this size.
    fn pipec(self, binary: &PathBuf, arguments: &[&str]) -> Result<Figures, String> {
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            let mut command = Command::new(binary);
            command.args(arguments).args(["--set", "chunks=2"]);
            command.args(["--set", &format!("devices={}", self.devices)]);
            command.args(["--set", &format!("microbatches={}", self.microbatches)]);
            runs.push(watch(&mut command)?);
        }
        Ok(Figures::of(&runs))
    }

    /// Time and memory of PyTorch's lowering; the import of PyTorch is not part of the time.
    fn torch(self) -> Option<Figures> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut seconds = Vec::new();
        let mut mebibytes = 0.0_f64;
        for _ in 0..self.runs.min(3) {
            let arguments = [TORCH, &self.devices.to_string(), &self.microbatches.to_string()];
            let output = Command::new(&python).args(arguments).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            let mut figures = text.split_whitespace().skip(2).map(str::parse);
            let (Some(Ok(time)), Some(Ok(memory))) = (figures.next(), figures.next()) else {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                eprintln!("no figure for PyTorch: {}", errors.lines().last().unwrap_or_default());
                return None;
            };
            seconds.push(time);
            mebibytes = mebibytes.max(memory);
        }
        Some(Figures { seconds: median(seconds), mebibytes })
    }
}

/// Median of the times, most of the memory.
struct Figures {
    seconds: f64,
    mebibytes: f64,
}

impl Figures {
    fn of(runs: &[Watched]) -> Self {
        let peak = runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
        Self {
            seconds: median(runs.iter().map(|run| run.wall.as_secs_f64()).collect()),
            mebibytes: peak as f64 / f64::from(1 << 20),
        }
    }

    fn cells(&self) -> String {
        format!("{:.3} | {:.0}", self.seconds, self.mebibytes)
    }
}

/// The release binary beside this benchmark's own folder.
fn pipec() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let binary = own.parent()?.parent()?.join("pipec");
    binary.exists().then_some(binary)
}

fn row(binary: &PathBuf, size: Size) -> Result<String, String> {
    let check = size.pipec(binary, &["check", "std:interleaved_1f1b", "--quiet"])?;
    let build = size.pipec(binary, &["build", "std:interleaved_1f1b", "--quiet", "--emit", "ir"])?;
    let torch = if size.beside_torch { size.torch() } else { None };
    let torch = torch.map_or_else(|| "- | -".to_owned(), |torch| torch.cells());
    let (Size { devices, microbatches, .. }, tasks) = (size, size.tasks());
    Ok(format!("| {devices} | {microbatches} | {tasks} | {} | {} | {torch} |", check.cells(), build.cells()))
}

fn main() -> ExitCode {
    let Some(binary) = pipec() else {
        eprintln!("build the binary first: cargo build --release");
        return ExitCode::FAILURE;
    };
    println!("std:interleaved_1f1b with chunks=2; seconds (median of several runs) and peak memory in MiB\n");
    println!("| devices | microbatches | tasks | check, s | MiB | build, s | MiB | PyTorch, s | MiB |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for size in SIZES {
        match row(&binary, size) {
            Ok(row) => println!("{row}"),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
