//! Rule: where weights change while microbatches are under way, the version that a task reads is made before it on its
//! device, and is kept until the last task that reads it.
//!
//! Step `t` of a stage's microbatch reads version `t - lag` (see [`crate::block::async_window`]):
//! B, W and BW read that of their F. Versions below 0 are older than the window, and the buffers
//! hold them when it begins.

use crate::block::async_window::{step_length, updates};
use crate::order::{Staleness, Versions};
use crate::schedule::{Block, Schedule};
use crate::window::{StageVersions, Window};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// Goes through the orders, and compares the updates before every task with the version that it reads.
///
/// # Errors
/// A diagnostic per stage whose tasks read a version that is not there, or that was replaced.
pub fn check(schedule: &Schedule) -> Result<Option<Versions>, Diagnostics> {
    let (Some(window), Some(block)) = (&schedule.window, &schedule.block) else { return Ok(None) };
    let found = replay(schedule, window);
    if !found.is_empty() {
        return Err(found);
    }
    let length = step_length(block, u64::from(schedule.microbatches_of_step()));
    let alive = alive(window, block, length);
    Ok(Some(Versions {
        stages: window.stages.iter().map(staleness).collect(),
        most_alive: alive.iter().copied().max().unwrap_or_default(),
        slots_alive: alive.iter().sum(),
        slots: length.min(MOST_SLOTS),
    }))
}

/// Slots of a step that are looked at; longer steps repeat their blocks many times.
const MOST_SLOTS: u64 = 1 << 16;

fn replay(schedule: &Schedule, window: &Window) -> Diagnostics {
    let per_step = schedule.microbatches_of_step();
    let updates = updates(schedule);
    let mut found = Diagnostics::new();
    for (order, updates) in schedule.orders.iter().zip(&updates) {
        let mut made = vec![0_i64; schedule.n_stages()];
        let mut reported = vec![false; schedule.n_stages()];
        let mut updates = updates.iter().peekable();
        for (position, scheduled) in order.iter().enumerate() {
            while let Some(update) = updates.next_if(|update| update.before as usize <= position) {
                made[update.stage.index()] += 1;
            }
            let stage = scheduled.task.stage.index();
            let StageVersions { lags, buffers, .. } = &window.stages[stage];
            let step = i64::from(scheduled.task.microbatch.0 / per_step);
            let version = step - i64::from(lags[(scheduled.task.microbatch.0 % per_step) as usize]);
            // Of the versions so far, as many are kept as there are buffers.
            let kept = made[stage] - i64::from(*buffers) < version && version <= made[stage];
            if !kept && !std::mem::replace(&mut reported[stage], true) {
                let task = scheduled.task;
                let message = format!("`{task}` reads version {version} of its weights, but {} are made", made[stage]);
                let span = schedule.origins[usize::from(scheduled.origin)];
                let error = Diagnostic::error(Code::VersionTooLate, span, "the version is not there", message);
                found.push(error.label(window.span, format!("`{}` weights", window.weights.word())));
            }
        }
    }
    found
}

fn staleness(stage: &StageVersions) -> Staleness {
    Staleness {
        fresh: stage.lags.iter().filter(|lag| **lag == 0).count(),
        microbatches: stage.lags.len(),
        sum: stage.lags.iter().map(|lag| u64::from(*lag)).sum(),
        most: stage.lags.iter().copied().max().unwrap_or_default(),
    }
}

/// Versions of stages alive in each slot of a step, in the steady state: from the slot in which a version is there to
/// the last slot of the last task that reads it.
fn alive(window: &Window, block: &Block, length: u64) -> Vec<u64> {
    let n_slots = length.min(MOST_SLOTS);
    let mut alive = vec![0; n_slots as usize];
    let size = block.microbatches.max(1) as usize;
    let mut last_ends = vec![vec![0; size]; window.stages.len()];
    for task in &block.slots {
        let end = &mut last_ends[task.stage.index()][task.microbatch.index()];
        *end = block.end(task).max(*end);
    }
    for (stage, last_ends) in window.stages.iter().zip(last_ends) {
        let end = |microbatch: usize, lag: u32| {
            let moved = ((microbatch / size) as u64).saturating_mul(block.period);
            last_ends[microbatch % size].saturating_add(moved).saturating_add(u64::from(lag).saturating_mul(length))
        };
        let ends = stage.lags.iter().enumerate().map(|(microbatch, lag)| end(microbatch, *lag));
        // Version 0 of an endless run is there since the update before step 0.
        let (start, end) = (stage.update, ends.max().unwrap_or_default().saturating_add(length));
        for (slot, alive) in alive.iter_mut().enumerate() {
            let turns = |moment: u64| (moment + length - 1 - slot as u64) / length;
            *alive += turns(end).saturating_sub(turns(start));
        }
    }
    alive
}
