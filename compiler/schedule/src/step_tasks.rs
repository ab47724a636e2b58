//! Sums of gradients, optimizer updates and all-gathers that an order places, and what lanes carry besides parts.
//!
//! `reduce` starts the sum of a stage's gradients over its replicas, and the device goes on. Without it, a device joins
//! after its last task that adds to these gradients. `update` waits for the sum and runs the optimizer. Without it, the
//! optimizer runs at the end of the step. `gather` joins the next all-gather of the weights, which is there only where
//! devices keep shares of them (`zero 3`): whatever it says, nobody waits for it longer than without.
//!
//! All devices join sums in one order, so sums cause no deadlock. Updates can: tasks behind an update wait until all
//! other replicas have joined. The dependency graph has an edge for each such wait.

pub use pipe_syntax::ast::{Carried, StepTaskKind};

use crate::schedule::Schedule;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sum, an update or an all-gather with a place in the list of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepTask {
    /// What.
    pub kind: StepTaskKind,
    /// Of which stage, or of which part on compute.
    pub stage: StageId,
    /// Its place in the list of its device, as [`crate::schedule::ScheduledTask::at`] of tasks.
    pub at: u32,
    /// Position in [`Schedule::origins`].
    pub origin: u16,
}

/// All of them, by device, in the order of each list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StepTasks {
    lists: Vec<Vec<StepTask>>,
}

impl StepTasks {
    /// Those of each device, in the order of its list.
    pub fn new(lists: Vec<Vec<StepTask>>) -> Self {
        Self { lists }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Those of a device, in the order of its list.
    pub fn of(&self, device: DeviceId) -> &[StepTask] {
        self.lists.get(device.index()).map_or(&[], Vec::as_slice)
    }

    /// All, each with its device.
    pub fn all(&self) -> impl Iterator<Item = (DeviceId, &StepTask)> {
        let lists = (0..).map(DeviceId).zip(&self.lists);
        lists.flat_map(|(device, list)| list.iter().map(move |one| (device, one)))
    }

    /// The first one of a kind.
    pub fn first(&self, kind: StepTaskKind) -> Option<&StepTask> {
        self.lists.iter().flatten().find(|one| one.kind == kind)
    }

    /// Leaves only some of them.
    pub fn retain(&mut self, is_kept: impl Fn(&StepTask) -> bool) {
        self.lists.iter_mut().for_each(|list| list.retain(&is_kept));
    }
}

/// Which lanes carry something beside parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CarriedLanes {
    lanes: Vec<Arc<str>>,
    /// By [`Carried`]: its lane, by position among all.
    of: [Option<usize>; Carried::ALL.len()],
}

impl CarriedLanes {
    /// The names of all lanes, and which of them carries what, by [`Carried`].
    pub fn new(lanes: Vec<Arc<str>>, of: [Option<usize>; Carried::ALL.len()]) -> Self {
        Self { lanes, of }
    }

    /// Whether no lane carries anything.
    pub fn is_empty(&self) -> bool {
        self.of.iter().all(Option::is_none)
    }

    /// The lane that carries something, by position among all.
    pub fn of(&self, carried: Carried) -> Option<usize> {
        self.of[carried as usize]
    }

    /// The lanes that carry something, by position among all, with their names.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, &Arc<str>)> {
        self.lanes.iter().enumerate().filter(|(lane, _)| self.of.contains(&Some(*lane)))
    }
}

impl Schedule {
    /// How many tasks of its device's compute stand before it.
    pub fn tasks_before(&self, device: DeviceId, one: &StepTask) -> usize {
        self.orders[device.index()].partition_point(|task| task.at < one.at)
    }

    /// What it is called: `reduce s1`.
    pub fn step_task_name(&self, one: &StepTask) -> String {
        format!("{} {}", one.kind.word(), self.parts.stage_of(one.stage))
    }
}

/// For each device and stage: the position of the last task that adds to the gradients. `gradient` returns the kind of
/// task that computes the weight gradient of a stage.
pub fn last_contributions(
    schedule: &Schedule,
    gradient: impl Fn(StageId, MicrobatchId) -> TaskKind,
) -> Vec<BTreeMap<StageId, usize>> {
    let of_device = |device: usize| {
        let mut last = BTreeMap::new();
        for (position, one) in schedule.orders[device].iter().enumerate() {
            if one.task.kind == gradient(one.task.stage, one.task.microbatch) {
                last.insert(one.task.stage, position);
            }
        }
        last
    };
    (0..schedule.n_devices()).map(of_device).collect()
}

/// For each task behind an update: the tasks after which the other replicas join the sum of that update.
pub fn update_waits(
    schedule: &Schedule,
    gradient: impl Fn(StageId, MicrobatchId) -> TaskKind,
) -> BTreeMap<Task, Vec<Task>> {
    let mut waits: BTreeMap<Task, Vec<Task>> = BTreeMap::new();
    if schedule.step_tasks.first(StepTaskKind::Update).is_none() {
        return waits;
    }
    let mut joins = last_contributions(schedule, gradient);
    let sums = schedule.step_tasks.all().filter(|(_, one)| one.kind == StepTaskKind::Reduce);
    for (device, one) in sums {
        if let (Some(join), Some(before)) =
            (joins[device.index()].get_mut(&one.stage), schedule.tasks_before(device, one).checked_sub(1))
        {
            *join = before.max(*join);
        }
    }
    for (device, one) in schedule.step_tasks.all().filter(|(_, one)| one.kind == StepTaskKind::Update) {
        let others = schedule.placement.devices_of(one.stage).iter().filter(|other| **other != device);
        let joined = |other: &DeviceId| {
            let join = *joins.get(other.index())?.get(&one.stage)?;
            Some(schedule.orders[other.index()][join].task)
        };
        let needed: Vec<Task> = others.filter_map(joined).collect();
        for queue in (device.index()..schedule.n_queues()).step_by(schedule.n_devices().max(1)) {
            let order = &schedule.orders[queue];
            let next = order.get(order.partition_point(|task| task.at < one.at));
            next.into_iter().for_each(|next| waits.entry(next.task).or_default().extend(&needed));
        }
    }
    waits.retain(|_, needed| !needed.is_empty());
    waits
}
