//! Rule: a task of a building block starts when its inputs have ended.
//!
//! Inputs belong to the same microbatch, and every block runs the same slots: so this holds for all
//! blocks, however many there are.

use super::collisions::microbatches;
use crate::dependencies::Dependencies;
use crate::schedule::{Block, BlockTask, Schedule};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// Compares every task's slot with the ends of its inputs.
///
/// # Errors
/// A diagnostic per task and input.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let Some(block) = &schedule.block else { return Ok(()) };
    let found: Diagnostics =
        too_early(schedule, block).into_iter().map(|(task, input)| early(schedule, block, task, input)).collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// By how many slots tasks start before an input has ended, with the places of their statements.
pub fn late(schedule: &Schedule) -> Vec<(Span, u64)> {
    let Some(block) = &schedule.block else { return Vec::new() };
    let slots = |(task, input): (&BlockTask, &BlockTask)| {
        (schedule.origins[usize::from(task.origin)], block.end(input).saturating_sub(task.slot))
    };
    too_early(schedule, block).into_iter().map(slots).collect()
}

/// Tasks with an input that ends after they start.
fn too_early<'b>(schedule: &Schedule, block: &'b Block) -> Vec<(&'b BlockTask, &'b BlockTask)> {
    let n_stages = schedule.n_stages();
    let dependencies = Dependencies::of_block(block, &schedule.graph);
    let keys = block.slots.iter().map(|task| ((task.stage, task.microbatch, task.kind), task));
    let tasks: BTreeMap<_, &BlockTask> = keys.collect();
    let mut found = Vec::new();
    // Where a block is for one number of microbatches only, it may never have the last ones.
    let runs = |task: &&BlockTask| block.only.is_none_or(|only| task.microbatch.0 < only);
    for task in block.slots.iter().filter(|task| task.stage.index() < n_stages).filter(runs) {
        for (kind, stage) in dependencies.input_kinds(task.kind, task.stage) {
            // A missing input is the completeness rule's business.
            let Some(input) = tasks.get(&(stage, task.microbatch, kind)) else { continue };
            if task.slot < block.end(input) {
                found.push((task, *input));
            }
        }
    }
    found
}

fn early(schedule: &Schedule, block: &Block, task: &BlockTask, input: &BlockTask) -> Diagnostic {
    let (name, end) = (|task: &BlockTask| block.name(task), block.end(input));
    let span = |task: &BlockTask| schedule.origins[usize::from(task.origin)];
    let message = format!("{} starts at slot {}, but its input {} ends at {end}", name(task), task.slot, name(input));
    let message = match task.microbatch.0 {
        0 => message,
        number => format!("{message}, from {} on", microbatches(u64::from(number) + 1)),
    };
    let last = end.saturating_sub(1);
    let slots = if input.slot >= last { format!("slot {last}") } else { format!("slots {} to {last}", input.slot) };
    let input_text = format!("{} takes {slots}", name(input));
    let diagnostic = Diagnostic::error(Code::StartsBeforeInput, span(task), format!("at {}", task.slot), message);
    let diagnostic =
        if span(task) == span(input) { diagnostic.note(input_text) } else { diagnostic.label(span(input), input_text) };
    diagnostic.help(format!("start {} at {end} or later", name(task)))
}
