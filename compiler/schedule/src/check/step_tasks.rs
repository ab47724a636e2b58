//! Rule: a sum of gradients is joined, and weights are updated, behind all that adds to them, once, and in an order
//! that all devices share.
//!
//! The backwards of a stage are behind its forwards, so what stands behind them reads weights that nothing else needs
//! any more. Of several devices that join the same two sums, all must join them in the same order.

use crate::dependencies::Dependencies;
use crate::schedule::Schedule;
use crate::step_tasks::{StepTask, StepTaskKind, last_contributions};
use pipe_ir::ids::{DeviceId, StageId};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Reads every list with sums and updates.
///
/// # Errors
/// One diagnostic per statement in a wrong place. If there are none: one if devices join sums in different orders.
pub(super) fn check(schedule: &Schedule, dependencies: &Dependencies) -> Result<(), Diagnostics> {
    if schedule.step_tasks.is_empty() {
        return Ok(());
    }
    let last = last_contributions(schedule, |stage, microbatch| dependencies.gradient_of(stage, microbatch));
    let mut told = BTreeSet::new();
    let mut found: Diagnostics = (0..schedule.n_devices())
        .map(DeviceId::from_index)
        .flat_map(|device| of_device(schedule, device, &last[device.index()]))
        .filter(|(origin, _)| told.insert(*origin))
        .map(|(_, found)| found)
        .collect();
    if found.is_empty() {
        found.extend(other_order(schedule));
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn span(schedule: &Schedule, one: &StepTask) -> Span {
    schedule.origins[usize::from(one.origin)]
}

/// What is wrong with the list of a device, each with the statement.
fn of_device(schedule: &Schedule, device: DeviceId, last: &BTreeMap<StageId, usize>) -> Vec<(u16, Diagnostic)> {
    let mut known: BTreeMap<(StageId, StepTaskKind), &StepTask> = BTreeMap::new();
    let mut found = Vec::new();
    // Weights may be gathered anywhere, and again.
    for one in schedule.step_tasks.of(device).iter().filter(|one| one.kind != StepTaskKind::Gather) {
        let name = schedule.step_task_name(one);
        let error =
            |label: &str, message: String| Diagnostic::error(Code::WrongReduce, span(schedule, one), label, message);
        if let Some(first) = known.insert((one.stage, one.kind), one) {
            let message = format!("`{name}` stands twice in the order of {device}, and a step has one");
            let error = error("again", message);
            let is_same = first.origin == one.origin;
            let error = if is_same { error } else { error.label(span(schedule, first), "here first") };
            found.push((one.origin, error.help("leave one of them out; in a loop, let it stand behind the loop")));
            continue;
        }
        let behind = last.get(&one.stage).filter(|last| **last >= schedule.tasks_before(device, one));
        if let Some(behind) = behind.map(|last| schedule.orders[device.index()][*last]) {
            let task = schedule.task_name(behind.task);
            let what = if one.kind == StepTaskKind::Reduce { "sums up" } else { "uses" };
            let message =
                format!("`{name}` of {device} stands before `{task}`, which adds to the gradients that it {what}");
            let error = error("too early", message).label(schedule.origins[usize::from(behind.origin)], "adds to them");
            found.push((one.origin, error.help(format!("let `{name}` stand behind `{task}`"))));
            continue;
        }
        if let Some(update) = known.get(&(one.stage, StepTaskKind::Update)).filter(|_| one.kind == StepTaskKind::Reduce)
        {
            let update_name = schedule.step_task_name(update);
            let message = format!("`{name}` of {device} stands behind `{update_name}`, which waits for that sum");
            let error = error("too late", message).label(span(schedule, update), "waits for it");
            found.push((one.origin, error.help(format!("let `{name}` stand before `{update_name}`"))));
            continue;
        }
        let others = || schedule.placement.devices_of(one.stage).iter();
        let joins = |other: &&DeviceId| {
            let is_sum = |task: &StepTask| (task.kind, task.stage) == (StepTaskKind::Reduce, one.stage);
            schedule.step_tasks.of(**other).iter().any(is_sum)
        };
        if one.kind == StepTaskKind::Update
            && others().len() > 1
            && let Some(other) = others().find(|other| !joins(other))
        {
            let stage = schedule.parts.stage_of(one.stage);
            let message = format!("`{name}` of {device} waits for a sum of gradients, which {other} joins at no place");
            let help = format!("let `reduce` of {stage} stand in the order of each of its devices, before `update`");
            found.push((one.origin, error("waits for a sum", message).help(help)));
        }
    }
    found
}

/// A sum that stands before another one in the list of a device.
#[derive(Clone, Copy)]
struct Before<'a> {
    device: DeviceId,
    first: &'a StepTask,
    second: &'a StepTask,
}

/// Says which sums devices join in different orders: some shortest circle of them.
fn other_order(schedule: &Schedule) -> Option<Diagnostic> {
    let mut edges: BTreeMap<StageId, Vec<Before<'_>>> = BTreeMap::new();
    for device in (0..schedule.n_devices()).map(DeviceId::from_index) {
        let is_sum =
            |one: &&StepTask| one.kind == StepTaskKind::Reduce && schedule.placement.devices_of(one.stage).len() > 1;
        let sums: Vec<&StepTask> = schedule.step_tasks.of(device).iter().filter(is_sum).collect();
        for pair in sums.windows(2) {
            edges.entry(pair[0].stage).or_default().push(Before { device, first: pair[0], second: pair[1] });
        }
    }
    let circle = edges.keys().filter_map(|start| circle(&edges, *start)).min_by_key(Vec::len)?;
    let words: Vec<String> = circle
        .iter()
        .map(|Before { device, first, second }| {
            let stages = [first, second].map(|one| schedule.parts.stage_of(one.stage));
            format!("{device} joins {} before {}", stages[0], stages[1])
        })
        .collect();
    let message = format!("devices join sums of gradients in different orders: {}", words.join(", "));
    let mut error = Diagnostic::error(Code::WrongReduce, span(schedule, circle[0].first), "joined here", message);
    let mut seen = BTreeSet::from([circle[0].first.origin]);
    for one in &circle {
        if seen.insert(one.second.origin) {
            error = error.label(span(schedule, one.second), "and here");
        }
    }
    Some(error.help("let all devices that have both stages join them in the same order"))
}

/// The shortest way from a sum back to itself.
fn circle<'a>(edges: &BTreeMap<StageId, Vec<Before<'a>>>, start: StageId) -> Option<Vec<Before<'a>>> {
    let mut came: BTreeMap<StageId, Before<'a>> = BTreeMap::new();
    let mut next = std::collections::VecDeque::from([start]);
    while let Some(stage) = next.pop_front() {
        for edge in edges.get(&stage).into_iter().flatten() {
            if came.contains_key(&edge.second.stage) {
                continue;
            }
            came.insert(edge.second.stage, *edge);
            if edge.second.stage != start {
                next.push_back(edge.second.stage);
                continue;
            }
            let mut way = vec![*edge];
            while let Some(edge) = way.last().filter(|edge| edge.first.stage != start) {
                way.push(came[&edge.first.stage]);
            }
            way.reverse();
            return Some(way);
        }
    }
    None
}
