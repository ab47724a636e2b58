//! The throughput of an endless step: how long a turn of a building block takes in its steady state, under some costs.
//!
//! Every task waits for the one before it on its device and for its inputs, of this turn or an
//! earlier one. The slowest cycle of such waits, time per turn that it goes back, sets the pace
//! (maximum cycle ratio; Dasdan, ACM TODAES 9, 2004). It is found by looking for a cycle that is
//! slower than the slowest one known, until there is none.

use crate::block::period::{Turn, position};
use crate::dependencies::Dependencies;
use crate::schedule::{BlockTask, Schedule};
use crate::timing::durations::Costs;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use std::collections::{BTreeMap, BTreeSet};

/// The most looks at waits: a few seconds.
const MOST_LOOKS: usize = 400_000_000;

/// Time per turn, exactly: `time / turns`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How long the slowest cycle takes.
    pub time: Ticks,
    /// How many turns it goes back.
    pub turns: u64,
    /// Work of the busiest device in a turn.
    pub busiest: Ticks,
    /// Work of each device in a turn.
    pub work: Vec<Ticks>,
    /// The links that take time on the slowest cycle, the lower device first, ascending. In 1F1B,
    /// they are the segment of which twice the latencies, divided by its devices, are most: tasks
    /// of a cycle over so many links repeat after as many turns as it has devices.
    pub links: Vec<(DeviceId, DeviceId)>,
}

/// One task waits for another.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub from: usize,
    pub to: usize,
    /// From the start of the one to the start of the other.
    pub time: i128,
    /// How many turns before the other the one runs; may be negative, as tasks of one turn reach into the next ones.
    pub turns: i128,
    /// What it goes over, if that takes time.
    pub link: Option<(DeviceId, DeviceId)>,
}

/// A cycle of waits.
struct Cycle {
    time: i128,
    turns: i128,
    links: BTreeSet<(DeviceId, DeviceId)>,
}

/// The pace of a turn's tasks; none where finding it would take too long, or without a period.
pub fn pace(schedule: &Schedule, turn: &Turn, costs: &Costs) -> Option<Pace> {
    let period = turn.period?;
    // Where microbatches differ, no turn is as long as the one before it.
    let (waits, n_tasks) = waits(schedule, turn, costs, period).filter(|_| !costs.differ())?;
    let work =
        |tasks: &Vec<BlockTask>| tasks.iter().fold(Ticks::ZERO, |sum, task| sum + costs.of(task.kind, task.stage));
    let work: Vec<Ticks> = turn.tasks.iter().map(work).collect();
    let busiest = work.iter().max().copied()?;
    let mut best = Cycle { time: busiest.0.into(), turns: 1, links: BTreeSet::new() };
    let mut looks = 0;
    while let Some(slower) = slower(&waits, n_tasks, (best.time, best.turns), &mut looks)? {
        best = slower;
    }
    let (time, turns) = (Ticks(u64::try_from(best.time).ok()?), u64::try_from(best.turns).ok()?);
    Some(Pace { time, turns, busiest, work, links: best.links.into_iter().collect() })
}

/// Whether no cycle of waits is slower than so much time per turn.
pub(super) fn keeps_pace(waits: &[Wait], n_tasks: usize, time: i128) -> bool {
    // Without such a cycle, nothing moves after as many rounds as there are tasks.
    let mut looks = MOST_LOOKS.saturating_sub((n_tasks + 1) * waits.len());
    matches!(slower(waits, n_tasks, (time, 1), &mut looks), Some(None))
}

