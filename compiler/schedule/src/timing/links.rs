//! Simulates timelines in which transfers and sums of gradients take turns on lanes with the parts there.
//!
//! A lane carries one thing at a time, first come, first served. If several are ready at the same moment, transfers go
//! first, then parts, then sums; among transfers or parts, the global order decides. A transfer occupies the lane of
//! its sender. A sum occupies the lanes of all its members, and is ready when the last of them has joined. Each item
//! gets its turn after a finite time, so lanes cause no deadlock, and no verdict depends on them.

use crate::order::{Order, Position};
use crate::parts::lanes::waits_at;
use crate::schedule::Schedule;
use crate::step_tasks::{Carried, StepTaskKind};
use crate::timing::durations::Costs;
use crate::timing::reductions::Reduction;
use crate::timing::timeline::{Collected, Timeline, Together};
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::Task;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What occupies lanes, or computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A node of the sequence of the order.
    Task(Position),
    /// What a task sends to a device.
    Transfer { from: Position, to: DeviceId },
    /// Reductions of the parts of one stage, from the first on; each is of the same members behind the same tasks.
    Sum(usize),
}

struct Node {
    what: What,
    work: Ticks,
    /// How many nodes it still waits for.
    waits_for: usize,
    /// The latest moment at which something that it waits for ends, so far; and the task that caused it.
    ready: Ticks,
    cause: Option<Position>,
    /// Who waits for it, and for how long after its end.
    next: Vec<(usize, Ticks)>,
    /// The lanes that it occupies.
    lanes: Vec<usize>,
}

/// Who goes first, of several that are ready at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Turn {
    Compute,
    Transfer,
    Part,
    Sum,
}

impl Node {
    const fn turn(&self) -> Turn {
        match self.what {
            What::Task(_) if self.lanes.is_empty() => Turn::Compute,
            What::Task(_) => Turn::Part,
            What::Transfer { .. } => Turn::Transfer,
            What::Sum(_) => Turn::Sum,
        }
    }
}

/// Times every task of a schedule whose lanes carry transfers or some reductions, and says when these end.
pub fn simulate(schedule: &Schedule, order: &Order, costs: &Costs, reductions: &mut [Reduction]) -> Timeline {
    let mut nodes = Nodes::new(schedule, order, costs, reductions);
    let mut timeline = Timeline::empty(schedule);
    let mut free: BTreeMap<usize, Ticks> = BTreeMap::new();
    let none_left = |(_, node): &(usize, &Node)| node.waits_for == 0;
    let ready =
        nodes.all.iter().enumerate().filter(none_left).map(|(index, node)| Reverse((Ticks::ZERO, node.turn(), index)));
    let mut ready: BinaryHeap<Reverse<(Ticks, Turn, usize)>> = ready.collect();
    while let Some(Reverse((now, _, index))) = ready.pop() {
        let node = &mut nodes.all[index];
        let start = node.lanes.iter().filter_map(|lane| free.get(lane)).fold(now, |start, free| start.max(*free));
        let end = start + node.work;
        for lane in &node.lanes {
            free.insert(*lane, end);
        }
        let (what, cause, next) = (node.what, node.cause, std::mem::take(&mut node.next));
        match what {
            What::Task(slot) => {
                let n_tasks = schedule.node(slot.device, slot.position as usize).len();
                for (queue, position) in order.places(schedule, slot) {
                    timeline.starts[queue.index()][position..position + n_tasks].fill(start);
                    timeline.ends[queue.index()][position..position + n_tasks].fill(end);
                }
                timeline.causes.extend(cause.map(|cause| ((slot.device, slot.position), cause)));
            }
            What::Transfer { from, to } => {
                timeline.carried.insert((from.device, from.position, to), [start, end]);
                let device = schedule.parts.device(from.device, schedule.n_devices());
                let stage = schedule.orders[from.device.index()][from.position as usize].task.stage;
                let lane = schedule.carried.of(Carried::Send);
                let part = Collected { device, what: Together::Transfer, stage: Some(stage), lane, start, end };
                timeline.collectives.push(part);
            }
            What::Sum(nth) => {
                let first = reductions[nth].clone();
                for one in reductions.iter_mut().filter(|one| is_one_sum(schedule, one, &first)) {
                    (one.begins, one.end, one.last) = (Some(start), end, cause);
                }
            }
        }
        let cause = if let What::Task(slot) = what { Some(slot) } else { cause };
        for (next, after) in next {
            let follower = &mut nodes.all[next];
            if follower.cause.is_none() || end + after > follower.ready {
                (follower.ready, follower.cause) = (end + after, cause);
            }
            follower.waits_for -= 1;
            if follower.waits_for == 0 {
                ready.push(Reverse((follower.ready, follower.turn(), next)));
            }
        }
    }
    timeline
}

