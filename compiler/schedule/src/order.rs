//! Orders as evidence: all tasks in an order in which nothing waits forever. [`crate::check::dependencies`] finds it.

use crate::dependencies::{Dependencies, Join, TaskTable};
use crate::parts::joins::Latest;
use crate::parts::lanes::{Cursors, waits_at};
use crate::schedule::Schedule;
use crate::timing::latency::Latency;
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::Task;
use std::collections::BTreeMap;

/// A place in a device's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Which device.
    pub device: DeviceId,
    /// Position in its order.
    pub position: u32,
}

impl Position {
    /// The place of a task by its index.
    pub fn new(device: DeviceId, position: usize) -> Self {
        let position = u32::try_from(position).expect("orders are far shorter than 2^32 tasks");
        Self { device, position }
    }
}

/// Evidence that nothing waits forever: all tasks in an order in which each comes after its inputs and after the tasks
/// before it on its device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// Every task once, on the first of its devices; two tasks that share a device are in the place of the first.
    pub sequence: Vec<Position>,
    /// What each task needs.
    pub dependencies: Dependencies,
    /// Where each task stands.
    pub table: TaskTable,
    /// Which versions of the weights tasks read, where that is not those of the step's beginning.
    pub versions: Option<Versions>,
}

impl Order {
    /// Where a task stands in the order of the first of its devices.
    pub fn position(&self, task: Task) -> usize {
        self.table.position(task).expect("a complete schedule has every task that another one needs")
    }

    /// What a node of the sequence waits for beside its devices: where each input of its tasks stands, and how long it
    /// is on its way from there. If there are lanes, also what the list of the device waits for. Whatever replays an
    /// order asks this.
    pub fn inputs<'a>(
        &'a self,
        schedule: &'a Schedule,
        latency: &'a Latency,
        slot: Position,
    ) -> impl Iterator<Item = (Position, Ticks)> + 'a {
        let node = schedule.node(slot.device, slot.position as usize);
        let devices = schedule.devices_of(node[0].task);
        let place = |input: Task| Position::new(schedule.device_of(input), self.position(input));
        let inputs = node
            .iter()
            .flat_map(|one| self.dependencies.inputs_beside_updates(one.task))
            .map(move |input| (place(input), schedule.hop(latency, schedule.devices_of(input), devices)));
        let sums = node
            .iter()
            .flat_map(|one| self.dependencies.update_inputs(one.task))
            .map(move |input| (place(*input), latency.of_sum(schedule.device_of(*input), devices.iter().copied())));
        let waits = waits_at(schedule, self.places(schedule, slot));
        inputs.chain(sums).chain(waits.map(|(queue, position)| (Position::new(queue, position), Ticks::ZERO)))
    }

    /// When the last input of a node of the sequence arrives, and all else has ended that it waits for beside its
    /// devices, if its inputs end at these moments. `joins` keeps what many tasks wait for.
    pub fn arrival(
        &self,
        schedule: &Schedule,
        latency: &Latency,
        slot: Position,
        (ends, Replay { joins, cursors }): (&[Vec<Ticks>], &mut Replay),
    ) -> Ticks {
        let node = schedule.node(slot.device, slot.position as usize);
        let devices = schedule.devices_of(node[0].task);
        let end = |task: Task| ends[schedule.device_of(task).index()][self.position(task)];
        let mut last = Ticks::ZERO;
        // Where all links take the same, a join needs to be looked at once.
        let far = latency.of_all().filter(|_| devices.len() == 1);
        for one in node {
            let sums = self.dependencies.update_inputs(one.task).iter();
            let from = |input: Task| latency.of_sum(schedule.device_of(input), devices.iter().copied());
            last = sums.map(|input| end(*input) + from(*input)).fold(last, Ord::max);
            let join = far.and_then(|far| Some((far, self.dependencies.join(one.task)?)));
            let hop = |input: Task| schedule.hop(latency, schedule.devices_of(input), devices);
            let Some((far, join)) = join else {
                let inputs = self.dependencies.inputs_beside_updates(one.task);
                last = inputs.map(|input| end(input) + hop(input)).fold(last, Ord::max);
                continue;
            };
            let inputs = self.dependencies.inputs_alone(one.task);
            last = inputs.map(|input| end(input) + hop(input)).fold(last, Ord::max);
            let stages = self.dependencies.joined(one.task);
            let tasks = || stages.iter().map(|stage| self.dependencies.joined_task(one.task, *stage));
            let homes = |task: Task| schedule.devices_of(task);
            let device = |queue: DeviceId| schedule.parts.device(queue, schedule.n_devices());
            let joined = joins.entry(join).or_insert_with(|| {
                let (alone, together) = tasks().partition::<Vec<Task>, _>(|task| homes(*task).len() == 1);
                let alone = alone.into_iter().map(|task| (end(task), device(homes(task)[0]), ()));
                Joined { alone: Latest::of(alone), together }
            });
            last = joined.alone.at(device(devices[0]), far).map_or(last, |(end, ())| last.max(end));
            last = joined.together.iter().map(|input| end(*input) + hop(*input)).fold(last, Ord::max);
        }
        if !cursors.has_lanes() {
            return last;
        }
        for (queue, position) in self.places(schedule, slot) {
            let waits = cursors.waits(schedule, queue, position);
            last = waits.map(|(queue, position)| ends[queue.index()][position]).fold(last, Ord::max);
        }
        last
    }

    /// The devices of a node of the sequence, each with where it stands in its order.
    pub fn places<'a>(
        &'a self,
        schedule: &'a Schedule,
        slot: Position,
    ) -> impl Iterator<Item = (DeviceId, usize)> + Clone + 'a {
        let task = schedule.orders[slot.device.index()][slot.position as usize].task;
        self.table.places(&schedule.placement, task)
    }
}

/// What is known of nodes before, where a sequence is replayed from its beginning on.
pub struct Replay {
    joins: BTreeMap<Join, Joined>,
    cursors: Cursors,
}

impl Replay {
    /// At the beginning.
    pub fn new(schedule: &Schedule) -> Self {
        Self { joins: BTreeMap::new(), cursors: Cursors::new(schedule) }
    }
}

/// What many tasks wait for.
struct Joined {
    /// The last of what single devices run.
    alone: Latest<()>,
    /// What several devices run together.
    together: Vec<Task>,
}

/// The version of every task, and how many versions that keeps alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versions {
    /// By [`StageId`].
    pub stages: Vec<Staleness>,
    /// The most versions of stages alive at once in the slots of a step.
    pub most_alive: u64,
    /// The same, summed over the slots of a step.
    pub slots_alive: u64,
    /// Slots of a step.
    pub slots: u64,
}

/// How old the weights of a stage are that its tasks read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staleness {
    /// Microbatches of a step that read the newest version that their step can have.
    pub fresh: usize,
    /// Microbatches of a step.
    pub microbatches: usize,
    /// Updates that are missing, summed over the microbatches of a step.
    pub sum: u64,
    /// The most of them.
    pub most: u32,
}
