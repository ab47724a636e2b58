//! The timeline of a schedule whose activations wait elsewhere: devices also wait for what they evict and fetch, by the
//! rules of [`crate::swaps`].

use crate::order::Order;
use crate::schedule::Schedule;
use crate::swaps::places::Places;
use crate::swaps::{Swap, SwapKind};
use crate::timing::copies::{Clock, Cost, Event};
use crate::timing::durations::Costs;
use crate::timing::timeline::{Copied, Timeline};
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::instruction::Direction;
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeMap;

/// A device, as far as it has come.
#[derive(Default)]
struct Device {
    clock: Clock,
    /// How many of its swaps it has started.
    started: usize,
    /// The last one that evicts something.
    evicted: Option<usize>,
    /// For each activation that was fetched: the last swap that does so.
    fetched: BTreeMap<(StageId, MicrobatchId), usize>,
}

impl Device {
    /// Starts a swap. `emptied_by` is the one that empties its place, and `length` what it takes.
    fn start(&mut self, swap: &Swap, emptied_by: Option<usize>, length: u64) {
        let copy = self.started;
        let key = (swap.stage, swap.microbatch);
        let end = |swap: Option<usize>| swap.map_or(0, |swap| self.clock.end_of(swap));
        let (direction, from) = match swap.kind {
            SwapKind::Evict => (Direction::DeviceToHost, end(emptied_by).max(end(self.fetched.get(&key).copied()))),
            SwapKind::Fetch => (Direction::HostToDevice, end(self.evicted)),
        };
        self.clock.run(Event::Copy { direction, copy, from, length });
        self.started += 1;
        match swap.kind {
            SwapKind::Evict => self.evicted = Some(copy),
            SwapKind::Fetch => drop(self.fetched.insert(key, copy)),
        }
    }

    /// Waits for what a task needs.
    fn wait_for(&mut self, task: Task) {
        let copy = match task.kind {
            TaskKind::Forward | TaskKind::Recompute => self.evicted,
            TaskKind::Backward | TaskKind::BackwardInput => self.fetched.get(&(task.stage, task.microbatch)).copied(),
            TaskKind::BackwardWeight | TaskKind::Update => None,
        };
        copy.into_iter().for_each(|copy| self.clock.run(Event::Wait { copy }));
    }
}

/// Times every task, and says what swaps cost each device.
pub(super) fn simulate(schedule: &Schedule, order: &Order, costs: &Costs) -> (Timeline, Vec<Cost>) {
    let places = Places::of(schedule);
    let mut timeline = Timeline::empty(schedule);
    let mut devices: Vec<Device> = (0..schedule.n_queues()).map(|_| Device::default()).collect();
    for slot in &order.sequence {
        let node = schedule.node(slot.device, slot.position as usize);
        let arrivals = order.inputs(schedule, &costs.latency, *slot);
        let mut start = arrivals.map(|(from, latency)| timeline.end(from) + latency).max().unwrap_or_default();
        let arrived = start;
        for (id, position) in order.places(schedule, *slot) {
            let device = &mut devices[id.index()];
            let at = schedule.orders[id.index()][position].at;
            while let Some(swap) = schedule.swaps.of(id).get(device.started).filter(|swap| swap.at < at) {
                let length = costs.of_swap(swap.kind).0;
                let emptied_by = places.emptied_by(id, device.started);
                device.start(swap, emptied_by, length);
            }
            node.iter().for_each(|one| device.wait_for(one.task));
            start = start.max(Ticks(device.clock.now()));
        }
        let takes = costs.of_node(node);
        for (id, position) in order.places(schedule, *slot) {
            devices[id.index()].clock.run(Event::Work { from: arrived.0, length: 0 });
            devices[id.index()].clock.run(Event::Work { from: start.0, length: takes.0 });
            timeline.starts[id.index()][position..position + node.len()].fill(start);
            timeline.ends[id.index()][position..position + node.len()].fill(start + takes);
        }
    }
    for (id, device) in (0..).map(DeviceId).zip(&mut devices) {
        let swaps = schedule.swaps.of(id).iter();
        let copied = device.clock.carried().into_iter().zip(swaps).map(|((direction, start, end), swap)| Copied {
            device: id,
            direction,
            start: Ticks(start),
            end: Ticks(end),
            swap: Some((swap.stage, swap.microbatch)),
        });
        timeline.copies.extend(copied);
    }
    let costs = devices.iter().map(|device| device.clock.cost()).collect();
    (timeline, costs)
}

/// What swaps cost each device.
pub fn cost(schedule: &Schedule, order: &Order, costs: &Costs) -> Vec<Cost> {
    simulate(schedule, order, costs).1
}
