//! The least period of a block whose tasks read each other in a cycle.
//!
//! With `behind`, tasks of a block read earlier or later microbatches in a cycle. One turn through the cycle goes back
//! some number of blocks. The tasks of the cycle must fit into the time between these blocks. Otherwise, no choice of
//! slots is valid.

use super::throughput::{Wait, keeps_pace};
use crate::block::period::position;
use crate::dependencies::{Dependencies, Input};
use crate::schedule::{Block, Schedule};
use std::collections::BTreeMap;

/// Blocks with more tasks are not searched for cycles.
const MANY: usize = 512;

/// The least period with valid slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Least {
    /// This one.
    Period(u64),
    /// None: the tasks of a cycle read each other's later microbatches.
    Never,
}

/// Finds the least period. Returns none for blocks with too many tasks.
pub(crate) fn least_period(schedule: &Schedule, block: &Block) -> Option<Least> {
    let tasks = || block.slots.iter().filter(|task| task.stage.index() < schedule.n_stages());
    let numbers: BTreeMap<_, usize> =
        tasks().zip(0..).map(|(task, number)| ((task.stage, task.microbatch, task.kind), number)).collect();
    // A task may be written twice, which another rule refuses.
    let n_tasks = tasks().count();
    if n_tasks > MANY {
        return None;
    }
    let dependencies = Dependencies::of_block(block, &schedule.graph);
    let mut waits = Vec::new();
    let mut longest = 1;
    for (to, task) in tasks().enumerate() {
        longest += block.end(task) - task.slot;
        for Input { kind, stage, ahead } in dependencies.input_kinds(task.kind, task.stage) {
            let (microbatch, turns) = position(i64::from(task.microbatch.0) + ahead, u64::from(block.microbatches));
            let Some(from) = numbers.get(&(stage, microbatch, kind)).copied() else { continue };
            let input = tasks().nth(from)?;
            let time = i128::from(block.end(input) - input.slot);
            waits.push(Wait { from, to, time, turns: -i128::from(turns), link: None });
        }
    }
    let has_slots = |period: u64| keeps_pace(&waits, n_tasks, period.into());
    if !has_slots(longest) {
        return Some(Least::Never);
    }
    let (mut low, mut high) = (1, longest);
    while low < high {
        let middle = low.midpoint(high);
        if has_slots(middle) { high = middle } else { low = middle + 1 }
    }
    Some(Least::Period(low))
}