fn waits(schedule: &Schedule, turn: &Turn, costs: &Costs, period: u64) -> Option<(Vec<Wait>, usize)> {
    let dependencies = Dependencies::of_block(schedule.block.as_ref()?, &schedule.graph);
    // By kind, stage and microbatch: a task's number. One that occupies several devices is one task.
    let mut numbers: BTreeMap<(TaskKind, StageId, MicrobatchId), usize> = BTreeMap::new();
    let mut all: Vec<BlockTask> = Vec::new();
    let mut orders: Vec<Vec<usize>> = Vec::with_capacity(turn.tasks.len());
    for tasks in &turn.tasks {
        let number = |task: &BlockTask| {
            *numbers.entry((task.kind, task.stage, task.microbatch)).or_insert_with(|| {
                all.push(*task);
                all.len() - 1
            })
        };
        orders.push(tasks.iter().map(number).collect());
    }
    let duration = |index: usize| i128::from(costs.of(all[index].kind, all[index].stage).0);
    let lap = |index: usize| i128::from(all[index].slot / period);
    let devices = |index: usize| schedule.placement.devices(all[index].stage, all[index].microbatch);
    let mut waits = Vec::with_capacity(3 * all.len());
    for (to, task) in all.iter().enumerate() {
        for input in dependencies.input_kinds(task.kind, task.stage) {
            let (microbatch, later) = position(i64::from(task.microbatch.0) + input.ahead, turn.microbatches);
            let Some(from) = numbers.get(&(input.kind, input.stage, microbatch)) else { continue };
            let latency = costs.latency.between_sets(devices(*from), devices(to));
            let ends = devices(*from).first().zip(devices(to).first());
            let link = ends.filter(|_| latency > Ticks::ZERO).map(|(one, other)| (*one.min(other), *one.max(other)));
            waits.push(Wait {
                from: *from,
                to,
                time: duration(*from) + i128::from(latency.0),
                turns: -i128::from(later),
                link,
            });
        }
    }
    for mut order in orders {
        order.sort_by_key(|index| all[*index].slot % period);
        for (position, to) in order.iter().enumerate() {
            // The first task of a period follows the last one of the period before.
            let wraps = i128::from(position == 0);
            let from = order[if position == 0 { order.len() - 1 } else { position - 1 }];
            waits.push(Wait { from, to: *to, time: duration(from), turns: lap(from) - lap(*to) + wraps, link: None });
        }
    }
    Some((waits, all.len()))
}

/// A cycle slower than `time / turns`; `Some(None)` where there is none, `None` after too many looks.
fn slower(waits: &[Wait], n_tasks: usize, (time, turns): (i128, i128), looks: &mut usize) -> Option<Option<Cycle>> {
    let mut latest = vec![0_i128; n_tasks];
    let mut by: Vec<Option<usize>> = vec![None; n_tasks];
    let mut check_at = 1;
    for round in 1.. {
        let mut changed = false;
        for (index, wait) in waits.iter().enumerate() {
            let arrives = latest[wait.from] + wait.time * turns - wait.turns * time;
            if arrives > latest[wait.to] {
                latest[wait.to] = arrives;
                by[wait.to] = Some(index);
                changed = true;
            }
        }
        *looks += waits.len();
        if !changed {
            return Some(None);
        }
        if round == check_at {
            check_at *= 2;
            if let Some(cycle) = cycle(waits, &by) {
                return Some(Some(cycle));
            }
        }
        if *looks > MOST_LOOKS {
            return None;
        }
    }
    None
}

/// A cycle among the waits that tasks were last moved by.
fn cycle(waits: &[Wait], by: &[Option<usize>]) -> Option<Cycle> {
    let mut seen = vec![usize::MAX; by.len()];
    for start in 0..by.len() {
        let mut task = start;
        while seen[task] == usize::MAX {
            seen[task] = start;
            let Some(wait) = by[task] else { break };
            task = waits[wait].from;
        }
        if seen[task] != start || by[task].is_none() {
            continue;
        }
        let (mut found, last) = (Cycle { time: 0, turns: 0, links: BTreeSet::new() }, task);
        while let Some(wait) = by[task].map(|wait| waits[wait]) {
            (found.time, found.turns, task) = (found.time + wait.time, found.turns + wait.turns, wait.from);
            found.links.extend(wait.link);
            if task == last {
                return Some(found).filter(|found| found.turns > 0);
            }
        }
    }
    None
}
