//! Orders as evidence: all tasks in an order in which nothing waits forever. [`crate::check::dependencies`] finds it.

use crate::dependencies::{Dependencies, TaskTable};
use crate::parts::lanes::waits_at;
use crate::schedule::Schedule;
use crate::timing::latency::Latency;
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::Task;

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
        let inputs = node.iter().flat_map(|one| self.dependencies.inputs(one.task)).map(move |input| {
            let from = Position::new(schedule.device_of(input), self.position(input));
            (from, schedule.hop(latency, schedule.devices_of(input), devices))
        });
        let waits = waits_at(schedule, self.places(schedule, slot));
        inputs.chain(waits.map(|(queue, position)| (Position::new(queue, position), Ticks::ZERO)))
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
