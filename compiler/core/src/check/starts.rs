//! Rule: a task of a building block starts when its inputs have ended, within one microbatch.
//!
//! Every microbatch runs the same slots, so this holds for all of them, however many there are.

use crate::dependencies::{Dependencies, SCHEDULED};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::schedule::{BlockTask, Schedule};

/// Compares every task's slot with the ends of its inputs.
///
/// # Errors
/// A diagnostic per task and input.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let Some(block) = &schedule.block else { return Ok(()) };
    let n_stages = schedule.n_stages();
    let dependencies = Dependencies::of_block(block, &schedule.graph);
    let mut tasks: Vec<[Option<&BlockTask>; SCHEDULED.len()]> = vec![[None; SCHEDULED.len()]; n_stages];
    for task in &block.slots {
        if let Some(entry) = tasks.get_mut(task.stage.index()).and_then(|kinds| kinds.get_mut(task.kind.index())) {
            *entry = Some(task);
        }
    }
    let mut found = Diagnostics::new();
    for task in block.slots.iter().filter(|task| task.stage.index() < n_stages) {
        for (kind, stage) in dependencies.input_kinds(task.kind, task.stage) {
            // A missing input is the completeness rule's business.
            let Some(input) = tasks[stage.index()][kind.index()] else { continue };
            let end = block.end(input);
            if task.slot < end {
                found.push(early(schedule, task, input, end));
            }
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn early(schedule: &Schedule, task: &BlockTask, input: &BlockTask, end: u64) -> Diagnostic {
    let name = |task: &BlockTask| format!("`{} {}`", task.kind.letters(), task.stage);
    let span = |task: &BlockTask| schedule.origins[usize::from(task.origin)];
    let message = format!("{} starts at slot {}, but its input {} ends at {end}", name(task), task.slot, name(input));
    let last = end.saturating_sub(1);
    let slots = if input.slot >= last { format!("slot {last}") } else { format!("slots {} to {last}", input.slot) };
    let input_text = format!("{} takes {slots}", name(input));
    let diagnostic = Diagnostic::error(Code::StartsBeforeInput, span(task), format!("at {}", task.slot), message);
    let diagnostic =
        if span(task) == span(input) { diagnostic.note(input_text) } else { diagnostic.label(span(input), input_text) };
    diagnostic.help(format!("start {} at {end} or later", name(task)))
}
