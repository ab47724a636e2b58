//! Progress of a tuning: a line that changes on a terminal, elsewhere a line now and then.

use crate::commands::search::progress::spinner;
use crate::output::print_error;
use indicatif::ProgressBar;
use pipe_search::tune::Progress;
use std::sync::Mutex;
use std::time::Duration;

/// Time between two lines where standard error is no terminal.
const PAUSE: Duration = Duration::from_secs(5);

/// Progress on standard error: a line that changes on a terminal, elsewhere a line now and then.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    /// When the last line was written, if any are.
    last: Option<Mutex<Duration>>,
}

impl Shown {
    /// A quiet one shows nothing.
    #[must_use]
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = spinner(quiet);
        Self { last: (bar.is_none() && !quiet).then(|| Mutex::new(Duration::ZERO)), bar }
    }

    /// Something was looked at.
    pub(crate) fn show(&self, progress: &Progress<'_>, elapsed: Duration) {
        let counts = &progress.counts;
        let best = progress.best.map_or_else(
            || "nothing fits yet".to_owned(),
            |(candidate, time)| format!("best {time} ms, {}", candidate.variant.call()),
        );
        let text = format!(
            "{} bounded, {} timed, {} settled; {best}; nothing is below {} ms",
            counts.bounded, counts.timed, progress.found, progress.bound
        );
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        } else if let Some(last) = &self.last {
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if elapsed.saturating_sub(*last) >= PAUSE {
                *last = elapsed;
                print_error(&format!("{:6.1} s  {text}\n", elapsed.as_secs_f64()));
            }
        }
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
