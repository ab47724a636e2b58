//! Timelines: when every task of a schedule starts and ends.
//!
//! Others replay an order, too: `sharing` event by event, as speeds change, and lowering where tasks
//! also wait for copies. All ask [`Order::inputs`] what a task waits for. The search has its own
//! ([`crate::dispatch::plan`]).

use crate::order::{Order, Position, Replay};
use crate::schedule::Schedule;
use crate::timing::durations::Costs;
use crate::timing::latency::Latency;
use crate::timing::reductions::{Member, Reduction};
use crate::timing::{links, sharing, swaps};
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::instruction::Direction;
use pipe_ir::task::Task;
use std::collections::BTreeMap;

/// When tasks run, under some costs, each as soon as its device is free and its inputs have arrived.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timeline {
    /// Start of each task, by device and position in the device's order.
    pub starts: Vec<Vec<Ticks>>,
    /// End of each task, likewise.
    pub ends: Vec<Vec<Ticks>>,
    /// When the gradients of replicated weights are added up at last, and the task after which that
    /// ends: the last member of the last reduction joins after it, or the last sum travels on.
    pub reduced: Option<(Ticks, Position)>,
    /// The tasks that start when weights were gathered, by device and position in its order: behind
    /// which task of another device that ended, if behind any.
    pub gathered: BTreeMap<(DeviceId, u32), Option<Position>>,
    /// The device that has done its updates last and has everything back with its host, where state lives there.
    pub updated: Option<Updated>,
    /// Copies between devices and their hosts, or of activations that are evicted and fetched, device by device, in the
    /// order in which each queues them.
    pub copies: Vec<Copied>,
    /// What several devices do together, a part for each of them; and transfers that take turns on lanes.
    pub collectives: Vec<Collected>,
    /// By task, if transfers take turns on lanes: the task that it waited for last.
    pub causes: BTreeMap<(DeviceId, u32), Position>,
    /// By task and the device to which it sends, if transfers take turns on lanes: from when to when.
    pub carried: BTreeMap<(DeviceId, u32, DeviceId), [Ticks; 2]>,
}

/// A device's part of what it does together with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collected {
    /// The device.
    pub device: DeviceId,
    /// What.
    pub what: Together,
    /// Whose weights or gradients they are, where that is one stage.
    pub stage: Option<StageId>,
    /// The lane that carries it, by position among all.
    pub lane: Option<usize>,
    /// When it joins.
    pub start: Ticks,
    /// When every member has the result.
    pub end: Ticks,
}

pipe_ir::words! {
    /// What devices do together.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Together {
        /// Gradients are added up.
        Sum "sum of gradients"
        /// Shares of weights come together.
        Weights "gathering of weights"
        /// What a task made goes to another device.
        Transfer "transfer"
    }
}

/// A copy between a device and its host, or another device where its activations wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The device.
    pub device: DeviceId,
    /// Which way.
    pub direction: Direction,
    /// When its queue begins with it.
    pub start: Ticks,
    /// When it has ended.
    pub end: Ticks,
    /// The activation that is evicted or fetched, if it is that.
    pub swap: Option<(StageId, MicrobatchId)>,
}

/// A device behind its last task, where state lives with hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Updated {
    /// When all is done.
    pub end: Ticks,
    /// Time in updates; in the rest, copies were waited for.
    pub work: Ticks,
    /// Which device.
    pub device: DeviceId,
}

/// Times every task of a schedule: in one pass along a global order, where every device has its own processor.
pub fn simulate(schedule: &Schedule, order: &Order, costs: &Costs) -> Timeline {
    if shares(schedule, costs) {
        return sharing::simulate(schedule, order, costs).0;
    }
    if !schedule.carried.is_empty() {
        return links::simulate(schedule, order, costs, &mut []);
    }
    if !schedule.swaps.is_empty() {
        return swaps::simulate(schedule, order, costs).0;
    }
    simulate_with(schedule, order, &costs.latency, |slot, ready| {
        let start = ready.free.max(ready.arrived);
        (start, start + costs.of_node(schedule.node(slot.device, slot.position as usize)))
    })
}

/// The same, with the moments at which each device has also done its updates, right after its tasks.
pub fn simulate_with_updates(schedule: &Schedule, order: &Order, costs: &Costs) -> (Timeline, Vec<Ticks>) {
    if shares(schedule, costs) {
        return sharing::simulate(schedule, order, costs);
    }
    let timeline = simulate(schedule, order, costs);
    let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
    let updated = devices.map(|device| timeline.last_end(device) + sharing::updates(schedule, costs, device)).collect();
    (timeline, updated)
}

/// Whether devices share processors. Devices with lanes have their own, and those whose activations wait elsewhere.
fn shares(schedule: &Schedule, costs: &Costs) -> bool {
    schedule.parts.lanes().is_empty()
        && schedule.swaps.is_empty()
        && schedule.carried.is_empty()
        && costs.sharing.binds(schedule.n_devices())
}

/// What the start of a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// When its devices are done with the tasks before it.
    pub free: Ticks,
    /// When its last input has come.
    pub arrived: Ticks,
}

