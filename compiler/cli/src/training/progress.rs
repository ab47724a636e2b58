//! Progress: a bar with loss, rate and time left on a terminal; a line now and then elsewhere.

use super::{Plan, tokens_per_step};
use crate::output::figures::grouped;
use crate::output::{colours_error, print_error, terminal_width};
use indicatif::{ProgressBar, ProgressStyle};
use pipe_ir::program::Program;
use std::io::IsTerminal;
use std::time::Duration;

/// Shows how far a run is, on standard error.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Prints lines where there is no terminal.
    lines: bool,
    steps: u64,
    first_step: u64,
    /// Steps from one report to the next.
    stride: u64,
    tokens_per_step: u64,
}

/// Lines that a run without a terminal prints, about.
const LINES: u64 = 20;

impl Progress {
    /// Of a run that begins with `first_step`. A quiet one shows nothing.
    pub(crate) fn new(program: &Program, plan: &Plan, first_step: u64) -> Self {
        let Plan { steps, quiet, .. } = *plan;
        let (stride, tokens_per_step) = (u64::from(program.n_steps), plan.computes.then(|| tokens_per_step(program)));
        let tokens_per_step = tokens_per_step.unwrap_or_default();
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| bar(first_step, steps));
        Self { bar, lines: !terminal && !quiet, steps, first_step, stride, tokens_per_step }
    }

    /// A step is done; `elapsed` counts from the start of the run.
    pub(crate) fn step(&self, done: u64, loss: Option<f64>, elapsed: Duration) {
        let message = self.message(done, loss, elapsed);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message);
        } else if self.lines && self.is_due(done) {
            print_error(&format!("{}\n", format!("step {done}/{}  {message}", self.steps).trim_end()));
        }
    }

    /// What the weights lose after a step on data that they do not learn from.
    pub(crate) fn validation(&self, done: u64, loss: f64) {
        let line = format!("step {done}/{}  validation loss {loss:.4}", self.steps);
        match &self.bar {
            Some(bar) => bar.println(line),
            None if self.lines => print_error(&format!("{line}\n")),
            None => {}
        }
    }

    fn is_due(&self, done: u64) -> bool {
        let every = (self.steps / LINES).max(1);
        let before = done.saturating_sub(self.stride);
        before == self.first_step || done == self.steps || done / every > before / every
    }

    fn message(&self, done: u64, loss: Option<f64>, elapsed: Duration) -> String {
        let loss = loss.map_or_else(String::new, |loss| format!("loss {loss:.4}  "));
        let steps = (done - self.first_step) as f64;
        let rate = self.tokens_per_step as f64 * steps / elapsed.as_secs_f64().max(1e-9);
        if self.tokens_per_step == 0 {
            loss
        } else {
            format!("{loss}{} tokens/s", grouped(rate.max(0.0).round() as u64))
        }
    }
}

impl Drop for Progress {
    /// Removes the bar.
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// What fits of the line: the bar shrinks, then goes, and so does the time that has passed.
fn line(steps: u64, columns: usize, colours: bool) -> String {
    // `250/250 steps  loss 1.2345  1,234,567 tokens/s  123s left`
    let least = 2 * steps.to_string().len() + 49;
    let bar = match columns.saturating_sub(least) {
        0..12 => return "{pos}/{len} steps  {msg}  {eta} left".to_owned(),
        12..46 => 10,
        46.. => 30,
    };
    let elapsed = if bar == 30 { "{elapsed} elapsed, " } else { "" };
    let style = if colours { ".cyan/dim" } else { "" };
    format!("{{bar:{bar}{style}}} {{pos}}/{{len}} steps  {{msg}}  {elapsed}{{eta}} left")
}

fn bar(first_step: u64, steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(&line(steps, terminal_width(), colours_error()))
        .expect("the template is a constant that parses");
    let bar = ProgressBar::new(steps).with_position(first_step).with_style(style.progress_chars("━━─"));
    bar.reset_eta();
    bar
}
