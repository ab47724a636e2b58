//! Evaluation: the loss of a program that only runs forward.

use super::tokens_per_step;
use pipe_runtime::windows::InOrder;
use pipe_runtime::{Run, RunError};

/// What weights lose.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Evaluated {
    /// Mean over the microbatches that count.
    pub(crate) loss: f64,
    /// Tokens of these microbatches.
    pub(crate) tokens: u64,
    /// Steps that were done.
    pub(crate) steps: u64,
}

/// Does steps of a forward-only run, and counts the microbatches that are to count. All ranks do it at once; the first
/// one has the result. Fails if a device fails.
pub(crate) fn evaluate(run: &mut Run, order: Option<&InOrder>, steps: u64) -> Result<Evaluated, RunError> {
    let n_slices = u64::from(run.program().n_slices.max(1));
    let microbatches = u64::from(run.program().microbatches_of_step()) / n_slices;
    let counted = order.map_or(steps.saturating_mul(microbatches), InOrder::counted);
    let tokens = tokens_per_step(run.program()) / microbatches.max(1);
    let (mut sum, mut count) = (0.0, 0_u64);
    for step in 0..steps {
        let report = run.step(step)?;
        let is_counted = |microbatch: u32| step * microbatches + u64::from(microbatch) / n_slices < counted;
        for (_, loss) in report.losses.iter().filter(|(microbatch, _)| is_counted(microbatch.0)) {
            sum += loss;
            count += 1;
        }
    }
    Ok(Evaluated { loss: sum / count.max(1) as f64, tokens: counted.saturating_mul(tokens), steps })
}
