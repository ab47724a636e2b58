//! How far apart the blocks of a schedule must be so that tasks that read each other have slots at all.
//!
//! With `behind`, tasks of a block read earlier or later microbatches in a circle. All tasks of a circle together take
//! as long as the blocks that it goes back are apart, or less, wherever they stand. Where that does not hold, no start
//! helps.

use crate::block::period::position;
use crate::dependencies::{Dependencies, Input};
use crate::schedule::{Block, Schedule};
use std::collections::BTreeMap;

/// More tasks than circles are looked for in.
const MANY: usize = 512;

/// The period from which on tasks have slots that their inputs leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Least {
    /// This one.
    Period(u64),
    /// None: tasks of a circle read each other's later microbatches.
    Never,
}

/// An input: the task that reads it starts so many slots and blocks after it, or later.
struct Edge {
    from: usize,
    to: usize,
    slots: i128,
    turns: i128,
}

/// The least period, where the block is small enough to look for it.
pub(crate) fn least_period(schedule: &Schedule, block: &Block) -> Option<Least> {
    let tasks = || block.slots.iter().filter(|task| task.stage.index() < schedule.n_stages());
    let numbers: BTreeMap<_, usize> =
        tasks().zip(0..).map(|(task, number)| ((task.stage, task.microbatch, task.kind), number)).collect();
    if numbers.len() > MANY {
        return None;
    }
    let dependencies = Dependencies::of_block(block, &schedule.graph);
    let mut edges = Vec::new();
    let mut longest = 1;
    for (to, task) in tasks().enumerate() {
        longest += block.end(task) - task.slot;
        for Input { kind, stage, ahead } in dependencies.input_kinds(task.kind, task.stage) {
            let (microbatch, turns) = position(i64::from(task.microbatch.0) + ahead, u64::from(block.microbatches));
            let Some(from) = numbers.get(&(stage, microbatch, kind)).copied() else { continue };
            let input = tasks().nth(from)?;
            let slots = i128::from(block.end(input) - input.slot);
            edges.push(Edge { from, to, slots, turns: i128::from(turns) });
        }
    }
    let has_slots = |period: u64| has_starts(numbers.len(), &edges, period);
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

/// Whether all tasks can start when their inputs have ended, with blocks so far apart: no circle of edges is longer
/// than nothing (Bellman and Ford).
fn has_starts(n_tasks: usize, edges: &[Edge], period: u64) -> bool {
    let mut starts = vec![0_i128; n_tasks];
    for _ in 0..=n_tasks {
        let mut is_settled = true;
        for edge in edges {
            let start = starts[edge.from] + edge.slots + edge.turns * i128::from(period);
            if start > starts[edge.to] {
                starts[edge.to] = start;
                is_settled = false;
            }
        }
        if is_settled {
            return true;
        }
    }
    false
}