/// The same where the start and the end of each task, or of two that share a device, follow in any
/// way from what it waits for.
pub fn simulate_with(
    schedule: &Schedule,
    order: &Order,
    latency: &Latency,
    span: impl Fn(Position, Ready) -> (Ticks, Ticks),
) -> Timeline {
    let Timeline { mut starts, mut ends, .. } = Timeline::empty(schedule);
    let mut replay = Replay::new(schedule);
    for slot in &order.sequence {
        let node = schedule.node(slot.device, slot.position as usize);
        let places = order.places(schedule, *slot);
        let is_free = places.clone().map(|(device, position)| match position {
            0 => Ticks::ZERO,
            _ => ends[device.index()][position - 1],
        });
        let arrived = order.arrival(schedule, latency, *slot, (&ends, &mut replay));
        let ready = Ready { free: is_free.max().unwrap_or_default(), arrived };
        let (start, end) = span(*slot, ready);
        for (device, position) in places {
            starts[device.index()][position..position + node.len()].fill(start);
            ends[device.index()][position..position + node.len()].fill(end);
        }
    }
    Timeline { starts, ends, ..Timeline::default() }
}

impl Timeline {
    /// Of a schedule whose tasks all run at once, in no time.
    pub fn empty(schedule: &Schedule) -> Self {
        let none = || schedule.orders.iter().map(|tasks| vec![Ticks::ZERO; tasks.len()]).collect();
        Self { starts: none(), ends: none(), ..Self::default() }
    }

    /// When the task at a position ends.
    pub fn end(&self, at: Position) -> Ticks {
        self.ends[at.device.index()][at.position as usize]
    }

    /// Notes when the last of all reductions ends.
    pub fn reduce(&mut self, reductions: &[Reduction]) {
        let ends = reductions.iter().filter_map(|one| Some((one.end, one.last?)));
        self.reduced = ends.max_by_key(|(end, _)| *end);
    }

    /// Notes when the weights are gathered that devices divide: after sums and tasks, at the end of the step.
    pub fn exchange_shares(&mut self, reductions: &[Reduction], latency: &Latency) {
        let gathered = reductions.iter().filter_map(|one| {
            let all = || one.members.iter().map(|member| member.device);
            let begin = all().map(|device| self.last_end(device)).max()?.max(one.end);
            let farthest = all().map(|device| latency.farthest(device, all())).max()?;
            Some((one, begin, begin + farthest))
        });
        let gathered: Vec<(&Reduction, Ticks, Ticks)> = gathered.collect();
        let ends = gathered.iter().filter_map(|(one, _, end)| Some((*end, one.last?)));
        self.reduced = ends.chain(self.reduced).max_by_key(|(end, _)| *end);
        for (one, start, end) in gathered {
            let part = |member: &Member| Collected {
                device: member.device,
                what: Together::Weights,
                stage: Some(one.stage),
                lane: None,
                start,
                end,
            };
            self.collectives.extend(one.members.iter().map(part));
        }
    }

    /// Notes which device joins which of some reductions when. `lane` is the one that carries them, if one does.
    pub fn join(&mut self, reductions: &[Reduction], lane: Option<usize>) {
        for one in reductions {
            let part = |member: &Member| Collected {
                device: member.device,
                what: Together::Sum,
                stage: Some(one.stage),
                lane: one.begins.and(lane),
                start: one.begins.unwrap_or_else(|| member.joins(self)),
                end: one.end,
            };
            let parts: Vec<Collected> = one.members.iter().map(part).collect();
            self.collectives.extend(parts);
        }
    }

    /// Notes when the last of all travelling sums arrives.
    pub fn gather(&mut self, schedule: &Schedule, order: &Order, latency: &Latency) {
        let sums = order.dependencies.sums().last().map(|(stage, microbatch)| {
            let task = Task { kind: order.dependencies.gradient_of(stage, microbatch), stage, microbatch };
            let (device, position) = (schedule.device_of(task), order.position(task));
            let slot = Position { device, position: u32::try_from(position).unwrap_or(u32::MAX) };
            let replicas = schedule.placement.devices_of(stage).iter().copied();
            (self.ends[device.index()][position] + latency.farthest(device, replicas), slot)
        });
        self.reduced = sums.chain(self.reduced).max_by_key(|(end, _)| *end);
    }

    /// Notes when the last exchange of gradients ends, if there is one, and the task that it follows.
    pub fn exchange(&mut self, exchanged: Option<(Ticks, Position)>) {
        self.reduced = self.reduced.into_iter().chain(exchanged).max_by_key(|(end, _)| *end);
    }

    /// From the first start of the schedule, which is 0, to the last end, of a task, a reduction or
    /// an update that copies belong to.
    pub fn makespan(&self) -> Ticks {
        let tasks = self.ends.iter().filter_map(|ends| ends.last().copied());
        let (reduced, updated) = (self.reduced.map(|(end, _)| end), self.updated.map(|updated| updated.end));
        tasks.chain(reduced).chain(updated).max().unwrap_or_default()
    }

    /// When a device starts its first task; 0 where it has none.
    pub fn first_start(&self, device: DeviceId) -> Ticks {
        self.starts[device.index()].first().copied().unwrap_or_default()
    }

    /// When a device ends its last task.
    pub fn last_end(&self, device: DeviceId) -> Ticks {
        self.ends[device.index()].last().copied().unwrap_or_default()
    }

    /// Time that a device spends in tasks.
    pub fn busy(&self, device: DeviceId) -> Ticks {
        let (starts, ends) = (&self.starts[device.index()], &self.ends[device.index()]);
        let mut busy = (Ticks::ZERO, Ticks::ZERO);
        for (start, end) in starts.iter().zip(ends) {
            // Two tasks that share the device have the same start and end.
            busy = (busy.0 + (*end - (*start).max(busy.1)), *end);
        }
        busy.0
    }

    /// The papers' figure: the longest time from first start to last end on one device.
    pub fn longest_stage(&self) -> Ticks {
        let devices = (0..self.ends.len()).map(DeviceId::from_index);
        devices.map(|device| self.last_end(device) - self.first_start(device)).max().unwrap_or_default()
    }
}
