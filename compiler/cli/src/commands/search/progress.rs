//! How a search is carried out and shown: threads, a clock, and a line of progress.

use crate::output::figures::{duration, time};
use crate::output::wrap::wrap;
use crate::output::{print_error_page, terminal_width};
use indicatif::{ProgressBar, ProgressStyle};
use pipe_compiler::report;
use pipe_search::{Problem, Progress, Workers};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    pub(crate) fn within(&self, allowed: Duration) -> Self {
        Self { allowed, stopped: Arc::clone(&self.stopped), ..*self }
    }

    /// Since the clock started.
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

/// Columns before the text of a line that changes.
const BEFORE: usize = 12;

/// As much of a text as fits, in whole words.
fn clip(text: &str, columns: usize) -> String {
    let lines = wrap(text, columns.saturating_sub(3));
    match &lines[..] {
        [first, _, ..] => format!("{first} .."),
        _ => lines.concat(),
    }
}

/// A line on standard error that changes and turns, where that is a terminal and something is to be shown.
fn spinner(begin: &'static str, quiet: bool) -> Option<ProgressBar> {
    let bar = (std::io::stderr().is_terminal() && !quiet).then(ProgressBar::new_spinner)?;
    let style = ProgressStyle::with_template("{spinner} {elapsed:>4}  {msg}");
    bar.set_style(style.expect("the template is a constant that parses"));
    bar.set_message(begin);
    bar.enable_steady_tick(Duration::from_millis(120));
    Some(bar)
}

/// Progress on standard error: a line that changes on a terminal, a line now and then elsewhere.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    /// When the last line was written, if any are.
    last: Option<Mutex<Duration>>,
    pause: Duration,
}

impl Shown {
    /// One that begins with a text, and pauses between lines. A quiet one shows nothing.
    pub(crate) fn new(begin: &'static str, pause: Duration, quiet: bool) -> Self {
        let bar = spinner(begin, quiet);
        Self { last: (bar.is_none() && !quiet).then(Mutex::default), bar, pause }
    }

    /// Shows what there is now.
    pub(crate) fn show(&self, text: String, elapsed: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_message(clip(&text, terminal_width().saturating_sub(BEFORE)));
        } else if let Some(last) = &self.last {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if elapsed.saturating_sub(*last) >= self.pause {
                *last = elapsed;
                print_error_page(&format!("{:6.1} s  {text}\n", elapsed.as_secs_f64()));
            }
        }
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// That of a search, which shows every improvement.
pub(crate) fn improvements(quiet: bool) -> Shown {
    Shown::new("gathering starts", Duration::ZERO, quiet)
}

/// Something shorter, and where it comes from.
pub(crate) fn improvement(problem: &Problem, progress: &Progress) -> String {
    let round = if progress.round == 0 { "start".to_owned() } else { format!("round {}", progress.round) };
    format!("{round:<8}  {}", measures(problem, progress))
}

fn measures(problem: &Problem, progress: &Progress) -> String {
    let words = |length| time(report::time(problem.ticks(length)), problem.unit);
    let (length, bound) = (words(progress.length), words(problem.bound(progress)));
    let gap = progress.length as f64 / (problem.bound(progress) as f64).max(1.0) - 1.0;
    format!("{} {length}, lower bound {bound}, gap {:.2}%", problem.words(), gap * 100.0)
}

/// The last line.
pub(crate) fn verdict(problem: &Problem, found: &Progress, elapsed: Duration) -> String {
    let proof = if problem.is_proved(found) { "proved optimal" } else { "not proved optimal" };
    format!("{}, {proof}, {}\n", measures(problem, found), duration(1e3 * elapsed.as_secs_f64()))
}