struct Nodes {
    all: Vec<Node>,
}

impl Nodes {
    fn new(schedule: &Schedule, order: &Order, costs: &Costs, reductions: &[Reduction]) -> Self {
        let mut nodes = Self { all: Vec::new() };
        let n_devices = schedule.n_devices();
        let lane = |device: DeviceId, lane: usize| device.index() + lane * n_devices;
        let send = schedule.carried.of(Carried::Send);
        let sum = schedule.carried.of(Carried::Reduce);
        // Who stands at each position of a queue. Transfers of a task follow it.
        let mut homes: Vec<Vec<usize>> = schedule.orders.iter().map(|tasks| vec![0; tasks.len()]).collect();
        let mut transfers: BTreeMap<(usize, DeviceId), usize> = BTreeMap::new();
        let targets = targets(schedule, order, send.is_some(), costs);
        for slot in &order.sequence {
            let node = schedule.node(slot.device, slot.position as usize);
            let own = schedule.parts.lane(node[0].task.stage);
            let queues = order.places(schedule, *slot).filter(|_| own.is_some());
            let lanes =
                queues.map(|(queue, _)| lane(schedule.parts.device(queue, n_devices), own.unwrap_or(0))).collect();
            let index = nodes.push(What::Task(*slot), costs.of_node(node), lanes);
            for (queue, position) in order.places(schedule, *slot) {
                homes[queue.index()][position..position + node.len()].fill(index);
            }
            let from = schedule.parts.device(slot.device, n_devices);
            for (place, to, takes) in targets.get(&(slot.device, slot.position)).into_iter().flatten() {
                let lanes = send.map(|send| lane(from, send)).into_iter().collect();
                let transfer = nodes.push(What::Transfer { from: *place, to: *to }, *takes, lanes);
                nodes.join(index, transfer, Ticks::ZERO);
                transfers.insert((index, *to), transfer);
            }
        }
        let mut sums: BTreeMap<(DeviceId, StageId), usize> = BTreeMap::new();
        for (nth, one) in reductions.iter().enumerate().filter(|_| sum.is_some()) {
            if let Some(first) = reductions[..nth].iter().find(|first| is_one_sum(schedule, one, first)) {
                for member in &one.members {
                    let known = sums[&(member.device, first.stage)];
                    sums.insert((member.device, one.stage), known);
                }
                continue;
            }
            let all = || one.members.iter().map(|member| member.device);
            let takes = all().map(|device| costs.latency.of_sum(device, all())).max().unwrap_or_default();
            let lanes = all().flat_map(|device| sum.map(|sum| lane(device, sum))).collect();
            let index = nodes.push(What::Sum(nth), takes, lanes);
            for member in &one.members {
                sums.insert((member.device, one.stage), index);
                let after = member.after.map(|after| homes[member.device.index()][after as usize]);
                after.into_iter().for_each(|after| nodes.join(after, index, Ticks::ZERO));
            }
        }
        for slot in &order.sequence {
            let own = homes[slot.device.index()][slot.position as usize];
            let to = schedule.parts.device(slot.device, n_devices);
            let node = schedule.node(slot.device, slot.position as usize);
            let devices = schedule.devices_of(node[0].task);
            let home = |task: Task| homes[schedule.device_of(task).index()][order.position(task)];
            for input in node.iter().flat_map(|one| order.dependencies.inputs_beside_updates(one.task)) {
                let latency = schedule.hop(&costs.latency, schedule.devices_of(input), devices);
                match transfers.get(&(home(input), to)) {
                    Some(transfer) if latency > Ticks::ZERO => nodes.join(*transfer, own, Ticks::ZERO),
                    _ => nodes.join(home(input), own, latency),
                }
            }
            for (queue, position) in waits_at(schedule, order.places(schedule, *slot)) {
                nodes.join(homes[queue.index()][position], own, Ticks::ZERO);
            }
            for (queue, position) in order.places(schedule, *slot) {
                if let Some(before) = position.checked_sub(1) {
                    nodes.join(homes[queue.index()][before], own, Ticks::ZERO);
                }
            }
            // What stands behind an update waits for the sum itself, if that is known.
            if !sums.is_empty() {
                let known = updates_before(schedule, *slot).filter_map(|stage| sums.get(&(to, stage)).copied());
                known.for_each(|sum| nodes.join(sum, own, Ticks::ZERO));
                continue;
            }
            for input in node.iter().flat_map(|one| order.dependencies.update_inputs(one.task)) {
                let takes = costs.latency.of_sum(schedule.device_of(*input), devices.iter().copied());
                nodes.join(home(*input), own, takes);
            }
        }
        nodes
    }

