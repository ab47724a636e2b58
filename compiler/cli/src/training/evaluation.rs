//! Evaluation: the loss of a program that only runs forward.

use super::tokens_per_step;
use indicatif::ProgressBar;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::{self, CheckpointError};
use pipe_runtime::data::Data;
use pipe_runtime::windows::InOrder;
use pipe_runtime::{Backend, Options, Run, RunError};
use std::io::IsTerminal;
use std::sync::Arc;

/// What weights lose.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Evaluated {
    /// Mean over the microbatches that count.
    pub(crate) loss: f64,
    /// Tokens that were read for these microbatches.
    pub(crate) tokens: u64,
    /// Steps that were done.
    pub(crate) steps: u64,
}

/// Does steps of a forward-only run, perhaps shown on a terminal, and counts the microbatches that are to count. All
/// ranks do it at once; the first one has the result. Fails if a device fails.
pub(crate) fn evaluate(run: &mut Run, order: Option<&InOrder>, steps: u64, shown: bool) -> Result<Evaluated, RunError> {
    let n_slices = u64::from(run.program().n_slices.max(1));
    let microbatches = u64::from(run.program().microbatches_of_step()) / n_slices;
    let counted = order.map_or(steps.saturating_mul(microbatches), InOrder::counted);
    let of_microbatch = tokens_per_step(run.program()) / microbatches.max(1);
    // A file with fewer windows than a microbatch has rows is read more than once, and counted once.
    let tokens = order.map_or(counted.saturating_mul(of_microbatch), |order| {
        order.read().saturating_mul(of_microbatch / order.rows.max(1))
    });
    let (mut sum, mut count) = (0.0, 0_u64);
    let bar = if shown && std::io::stderr().is_terminal() { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    for step in 0..steps {
        let report = run.step(step)?;
        bar.inc(1);
        let is_counted = |microbatch: u32| step * microbatches + u64::from(microbatch) / n_slices < counted;
        for (_, loss) in report.losses.iter().filter(|(microbatch, _)| is_counted(microbatch.0)) {
            sum += loss;
            count += 1;
        }
    }
    bar.finish_and_clear();
    Ok(Evaluated { loss: sum / count.max(1) as f64, tokens, steps })
}

/// What a run is evaluated with, between its steps.
pub(crate) struct Validator {
    run: Run,
    order: Option<InOrder>,
    every: u64,
}

impl Validator {
    /// Evaluates on the CPU after every `every` steps, with a forward-only program and its data.
    ///
    /// # Errors
    /// If the program cannot run here.
    pub(crate) fn new(program: &Arc<Verified>, data: Data, every: u64) -> Result<Self, RunError> {
        let order = data.order();
        let run = super::start(program, Arc::new(data), &Options::new(Backend::Cpu, 0), None)?;
        Ok(Self { run, order, every: every.max(1) })
    }

    /// Whether an evaluation comes after a step, or one of the steps since the one before; the last step has one.
    pub(crate) const fn is_due(&self, done: u64, before: u64, last: u64) -> bool {
        done >= last || done / self.every > before / self.every
    }

    /// What the weights lose that a run has at this moment. The run stays as it is. Fails if a device fails.
    pub(crate) fn loss(&mut self, of: &Run) -> Result<f64, CheckpointError> {
        checkpoint::copy_weights(of, &mut self.run)?;
        let steps = self.order.map_or(1, |order| order.steps);
        Ok(evaluate(&mut self.run, self.order.as_ref(), steps, false)?.loss)
    }
}
