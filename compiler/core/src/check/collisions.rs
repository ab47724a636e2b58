//! Rule: the tasks of a building block never meet on a device, whichever microbatches they belong to.
//!
//! Microbatch m runs `m * T` slots later, so two tasks meet exactly if their slots overlap modulo the period T
//! (arXiv 2405.15362, Section 3.1).

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::schedule::{Block, BlockTask, Schedule};
use pipe_ir::ids::{DeviceId, MicrobatchId};
use std::collections::BTreeSet;

/// Sorts the slots of every device modulo the period, and compares neighbours.
///
/// # Errors
/// A diagnostic per pair of tasks that meet.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let Some(block) = &schedule.block else { return Ok(()) };
    let mut devices: Vec<Vec<BlockTask>> = vec![Vec::new(); schedule.n_devices()];
    // The devices of replicated stages repeat after several microbatches, which then are one block for this rule.
    let phases = schedule.placement.period();
    for phase in (0..phases).map(MicrobatchId) {
        for task in &block.slots {
            let device = schedule.placement.get(task.stage, phase);
            let device = device.and_then(|device| devices.get_mut(device.index()));
            // Stages without a device are the placement's business.
            if let Some(tasks) = device {
                let moved = block.period.saturating_mul(u64::from(phase.0));
                tasks.push(BlockTask { slot: task.slot.saturating_add(moved), ..*task });
            }
        }
    }
    let period = block.period.max(1).saturating_mul(u64::from(phases));
    let mut found = Diagnostics::new();
    for (device, tasks) in devices.iter().enumerate() {
        collide(schedule, (block, period), DeviceId::from_index(device), tasks, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Part of a task within one period: first slot, slot after the last one, index of the task.
type Piece = (u64, u64, usize);

fn collide(
    schedule: &Schedule,
    (block, period): (&Block, u64),
    device: DeviceId,
    tasks: &[BlockTask],
    found: &mut Diagnostics,
) {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut work = 0u64;
    for (index, task) in tasks.iter().enumerate() {
        let duration = block.duration(task.kind);
        work = work.saturating_add(duration);
        if duration > period {
            found.push(too_long(schedule, period, device, task, duration));
            continue;
        }
        let start = task.slot % period;
        pieces.push((start, (start + duration).min(period), index));
        if start + duration > period {
            pieces.push((0, start + duration - period, index));
        }
    }
    pieces.retain(|(start, end, _)| start < end);
    pieces.sort_unstable();
    let mut pairs: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut last: Option<Piece> = None;
    for piece in pieces {
        if let Some((_, end, index)) = last
            && piece.0 < end
            && pairs.insert((index.min(piece.2), index.max(piece.2)))
        {
            let slots = (piece.0, end.min(piece.1));
            let mut diagnostic = collision(schedule, period, device, [&tasks[index], &tasks[piece.2]], slots);
            if work > period {
                diagnostic = diagnostic.help(format!("{device} has {work} slots of work: use `every {work}` or more"));
            }
            found.push(diagnostic);
        }
        last = last.filter(|last| last.1 >= piece.1).or(Some(piece));
    }
}

fn collision(
    schedule: &Schedule,
    period: u64,
    device: DeviceId,
    [one, other]: [&BlockTask; 2],
    (first, end): (u64, u64),
) -> Diagnostic {
    let name = |task: &BlockTask| format!("`{} {}`", task.kind.letters(), task.stage);
    let span = |task: &BlockTask| schedule.origins[usize::from(task.origin)];
    let slots = if end - first == 1 { format!("slot {first}") } else { format!("slots {first} to {}", end - 1) };
    let message = format!("{} and {} meet on {device} in {slots} of every {period}", name(one), name(other));
    let place =
        |task: &BlockTask| format!("{} at {}, which is {} modulo {period}", name(task), task.slot, task.slot % period);
    let diagnostic = Diagnostic::error(Code::SlotCollision, span(other), place(other), message);
    let diagnostic =
        if span(one) == span(other) { diagnostic.note(place(one)) } else { diagnostic.label(span(one), place(one)) };
    diagnostic.help("move one of them to a slot that is free modulo the period, or use `fill`")
}

fn too_long(schedule: &Schedule, period: u64, device: DeviceId, task: &BlockTask, duration: u64) -> Diagnostic {
    let span = schedule.origins[usize::from(task.origin)];
    let name = format!("`{} {}`", task.kind.letters(), task.stage);
    let message = format!("{name} takes {duration} slots of {device}, but the block repeats every {period}");
    Diagnostic::error(Code::SlotCollision, span, "meets its own next microbatch", message)
        .help(format!("use `every {duration}` or more"))
}
