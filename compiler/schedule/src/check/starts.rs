//! Rule: a task of a building block starts when its inputs have ended.
//!
//! An input is of the same microbatch, or of a fixed number of microbatches before or after. Every
//! block runs the same slots, so this holds for all blocks.

use super::collisions::{block_task_name, microbatches};
use crate::block::least_period::{Least, least_period};
use crate::block::period::position;
use crate::dependencies::{Dependencies, Input, Join};
use crate::schedule::{Block, BlockTask, Schedule};
use pipe_ir::task::Task;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// Compares every task's slot with the ends of its inputs.
///
/// # Errors
/// A diagnostic per task and input.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let Some(block) = &schedule.block else { return Ok(()) };
    let found = too_early(schedule, block);
    let least = if found.iter().any(|one| one.turns != 0) { least_period(schedule, block) } else { None };
    let found: Diagnostics = found.into_iter().map(|found| early(schedule, (block, least), found)).collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// By how many slots tasks start before an input has ended, with the places of their statements.
pub fn late(schedule: &Schedule) -> Vec<(Span, u64)> {
    let Some(block) = &schedule.block else { return Vec::new() };
    let slots = |found: Early<'_>| (schedule.origins[usize::from(found.task.origin)], found.slots);
    too_early(schedule, block).into_iter().map(slots).collect()
}

/// A task that starts before an input has ended.
struct Early<'b> {
    task: &'b BlockTask,
    input: &'b BlockTask,
    /// How many microbatches the input is after the task.
    ahead: i64,
    /// How many blocks it is after the task.
    turns: i64,
    /// How many slots it starts too early.
    slots: u64,
}

/// Tasks with an input that ends after they start.
fn too_early<'b>(schedule: &Schedule, block: &'b Block) -> Vec<Early<'b>> {
    let n_stages = schedule.n_stages();
    let dependencies = Dependencies::of_block(block, &schedule.graph);
    let keys = block.slots.iter().map(|task| ((task.stage, task.microbatch, task.kind), task));
    let tasks: BTreeMap<_, &BlockTask> = keys.collect();
    let mut found = Vec::new();
    // When all have ended that many tasks wait for.
    let mut joins: BTreeMap<Join, u64> = BTreeMap::new();
    // Where a block is for one number of microbatches only, it may never have the last ones.
    let runs = |task: &&BlockTask| block.only.is_none_or(|only| task.microbatch.0 < only);
    for task in block.slots.iter().filter(|task| task.stage.index() < n_stages).filter(runs) {
        let own = Task { kind: task.kind, stage: task.stage, microbatch: task.microbatch };
        let is_late = dependencies.join(own).is_some_and(|join| {
            let inputs = dependencies.joined(own).iter().map(|stage| dependencies.joined_task(own, *stage));
            let ends = inputs.filter_map(|one| Some(block.end(tasks.get(&(one.stage, one.microbatch, one.kind))?)));
            *joins.entry(join).or_insert_with(|| ends.max().unwrap_or_default()) > task.slot
        });
        let each = is_late.then(|| dependencies.input_kinds(task.kind, task.stage)).into_iter().flatten();
        let beside = (!is_late).then(|| dependencies.input_kinds_beside(task.kind, task.stage)).into_iter().flatten();
        for Input { kind, stage, ahead } in each.chain(beside) {
            let (microbatch, turns) = position(i64::from(task.microbatch.0) + ahead, u64::from(block.microbatches));
            // A missing input is the completeness rule's business.
            let Some(input) = tasks.get(&(stage, microbatch, kind)) else { continue };
            if block.only.is_some_and(|only| !meets(block, task, ahead, only)) {
                continue;
            }
            let end = i128::from(block.end(input)) + i128::from(turns) * i128::from(block.period);
            if let Ok(slots @ 1..) = u64::try_from(end - i128::from(task.slot)) {
                found.push(Early { task, input, ahead, turns, slots });
            }
        }
    }
    found
}

/// Whether some microbatch of the task has the input, which is of `ahead` microbatches later, in a step of `only`
/// microbatches.
fn meets(block: &Block, task: &BlockTask, ahead: i64, only: u32) -> bool {
    let (first, size) = (task.microbatch.0, block.microbatches.max(1));
    let last = first + (only - 1 - first) / size * size;
    let reached = i64::from(if ahead < 0 { last } else { first }) + ahead;
    (0..i64::from(only)).contains(&reached)
}

fn early(schedule: &Schedule, (block, least): (&Block, Option<Least>), found: Early<'_>) -> Diagnostic {
    let Early { task, input, ahead, turns, slots } = found;
    let name = |task: &BlockTask| block_task_name(schedule, task, block.microbatches.into());
    let span = |task: &BlockTask| schedule.origins[usize::from(task.origin)];
    let end = task.slot.saturating_add(slots);
    let which = match ahead {
        0 => name(input),
        1.. => format!("{}, {} later,", name(input), microbatches(ahead.unsigned_abs())),
        _ => format!("{}, {} before,", name(input), microbatches(ahead.unsigned_abs())),
    };
    let message = format!("{} starts at slot {}, but its input {which} ends at {end}", name(task), task.slot);
    let message = match task.microbatch.0 {
        0 => message,
        _ if ahead != 0 => message,
        number => format!("{message}, from {} on", microbatches(u64::from(number) + 1)),
    };
    let last = block.end(input).saturating_sub(1);
    let taken = if input.slot >= last { format!("slot {last}") } else { format!("slots {} to {last}", input.slot) };
    let input_text = format!("{} takes {taken}", name(input));
    let diagnostic = Diagnostic::error(Code::StartsBeforeInput, span(task), format!("at {}", task.slot), message);
    let diagnostic =
        if span(task) == span(input) { diagnostic.note(input_text) } else { diagnostic.label(span(input), input_text) };
    let later = format!("start {} at {end} or later", name(task));
    match turns.unsigned_abs() {
        0 => diagnostic.help(later),
        back => {
            let apart = if block.period == 1 { "1 slot" } else { &format!("{} slots", block.period) };
            let diagnostic = diagnostic.note(format!("blocks start {apart} apart"));
            let period = block.period.saturating_add(slots.div_ceil(back));
            let longer = format!("repeat the block every {period} slots or more, or {later}");
            match least {
                Some(Least::Never) => {
                    let reason =
                        "no block has valid slots: these tasks wait for later microbatches of each other, in a cycle";
                    diagnostic.note(reason).help("write an `order`")
                }
                Some(Least::Period(least)) if least > block.period => {
                    let reason = format!("these tasks read each other in a cycle, which takes {least} slots per block");
                    diagnostic.note(reason).help(format!("repeat the block every {least} slots or more"))
                }
                _ => diagnostic.help(if turns < 0 { longer } else { later }),
            }
        }
    }
}
