//! How a search is carried out and shown: threads, a clock, and a line of progress.

use crate::output::print_error;
use indicatif::{ProgressBar, ProgressStyle};
use pipe_search::{Problem, Progress, Workers};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Threads that work until the time is over, or someone presses Ctrl-C.
pub(crate) struct Team {
    threads: usize,
    begun: Instant,
    allowed: Duration,
    stopped: Arc<AtomicBool>,
}

impl Team {
    /// So many threads, or one per core if 0. The clock starts.
    #[must_use]
    pub(crate) fn new(threads: usize, allowed: Duration) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopped);
        // Where no handler can be set, Ctrl-C ends the process as usual.
        let _ = ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
        Self { threads: if threads == 0 { cores() } else { threads }, begun: Instant::now(), allowed, stopped }
    }

    /// The same threads and clock, with less time.
    #[must_use]
    pub(crate) fn within(&self, allowed: Duration) -> Self {
        Self { allowed, stopped: Arc::clone(&self.stopped), ..*self }
    }

    /// Since the clock started.
    #[must_use]
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Workers for Team {
    fn go_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed) && self.begun.elapsed() < self.allowed
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let run = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= n {
                    return;
                }
                work(index);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(n) {
                scope.spawn(run);
            }
            run();
        });
    }
}

/// A line on standard error that changes and turns, where that is a terminal and something is to be shown.
#[must_use]
pub(crate) fn spinner(quiet: bool) -> Option<ProgressBar> {
    let bar = (std::io::stderr().is_terminal() && !quiet).then(ProgressBar::new_spinner)?;
    let style = ProgressStyle::with_template("{spinner} {elapsed:>4}  {wide_msg}");
    bar.set_style(style.expect("the template is a constant that parses"));
    bar.enable_steady_tick(Duration::from_millis(120));
    Some(bar)
}

/// Improvements on standard error: a line that changes on a terminal, a line each elsewhere.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    lines: bool,
}

impl Shown {
    /// A quiet one shows nothing.
    #[must_use]
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = spinner(quiet);
        bar.iter().for_each(|bar| bar.set_message("gathering starts"));
        Self { lines: bar.is_none() && !quiet, bar }
    }

    /// There is something shorter.
    pub(crate) fn show(&self, problem: &Problem, progress: &Progress, elapsed: Duration) {
        let round = if progress.round == 0 { "start".to_owned() } else { format!("round {}", progress.round) };
        let text = format!("{round:<8}  {}", measures(problem, progress));
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        } else if self.lines {
            print_error(&format!("{:6.1} s  {text}\n", elapsed.as_secs_f64()));
        }
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn measures(problem: &Problem, progress: &Progress) -> String {
    let (length, bound) = (problem.ticks(progress.length), problem.ticks(problem.bound(progress)));
    let gap = progress.length as f64 / (problem.bound(progress) as f64).max(1.0) - 1.0;
    format!("{} {length}, lower bound {bound}, gap {:.2}%", problem.words(), gap * 100.0)
}

/// The last line.
#[must_use]
pub(crate) fn verdict(problem: &Problem, found: &Progress, elapsed: Duration) -> String {
    let proof = if problem.is_proved(found) { "proved optimal" } else { "not proved optimal" };
    format!("{}, {proof}, {:.1} s\n", measures(problem, found), elapsed.as_secs_f64())
}
