//! Schedules: what is done, where, and in which order on each device. Nothing here knows when.

use crate::parts::StageParts;
use crate::placement::Placement;
use crate::policy::activation::Activations;
use crate::policy::frozen::Frozen;
use crate::slices::Slices;
use crate::stage_graph::StageGraph;
use crate::step_tasks::{CarriedLanes, StepTasks};
use crate::swaps::Swaps;
use crate::timing::latency::Latency;
use crate::units::{Ticks, Units};
use crate::window::Window;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// A task in a device's order, with the statement of the source that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScheduledTask {
    /// The work.
    pub task: Task,
    /// Position in [`Schedule::origins`].
    pub origin: u16,
    /// Whether it shares the device with the task that stands after it: a forward, and then its partner.
    pub with_next: bool,
    /// Its place in the list of its device, where lanes have orders of their own, activations leave, or sums and
    /// updates of gradients have places; otherwise 0.
    pub at: u32,
}

impl ScheduledTask {
    /// A task that has its device for itself.
    pub const fn new(task: Task, origin: u16) -> Self {
        Self { task, origin, with_next: false, at: 0 }
    }

    /// How many tasks of an order a run is, from the first on: one, or both halves of a backward that run
    /// at once. None where the order begins with another.
    pub fn run_by(order: &[Self], run: Task) -> Option<usize> {
        let (first, rest) = order.split_first()?;
        let half = |kind| Task { kind, ..run };
        let is_second = |next: &Self| next.task == half(TaskKind::BackwardWeight);
        let is_both = run.kind == TaskKind::Backward
            && first.task == half(TaskKind::BackwardInput)
            && rest.first().is_some_and(is_second);
        if first.task == run { Some(1) } else { is_both.then_some(2) }
    }

    /// The first task of an order that a run is.
    pub fn of_run(order: &[Self], run: Task) -> Option<Self> {
        let begins = |first: &usize| Self::run_by(&order[*first..], run).is_some();
        (0..order.len()).find(begins).map(|first| order[first])
    }
}

/// A building block: the tasks of some microbatches, usually of one, with their start slots,
/// repeated every `period` slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// How many microbatches a block has, `R`. The last block of a step may have fewer.
    pub microbatches: u32,
    /// Slots between the starts of two blocks, `T`.
    pub period: u64,
    /// The number in the text that says so, where it is one: a fix may replace it.
    pub every: Option<Span>,
    /// Every task of the first block with its start slot.
    pub slots: Vec<BlockTask>,
    /// Slots that one task of a kind takes, by [`TaskKind::index`].
    pub durations: [u64; TaskKind::ALL.len()],
    /// The same for each part of a stage, by [`StageId`]. Empty if stages have no parts.
    pub of_parts: Vec<[u64; TaskKind::ALL.len()]>,
    /// The only number of microbatches that the block is for, where its text names `M`: it is never repeated further.
    pub only: Option<u32>,
}

impl Block {
    /// Slots that a task takes.
    pub fn duration(&self, task: &BlockTask) -> u64 {
        self.durations_of(task.stage)[task.kind.index()]
    }

    /// Slots that one task of a stage takes, by [`TaskKind::index`].
    pub fn durations_of(&self, stage: StageId) -> &[u64; TaskKind::ALL.len()] {
        self.of_parts.get(stage.index()).unwrap_or(&self.durations)
    }

    /// First slot after a task of the first block.
    pub fn end(&self, task: &BlockTask) -> u64 {
        task.slot.saturating_add(self.duration(task))
    }
}

/// A task of a building block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockTask {
    /// Kind of work.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: StageId,
    /// On which microbatch of the block.
    pub microbatch: MicrobatchId,
    /// First slot it occupies in the first block.
    pub slot: u64,
    /// Position in [`Schedule::origins`].
    pub origin: u16,
}