    fn push(&mut self, what: What, work: Ticks, lanes: Vec<usize>) -> usize {
        let node = Node { what, work, waits_for: 0, ready: Ticks::ZERO, cause: None, next: Vec::new(), lanes };
        self.all.push(node);
        self.all.len() - 1
    }

    fn join(&mut self, from: usize, to: usize, after: Ticks) {
        self.all[from].next.push((to, after));
        self.all[to].waits_for += 1;
    }
}

/// Whether two reductions are of parts of the same stage, and their members join both behind the same tasks.
fn is_one_sum(schedule: &Schedule, one: &Reduction, other: &Reduction) -> bool {
    let stage = |one: &Reduction| schedule.parts.stage_of(one.stage);
    one == other || !schedule.parts.is_empty() && stage(one) == stage(other) && one.members == other.members
}

/// For each task of the sequence: the devices that it sends to, and how long each transfer takes.
type Targets = BTreeMap<(DeviceId, u32), Vec<(Position, DeviceId, Ticks)>>;

/// Finds all transfers. Empty if no lane carries them.
fn targets(schedule: &Schedule, order: &Order, is_carried: bool, costs: &Costs) -> Targets {
    let mut all = Targets::new();
    if !is_carried {
        return all;
    }
    let n_devices = schedule.n_devices();
    for slot in &order.sequence {
        let to = schedule.parts.device(slot.device, n_devices);
        let node = schedule.node(slot.device, slot.position as usize);
        let flows = node.iter().flat_map(|one| order.dependencies.inputs_beside_updates(one.task));
        for input in flows {
            let from = Position::new(schedule.device_of(input), order.position(input));
            let takes = schedule.hop(&costs.latency, schedule.devices_of(input), schedule.devices_of(node[0].task));
            // A pair sends as one task, its first.
            let before = from.position.checked_sub(1);
            let is_second =
                before.is_some_and(|before| schedule.orders[from.device.index()][before as usize].with_next);
            let first = if is_second { from.position - 1 } else { from.position };
            let own = all.entry((from.device, first)).or_default();
            if takes > Ticks::ZERO && own.iter().all(|(_, other, _)| *other != to) {
                own.push((from, to, takes));
            }
        }
    }
    all
}

/// The stages that are updated between a task and the task before it in its queue.
fn updates_before(schedule: &Schedule, slot: Position) -> impl Iterator<Item = StageId> + '_ {
    let device = schedule.parts.device(slot.device, schedule.n_devices());
    let order = &schedule.orders[slot.device.index()];
    let place = slot.position as usize;
    let from = place.checked_sub(1).map_or(0, |before| order[before].at);
    let until = order[place].at;
    let own = schedule.step_tasks.of(device).iter().filter(move |one| one.kind == StepTaskKind::Update);
    own.filter(move |one| (from..until).contains(&one.at)).map(|one| one.stage)
}
