//! What the benchmarks share: compiling a text, medians, and a child process whose time and memory are watched.

pub mod jobs;
pub mod searches;

use pipe_compiler::{Request, compile};
use pipe_ir::verify::Verified;
use pipe_syntax::source::{Source, Sources};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Compiles a text with some parameters.
///
/// # Panics
/// If it is rejected.
pub fn program(name: &str, text: &str, settings: &[(&str, i64)]) -> Verified {
    let mut request = Request::default();
    request.choice.settings = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let root = Source { name: name.to_owned(), text: text.to_owned() };
    let no_files = |path: &str| Err(format!("{path}: benchmarks import the standard library only"));
    let compilation = compile(&mut Sources::default(), root, &no_files, &request);
    compilation.program.unwrap_or_else(|| panic!("{name}: {:#?}", compilation.diagnostics))
}

/// The middle one of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How long a process took, and the most memory it held.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// From its start to its end.
    pub wall: Duration,
    /// Peak resident memory in bytes, as the kernel counts it; 0 where it does not say.
    pub peak_bytes: u64,
}

/// Runs a process to its end, its output thrown away, and looks at its memory every millisecond.
///
/// # Errors
/// If it cannot be started or fails.
pub fn watch(command: &mut Command) -> Result<Watched, String> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak_bytes = 0;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            let wall = start.elapsed();
            return if status.success() {
                Ok(Watched { wall, peak_bytes })
            } else {
                Err(format!("{command:?}: {status}"))
            };
        }
        peak_bytes = peak_bytes.max(peak_of(&status_file).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn peak_of(status_file: &str) -> Option<u64> {
    let status = std::fs::read_to_string(status_file).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