/// What, where, in which order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Name of its declaration.
    pub name: String,
    /// Where its name was declared.
    pub span: Span,
    /// Microbatches that the orders show: those of a step, or of all steps of the window. Each slice counts as one
    /// (see [`crate::slices`]).
    pub n_microbatches: u32,
    /// In how many slices each is cut.
    pub slices: Slices,
    /// The share of the sequence of each slice. Empty if all are equal.
    pub shares: Vec<u32>,
    /// The devices of each task.
    pub placement: Placement,
    /// The steps that follow each other without a flush, where weights change while microbatches are under way.
    pub window: Option<Window>,
    /// Where the placement was written, for errors about it.
    pub placement_span: Span,
    /// The parts of stages. If there are any, all tables by stage have a row for each part.
    pub parts: StageParts,
    /// Which stages read which: those of the model, or a chain.
    pub graph: StageGraph,
    /// What the activations of each stage count.
    pub activations: Activations,
    /// What each device does, in order, by [`DeviceId`]; behind the devices, what each lane of each device does (see
    /// [`crate::parts`]). A task that occupies several devices stands in the order of each.
    pub orders: Vec<Vec<ScheduledTask>>,
    /// Which activations wait elsewhere, and when they leave and come back.
    pub swaps: Swaps,
    /// What devices do once a step with the gradients of stages, if their orders say where.
    pub step_tasks: StepTasks,
    /// What takes turns on lanes beside parts.
    pub carried: CarriedLanes,
    /// Statements that tasks come from.
    pub origins: Vec<Span>,
    /// The building block that the orders repeat, where the schedule was written as one.
    pub block: Option<Block>,
    /// Which stages stay as they are; the tasks that these do not have are in none of the above.
    pub frozen: Frozen,
    /// Where `reorder` was asked for, if it was. The orders above are those before it.
    pub reorder: Option<Span>,
    /// How many pipelines there are side by side, each on as many of the devices. Units are counted for one of them.
    pub pipelines: u32,
}

impl Schedule {
    /// Optimizer steps that the orders show.
    pub fn n_steps(&self) -> u32 {
        self.window.as_ref().map_or(1, |window| window.n_steps)
    }

    /// Microbatches between two updates.
    pub fn microbatches_of_step(&self) -> u32 {
        self.n_microbatches / self.n_steps()
    }

    /// Number of devices.
    pub fn n_devices(&self) -> usize {
        self.n_queues() / (1 + self.parts.lanes().len())
    }

    /// Number of orders: devices, and the lanes of each.
    pub fn n_queues(&self) -> usize {
        self.orders.len()
    }

    /// Number of stages in tables: each part counts as one.
    pub fn n_stages(&self) -> usize {
        self.placement.n_stages()
    }

    /// Number of stages, whatever parts they have.
    pub fn n_whole_stages(&self) -> usize {
        self.parts.n_stages(self.n_stages())
    }

    /// What a stage or part is called: `s1`, `s1.dispatch`.
    pub fn stage_name(&self, stage: StageId) -> String {
        self.parts.name(stage)
    }

    /// What the tasks of a kind of a stage or part are called: `F s1`, `F.dispatch s1`.
    pub fn kind_name(&self, kind: TaskKind, stage: StageId) -> String {
        self.parts.task(kind, stage)
    }

    /// What a task is called: `F s1 m0`, `F.dispatch s1 m0 q1`.
    pub fn task_name(&self, task: Task) -> String {
        format!("{} {}", self.kind_name(task.kind, task.stage), self.slices.name(task.microbatch))
    }

    /// What a device or lane is called: `d1`, `d1 link`.
    pub fn device_name(&self, queue: DeviceId) -> String {
        self.parts.queue_name(queue, self.n_devices())
    }

    /// `d1's`, or `d1 link's`: before the name of a task.
    pub fn whose(&self, queue: DeviceId) -> String {
        format!("{}'s", self.device_name(queue))
    }

