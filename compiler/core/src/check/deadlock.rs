//! Explains a deadlock: the shortest circle of devices that wait for each other.
//!
//! Every device that cannot finish stands at one task and waits for inputs that other devices (or itself, later) have
//! not computed. Those waits are the edges of a graph over devices; every knot of it that cannot be undone is reported.

use crate::dependencies::{Dependencies, TaskTable};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Label};
use crate::schedule::{Schedule, ScheduledTask};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use pipe_ir::ids::DeviceId;
use std::collections::VecDeque;

/// Devices named one by one; the rest of a longer circle is counted.
const SHOWN: usize = 3;

/// One wait: a device stands at a task, and that task needs one that has not run.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wait {
    device: DeviceId,
    at: ScheduledTask,
    needs: ScheduledTask,
    /// Where the needed task runs, and the task at which that device stands.
    of: DeviceId,
    of_at: ScheduledTask,
    /// Whether the two share the device.
    is_partner: bool,
}

/// One diagnostic per group of devices that wait for each other. `next` is the position at which each device stands.
pub(super) fn explain(
    schedule: &Schedule,
    dependencies: &Dependencies,
    table: &TaskTable,
    next: &[usize],
) -> Diagnostics {
    let graph = waits(schedule, dependencies, table, next);
    let mut groups = tarjan_scc(&graph);
    groups.iter_mut().for_each(|group| group.sort());
    groups.sort();
    groups.iter().filter_map(|group| shortest_circle(&graph, group)).map(|circle| describe(schedule, &circle)).collect()
}

/// The wait-for graph over devices, one node per device.
fn waits(schedule: &Schedule, dependencies: &Dependencies, table: &TaskTable, next: &[usize]) -> DiGraph<(), Wait> {
    let mut graph = DiGraph::new();
    next.iter().for_each(|_| {
        graph.add_node(());
    });
    let stands_at = |device: DeviceId| schedule.node(device, next[device.index()]);
    for device in 0..next.len() {
        let node = stands_at(DeviceId::from_index(device));
        for (at, input) in node.iter().flat_map(|at| dependencies.inputs(at.task).map(move |input| (*at, input))) {
            let of = schedule.device_of(input);
            let Some(position) = table.position(input) else { continue };
            if position >= next[of.index()] {
                let needs = schedule.orders[of.index()][position];
                let of_node = stands_at(of);
                // Where the needed task is one of two that share the device, the other one is in the way.
                let Some(of_at) = of_node.iter().copied().find(|one| *one != needs).or(of_node.first().copied()) else {
                    continue;
                };
                let is_partner = of_at != needs && of_node.contains(&needs);
                let wait = Wait { device: DeviceId::from_index(device), at, needs, of, of_at, is_partner };
                graph.add_edge(NodeIndex::new(device), NodeIndex::new(of.index()), wait);
            }
        }
    }
    graph
}

/// The fewest waits of a group that form a circle; `None` where the group has none.
fn shortest_circle(graph: &DiGraph<(), Wait>, group: &[NodeIndex]) -> Option<Vec<Wait>> {
    // A breadth-first search per device: bound the work for very large groups, whose circles are long in any case.
    const STARTS: usize = 256;
    group.iter().take(STARTS).filter_map(|start| circle_through(graph, *start)).min_by_key(Vec::len)
}

fn circle_through(graph: &DiGraph<(), Wait>, start: NodeIndex) -> Option<Vec<Wait>> {
    let mut arrived_by: Vec<Option<Wait>> = vec![None; graph.node_count()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for edge in graph.edges(node) {
            let target = edge.target();
            if arrived_by[target.index()].is_none() {
                arrived_by[target.index()] = Some(*edge.weight());
                queue.push_back(target);
            }
        }
    }
    let mut circle = Vec::new();
    let mut device = start.index();
    loop {
        let wait = arrived_by[device]?;
        circle.push(wait);
        device = wait.device.index();
        if device == start.index() {
            circle.reverse();
            return Some(circle);
        }
    }
}

fn describe(schedule: &Schedule, circle: &[Wait]) -> Diagnostic {
    let mut labels: Vec<Label> = Vec::new();
    let name = |task| schedule.slices.task(task);
    let mut label = |origin: u16, text: String| {
        let span = schedule.origins[usize::from(origin)];
        match labels.iter_mut().find(|label| label.span == span) {
            Some(label) => label.text = format!("{}; {text}", label.text),
            None => labels.push(Label { span, text }),
        }
    };
    for wait in circle.iter().take(SHOWN) {
        label(wait.at.origin, format!("{} stands at `{}`", wait.device, name(wait.at.task)));
        label(wait.needs.origin, format!("{} waits for `{}` here", wait.device, name(wait.needs.task)));
    }
    let mut notes: Vec<String> = circle
        .iter()
        .take(SHOWN)
        .map(|wait| {
            let Wait { device, at, needs, of, of_at, is_partner } = wait;
            let when = if *is_partner { "together with" } else { "after" };
            let whose = if of == device { "its own".to_owned() } else { format!("{of}'s") };
            format!(
                "{device} runs `{}` only after {whose} `{}`, which {of} runs {when} `{}`",
                name(at.task),
                name(needs.task),
                name(of_at.task)
            )
        })
        .collect();
    if circle.len() > SHOWN {
        notes.push(format!("{} more devices of the circle wait likewise", circle.len() - SHOWN));
    }
    let [first, ..] = circle else { unreachable!("a circle has at least one wait") };
    let message = match circle {
        [wait] => format!(
            "{} waits for itself: `{}` comes before `{}`",
            wait.device,
            name(wait.at.task),
            name(wait.needs.task)
        ),
        [one, other] => format!("{} and {} wait for each other forever", one.device, other.device),
        _ => format!("{} devices wait for each other in a circle, from {} on", circle.len(), first.device),
    };
    let help = format!("let {} run `{}` before `{}`", first.of, name(first.needs.task), name(first.of_at.task));
    let span = schedule.origins[usize::from(first.at.origin)];
    Diagnostic { labels, notes, ..Diagnostic::error(Code::Deadlock, span, "", message) }.help(help)
}
