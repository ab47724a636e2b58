//! Rule: every task finds its inputs, and the devices can run their tasks to the end.
//!
//! A device runs its tasks in order, and a task waits for its inputs (see [`crate::dependencies`]);
//! two tasks that share the device wait for the inputs of both. A task that occupies several
//! devices waits until all of them have come to it. The lowering puts all transfers in one global
//! order that follows this one, so no wait for a task means no wait for a transfer either.

use super::versions;
use crate::dependencies::{Dependencies, TaskTable};
use crate::order::{Order, Position};
use crate::parts::joins::{Found, JoinWaits};
use crate::parts::lanes::Cursors;
use crate::schedule::Schedule;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::Task;
use pipe_syntax::diagnostic::Diagnostics;
use std::collections::BTreeMap;

/// Finds an order in which all tasks can run, or says which ones wait for each other.
///
/// # Errors
/// One diagnostic per group of devices that wait for each other.
pub fn check(schedule: &Schedule, table: TaskTable) -> Result<Order, Diagnostics> {
    let dependencies = Dependencies::of(schedule);
    super::step_tasks::check(schedule, &dependencies)?;
    let progress = run(schedule, &dependencies, &table);
    if progress.n_tasks == schedule.n_tasks() {
        super::swaps::check(schedule, &dependencies)?;
        let versions = versions::check(schedule)?;
        return Ok(Order { sequence: progress.sequence, dependencies, table, versions });
    }
    let knots = super::deadlock::knots(schedule, &dependencies, &table, &progress.next);
    Err(super::deadlock::explain(schedule, &knots))
}

/// How far the devices come.
pub(super) struct Progress {
    /// What runs, each after what it needs.
    pub(super) sequence: Vec<Position>,
    /// How many tasks that are.
    pub(super) n_tasks: usize,
    /// By device: the first task that did not run.
    pub(super) next: Vec<usize>,
}

/// Runs every device as far as it goes. Each task is looked at once, and once more for every time
/// that it was waited for.
pub(super) fn run(schedule: &Schedule, dependencies: &Dependencies, table: &TaskTable) -> Progress {
    let n_devices = schedule.n_queues();
    let mut next = vec![0usize; n_devices];
    let (mut sequence, mut n_tasks) = (Vec::with_capacity(schedule.n_tasks()), 0);
    // A device waits for one device at a time; `waiting_for[d]` lists those that wait for d, with the position awaited.
    let mut waiting_for: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n_devices];
    let mut ready: Vec<usize> = (0..n_devices).rev().collect();
    let is_spread = schedule.placement.spread_stage().is_some();
    // Of tasks that occupy several devices: how many of them have come to it.
    let mut standing: BTreeMap<Task, usize> = BTreeMap::new();
    let (mut joins, mut cursors) = (JoinWaits::default(), Cursors::new(schedule));
    while let Some(device) = ready.pop() {
        let order = &schedule.orders[device];
        while next[device] < order.len() {
            let node = schedule.node(DeviceId::from_index(device), next[device]);
            let task = node[0].task;
            let own = (DeviceId::from_index(device), next[device]);
            let has_run = |(from, position): (DeviceId, usize)| position < next[from.index()];
            let place = |input: Task| Some((schedule.device_of(input), table.position(input)?));
            // What the list of the device waits for; a task on several devices waits for the lists of all.
            if let Some((from, position)) = cursors.waits(schedule, own.0, own.1).find(|place| !has_run(*place)) {
                waiting_for[from.index()].push((device, position));
                break;
            }
            let n_members = if is_spread { schedule.devices_of(task).len() } else { 1 };
            if n_members > 1 {
                // Who comes to the task sleeps, unless it is the last one: that runs it for all.
                let come = standing.entry(task).or_insert(0);
                *come += usize::from(*come < n_members);
                if *come < n_members {
                    break;
                }
            }
            let mut inputs = node.iter().flat_map(|one| dependencies.inputs_beside(one.task)).filter_map(place);
            if let Some((from, position)) = inputs.find(|place| !has_run(*place)) {
                waiting_for[from.index()].push((device, position));
                break;
            }
            let mut is_missing = false;
            for (join, task) in node.iter().filter_map(|one| Some((dependencies.join(one.task)?, one.task))) {
                let stages = dependencies.joined(task);
                let missing =
                    |nth: usize| place(dependencies.joined_task(task, stages[nth])).filter(|place| !has_run(*place));
                match joins.come((join, stages.len()), device, missing) {
                    Found::Complete(others) => ready.extend(others),
                    Found::Watched => is_missing = true,
                    Found::Missing((from, position)) => {
                        waiting_for[from.index()].push((device, position));
                        is_missing = true;
                    }
                }
                if is_missing {
                    break;
                }
            }
            if is_missing {
                break;
            }
            n_tasks += node.len();
            if n_members > 1 {
                standing.remove(&task);
                let places = || table.places(&schedule.placement, task);
                sequence.extend(places().next().map(|(first, position)| slot(first.index(), position)));
                places().for_each(|(other, _)| next[other.index()] += 1);
                ready.extend(places().map(|(other, _)| other.index()).filter(|other| *other != device));
                continue;
            }
            sequence.push(slot(device, next[device]));
            next[device] += node.len();
        }
        waiting_for[device].retain(|(waiter, position)| {
            let still_waits = *position >= next[device];
            if !still_waits {
                ready.push(*waiter);
            }
            still_waits
        });
    }
    Progress { sequence, n_tasks, next }
}

fn slot(device: usize, position: usize) -> Position {
    Position::new(DeviceId::from_index(device), position)
}