    /// How long a transfer takes from some devices or lanes to others.
    pub fn hop(&self, latency: &Latency, from: &[DeviceId], to: &[DeviceId]) -> Ticks {
        if self.parts.lanes().is_empty() {
            return latency.between_sets(from, to);
        }
        let n_devices = self.n_devices();
        // All queues of a set are compute, or the same lane.
        latency.between_queues(from, to, |queue| self.parts.device(queue, n_devices))
    }

    /// For each stage that recomputes some microbatches, but not all: whether it recomputes each microbatch.
    pub fn recomputed_microbatches(&self) -> BTreeMap<StageId, Vec<bool>> {
        let mut all: BTreeMap<StageId, Vec<bool>> = BTreeMap::new();
        let tasks = self.orders.iter().flatten().map(|scheduled| scheduled.task);
        for task in tasks.filter(|task| task.kind == TaskKind::Recompute) {
            let none = || vec![false; self.n_microbatches as usize];
            let own = all.entry(task.stage).or_insert_with(none).get_mut(task.microbatch.index());
            own.into_iter().for_each(|own| *own = true);
        }
        all.retain(|_, own| own.contains(&false));
        all
    }

    /// The list of a device: the tasks of its compute queue and its lanes, in the order of the list. Each is a queue
    /// and a position in that queue's order.
    pub fn list(&self, device: DeviceId) -> Vec<(DeviceId, usize)> {
        let queues = (device.index()..self.n_queues()).step_by(self.n_devices().max(1));
        let places = queues.flat_map(|queue| (0..self.orders[queue].len()).map(move |place| (queue, place)));
        let mut list: Vec<(usize, usize)> = places.collect();
        // An `R` has the place of its backward, and stands before it in their queue.
        list.sort_by_key(|(queue, place)| self.orders[*queue][*place].at);
        list.into_iter().map(|(queue, place)| (DeviceId::from_index(queue), place)).collect()
    }

    /// Number of tasks. One that occupies several devices counts once.
    pub fn n_tasks(&self) -> usize {
        if self.placement.spread_stage().is_none() {
            return self.orders.iter().map(Vec::len).sum();
        }
        let of_device = |(device, order): (usize, &Vec<ScheduledTask>)| {
            let device = DeviceId::from_index(device);
            let own = |task: Task| self.placement.get(task.stage, task.microbatch).first() == Some(&device);
            order.iter().filter(|one| own(one.task)).count()
        };
        self.orders.iter().enumerate().map(of_device).sum()
    }

    /// What some parts of activations of single tasks come to.
    pub fn units(&self, parts: u64) -> Units {
        Units::of_stages(parts, self.n_shares(), self.n_devices() / self.pipelines as usize)
    }

    /// How many parts of activations of single tasks fit in.
    pub fn parts_in(&self, limit: Units) -> u64 {
        limit.to_stages(self.n_shares(), self.n_devices() / self.pipelines as usize)
    }

    /// In how many parts the activations of a microbatch come to be: one for each stage and slice,
    /// or what an activation is counted in.
    fn n_shares(&self) -> usize {
        let each = usize::try_from(self.activations.whole).unwrap_or(usize::MAX);
        self.n_whole_stages().saturating_mul(self.slices.count() as usize).saturating_mul(each)
    }

    /// What a device does at a position: one task, or two that share it. A device starts them when
    /// the inputs of both are there, and both end at once.
    pub fn node(&self, device: DeviceId, position: usize) -> &[ScheduledTask] {
        let rest = self.orders[device.index()].get(position..).unwrap_or_default();
        let n_tasks = if rest.first().is_some_and(|first| first.with_next) { 2 } else { 1 };
        &rest[..n_tasks.min(rest.len())]
    }

    /// Where a task runs: the first of its devices.
    pub fn device_of(&self, task: Task) -> DeviceId {
        self.placement.device(task.stage, task.microbatch)
    }

    /// All devices that a task occupies, ascending.
    pub fn devices_of(&self, task: Task) -> &[DeviceId] {
        self.placement.devices(task.stage, task.microbatch)
    }
}
