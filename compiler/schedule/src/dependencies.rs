//! Dependencies: what a task needs before it can start, and where the tasks of a schedule stand.
//!
//! F(s, m) needs F(r, m) of every stage r that s reads. B or BW(s, m) needs F(s, m) and the B or BW(t, m) of every
//! stage t that reads s. W(s, m) needs B(s, m). Where a stage recomputes, R(s, m) needs F(s, m), and B or BW(s, m)
//! needs R(s, m). Which stages read which the stage graph says; nothing else in the compiler knows. Where
//! microbatches are cut into slices, F(s, m, q) needs F(s, m, q-1) too, whose keys and values it reads, and B or
//! BW(s, m, q) the B or BW(s, m, q+1) that computes their gradients. Where s reads r of k microbatches before, F(s,
//! m) needs F(r, m-k), and B or BW(r, m) the B or BW(s, m+k), as far as there are such microbatches. If sums of
//! gradients travel between devices, W or BW(s, m) also needs W or BW(s, m-1), and tasks behind an update need the
//! last weight gradient of its step (see [`crate::block::chained_reductions`]). If an order places an update, the
//! tasks behind it need the tasks after which other devices join its sum (see [`crate::step_tasks`]).

use crate::block::chained_reductions::Sums;
use crate::placement::Placement;
use crate::policy::frozen::Frozen;
use crate::schedule::{Block, Schedule};
use crate::slices::Slices;
use crate::stage_graph::{ListId, StageGraph};
use crate::step_tasks::update_waits;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeMap;

/// The kinds that a schedule orders; updates are added by the lowering.
pub const SCHEDULED: [TaskKind; 5] =
    [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward, TaskKind::Recompute];

/// What every task needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependencies {
    /// By stage: whether its backward is split in `B` and `W`, of some microbatches at least.
    split: Vec<bool>,
    /// By stage: whether it computes weight gradients in tasks of their own.
    has_weight: Vec<bool>,
    /// By stage: whether it recomputes, of some microbatches at least.
    recomputes: Vec<bool>,
    /// For each stage that recomputes some microbatches, but not all: whether it recomputes each microbatch.
    recomputed: BTreeMap<StageId, Vec<bool>>,
    graph: StageGraph,
    /// Of stages that split the backward of some microbatches only: by microbatch, whether it runs at once.
    fused: BTreeMap<StageId, Vec<bool>>,
    slices: Slices,
    n_microbatches: u32,
    sums: Sums,
    /// What tasks wait for because an update stands before them.
    updates: BTreeMap<Task, Vec<Task>>,
}

/// Many tasks of one microbatch that other tasks wait for, which therefore are looked at once for all of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Join {
    is_forward: bool,
    list: ListId,
    microbatch: MicrobatchId,
}

/// A task that another one needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    /// Its kind.
    pub kind: TaskKind,
    /// Its stage.
    pub stage: StageId,
    /// How many microbatches it is after the task that needs it; mostly 0.
    pub ahead: i64,
}

impl Dependencies {
    /// Reads off a schedule which stages split their backward.
    pub fn of(schedule: &Schedule) -> Self {
        let tasks = schedule.orders.iter().flatten().map(|scheduled| scheduled.task);
        let kinds = tasks.clone().map(|task| (task.kind, task.stage));
        let (slices, n_microbatches) = (schedule.slices, schedule.n_microbatches);
        let mut all = Self { slices, n_microbatches, ..Self::from_kinds(&schedule.graph, kinds) };
        all.recomputed = schedule.recomputed_microbatches();
        for task in tasks.filter(|task| task.kind == TaskKind::Backward) {
            if all.split.get(task.stage.index()) == Some(&true) {
                let none = || vec![false; schedule.n_microbatches as usize];
                let fused = all.fused.entry(task.stage).or_insert_with(none).get_mut(task.microbatch.index());
                fused.into_iter().for_each(|fused| *fused = true);
            }
        }
        all.sums = Sums::of(schedule, |stage, microbatch| all.gradient_of(stage, microbatch));
        all.updates = update_waits(schedule, |stage, microbatch| all.gradient_of(stage, microbatch));
        all
    }

    /// Reads off a building block which stages split their backward.
    pub fn of_block(block: &Block, graph: &StageGraph) -> Self {
        Self::from_kinds(graph, block.slots.iter().map(|task| (task.kind, task.stage)))
    }

    /// Every stage splits its backward, or none does. No stage recomputes.
    pub fn uniform(graph: &StageGraph, split: bool) -> Self {
        let n_stages = graph.n_stages();
        Self {
            split: vec![split; n_stages],
            has_weight: vec![split; n_stages],
            recomputes: vec![false; n_stages],
            recomputed: BTreeMap::new(),
            fused: BTreeMap::new(),
            graph: graph.clone(),
            slices: Slices::ONE,
            n_microbatches: u32::MAX,
            sums: Sums::default(),
            updates: BTreeMap::new(),
        }
    }

    /// Every stage splits its backward; some may run that of any microbatch at once.
    pub fn of_either(graph: &StageGraph, n_microbatches: u32, may_fuse: impl Fn(StageId) -> bool) -> Self {
        let stages = (0..graph.n_stages()).map(StageId::from_index).filter(|stage| may_fuse(*stage));
        let fused = stages.map(|stage| (stage, vec![false; n_microbatches as usize])).collect();
        Self { fused, ..Self::uniform(graph, true) }
    }

    /// Returns the same dependencies for a schedule with frozen stages. The backward of a frozen stage is `B`, without
    /// a `W`.
    #[must_use]
    pub fn with_frozen(mut self, frozen: &Frozen) -> Self {
        for stage in (0..self.n_stages()).map(StageId::from_index).filter(|stage| frozen.is_frozen(*stage)) {
            self.split[stage.index()] = true;
            self.has_weight[stage.index()] = false;
            self.fused.remove(&stage);
        }
        self
    }

    fn from_kinds(graph: &StageGraph, kinds: impl Iterator<Item = (TaskKind, StageId)>) -> Self {
        let mut all = Self::uniform(graph, false);
        for (kind, stage) in kinds {
            let noted = match kind {
                TaskKind::BackwardInput => all.split.get_mut(stage.index()),
                TaskKind::BackwardWeight => all.has_weight.get_mut(stage.index()),
                TaskKind::Recompute => all.recomputes.get_mut(stage.index()),
                TaskKind::Forward | TaskKind::Backward | TaskKind::Update => None,
            };
            noted.into_iter().for_each(|noted| *noted = true);
        }
        all
    }

    /// The same dependencies, but exactly these stages recompute, by [`StageId`].
    #[must_use]
    pub fn with_recomputation(self, recomputes: Vec<bool>) -> Self {
        Self { recomputes, ..self }
    }

    /// The same dependencies, with the recomputation of `other`.
    #[must_use]
    pub fn with_recomputation_of(self, other: &Self) -> Self {
        Self { recomputes: other.recomputes.clone(), recomputed: other.recomputed.clone(), ..self }
    }

    /// Whether a stage recomputes, of some microbatches at least: its `F` saves nothing, and its `R` all that the
    /// backward reads.
    pub fn recomputes(&self, stage: StageId) -> bool {
        self.recomputes[stage.index()]
    }

    /// Whether a stage recomputes some microbatches, but not all.
    pub fn recomputes_some(&self, stage: StageId) -> bool {
        self.recomputed.contains_key(&stage)
    }

    /// The number of recomputed microbatches of a stage that does not recompute all.
    pub fn n_recomputed(&self, stage: StageId) -> u64 {
        self.recomputed.get(&stage).map_or(0, |own| own.iter().filter(|own| **own).count() as u64)
    }

    /// The kind of task of a stage that saves its activations, alone if it ever does so.
    pub fn first(&self, stage: StageId) -> TaskKind {
        if self.recomputes(stage) { TaskKind::Recompute } else { TaskKind::Forward }
    }

    /// The kind of task of a stage that saves its activations of a microbatch.
    pub fn first_of(&self, stage: StageId, microbatch: MicrobatchId) -> TaskKind {
        match self.recomputed.get(&stage) {
            Some(own) if !own[microbatch.index()] => TaskKind::Forward,
            _ => self.first(stage),
        }
    }

    /// Whether a task saves the activations of its stage and microbatch.
    pub fn is_first(&self, task: Task) -> bool {
        task.kind == self.first_of(task.stage, task.microbatch)
    }

    /// Number of stages.
    pub fn n_stages(&self) -> usize {
        self.split.len()
    }

    /// Which stages read which.
    pub fn graph(&self) -> &StageGraph {
        &self.graph
    }

    /// Whether a stage computes its input and weight gradients in two tasks, of some microbatches at least.
    pub fn is_split(&self, stage: StageId) -> bool {
        self.split[stage.index()]
    }

    /// Whether a stage computes both gradients in one task, of some microbatches at least.
    pub fn is_fused(&self, stage: StageId) -> bool {
        !self.is_split(stage) || self.fused.contains_key(&stage)
    }

    /// The kind of task of a stage that computes the gradient of its input for a microbatch.
    pub fn backward_of(&self, stage: StageId, microbatch: MicrobatchId) -> TaskKind {
        match self.fused.get(&stage) {
            Some(fused) if fused[microbatch.index()] => TaskKind::Backward,
            _ => self.backward(stage),
        }
    }

    /// The kind of task of a stage that computes the gradient of its weights for a microbatch.
    pub fn gradient_of(&self, stage: StageId, microbatch: MicrobatchId) -> TaskKind {
        match self.backward_of(stage, microbatch) {
            TaskKind::BackwardInput => TaskKind::BackwardWeight,
            other => other,
        }
    }

    /// Which sums of gradients travel from device to device.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    /// The task whose sum of gradients a task adds to, if it comes from there.
    pub fn sum_before(&self, task: Task) -> Option<Task> {
        let microbatch = self.sums.before(task.stage, task.microbatch)?;
        let adds = task.kind == self.gradient_of(task.stage, task.microbatch);
        adds.then(|| Task { kind: self.gradient_of(task.stage, microbatch), microbatch, ..task })
    }

    /// The tasks that a task waits for only because sums of gradients travel.
    pub fn sum_inputs(&self, task: Task) -> impl Iterator<Item = Task> + '_ {
        self.sum_before(task).into_iter().chain(self.sums.waits(task).iter().copied())
    }

    /// Whether an update that an order places makes some task wait.
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// The tasks after which other devices join a sum, if the update that waits for it stands before this task.
    pub fn update_inputs(&self, task: Task) -> &[Task] {
        if self.updates.is_empty() { &[] } else { self.updates.get(&task).map_or(&[], Vec::as_slice) }
    }

    /// The kind of task of a stage that computes the gradient of its input, alone if it ever does so.
    pub fn backward(&self, stage: StageId) -> TaskKind {
        if self.is_split(stage) { TaskKind::BackwardInput } else { TaskKind::Backward }
    }

    /// The kind of task of a stage that reads its saved activations last, alone if it ever does so.
    pub fn last(&self, stage: StageId) -> TaskKind {
        if self.has_weight[stage.index()] { TaskKind::BackwardWeight } else { self.backward(stage) }
    }

    /// Whether a task reads the saved activations of its stage and microbatch last.
    pub fn is_last(&self, task: Task) -> bool {
        task.kind == self.last(task.stage) || task.kind == TaskKind::Backward
    }

    /// The tasks that must have ended before one of this kind and stage starts. Slices and sums add others.
    pub fn input_kinds(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = Input> + '_ {
        self.inputs_of(kind, stage, true)
    }

    /// The same without those of a [`Join`].
    pub fn input_kinds_beside(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = Input> + '_ {
        self.inputs_of(kind, stage, false)
    }

    fn inputs_of(&self, kind: TaskKind, stage: StageId, joined: bool) -> impl Iterator<Item = Input> + '_ {
        let graph = &self.graph;
        let is_forward = kind == TaskKind::Forward;
        let (own, others) = match kind {
            TaskKind::Forward => (None, graph.before(stage)),
            TaskKind::Recompute => (Some(TaskKind::Forward), &[][..]),
            TaskKind::BackwardInput | TaskKind::Backward => (Some(self.first(stage)), graph.after(stage)),
            TaskKind::BackwardWeight => (Some(TaskKind::BackwardInput), &[][..]),
            TaskKind::Update => (None, &[][..]),
        };
        let others = if joined || self.join_of(kind, stage).is_none() { others } else { &[] };
        let of_other = move |stage, ahead| {
            let kind = if is_forward { kind } else { self.backward(stage) };
            Input { kind, stage, ahead }
        };
        let is_backward = matches!(kind, TaskKind::BackwardInput | TaskKind::Backward);
        let earlier = graph.earlier_before(stage).map(move |edge| of_other(edge.from, -i64::from(edge.behind)));
        let later = graph.earlier_after(stage).map(move |edge| of_other(edge.to, i64::from(edge.behind)));
        let own = own.map(|own| Input { kind: own, stage, ahead: 0 });
        let others = others.iter().map(move |other| of_other(*other, 0));
        let edges = earlier.filter(move |_| is_forward).chain(later.filter(move |_| is_backward));
        own.into_iter().chain(others).chain(edges)
    }

    /// The tasks that must have ended before this one starts.
    pub fn inputs(&self, task: Task) -> impl Iterator<Item = Task> + '_ {
        self.tasks_of(task, true).chain(self.update_inputs(task).iter().copied())
    }

    /// The inputs of a task, without [`Self::update_inputs`].
    pub fn inputs_beside_updates(&self, task: Task) -> impl Iterator<Item = Task> + '_ {
        self.tasks_of(task, true)
    }

    /// The inputs of a task, except the tasks that its [`Join`] waits for.
    pub fn inputs_beside(&self, task: Task) -> impl Iterator<Item = Task> + '_ {
        self.tasks_of(task, false).chain(self.update_inputs(task).iter().copied())
    }

    /// The inputs of a task, except [`Self::update_inputs`] and the tasks that its [`Join`] waits for.
    pub fn inputs_alone(&self, task: Task) -> impl Iterator<Item = Task> + '_ {
        self.tasks_of(task, false)
    }

    /// The join that a task waits for, if it is one of many that wait for the same tasks.
    pub fn join(&self, task: Task) -> Option<Join> {
        let list = self.join_of(task.kind, task.stage)?;
        Some(Join { is_forward: task.kind == TaskKind::Forward, list, microbatch: task.microbatch })
    }

    fn join_of(&self, kind: TaskKind, stage: StageId) -> Option<ListId> {
        match kind {
            TaskKind::Forward => self.graph.join_before(stage),
            TaskKind::BackwardInput | TaskKind::Backward => self.graph.join_after(stage),
            TaskKind::BackwardWeight | TaskKind::Recompute | TaskKind::Update => None,
        }
    }

    /// The stages that the join of a task waits for.
    pub fn joined(&self, task: Task) -> &[StageId] {
        if task.kind == TaskKind::Forward { self.graph.before(task.stage) } else { self.graph.after(task.stage) }
    }

    /// The task of a stage that the join of a task waits for.
    pub fn joined_task(&self, task: Task, stage: StageId) -> Task {
        match task.kind {
            TaskKind::Forward => Task { stage, ..task },
            _ => Task { kind: self.backward_of(stage, task.microbatch), stage, ..task },
        }
    }

    fn tasks_of(&self, task: Task, joined: bool) -> impl Iterator<Item = Task> + '_ {
        let same = self.inputs_of(task.kind, task.stage, joined).filter_map(move |input| {
            let microbatch = i64::from(task.microbatch.0) + input.ahead;
            let microbatch = MicrobatchId(u32::try_from(microbatch).ok().filter(|at| *at < self.n_microbatches)?);
            let is_gradient =
                input.kind != TaskKind::Forward && (input.stage, microbatch) != (task.stage, task.microbatch);
            let kind = match input.kind {
                _ if is_gradient => self.backward_of(input.stage, microbatch),
                // Either `F` or `R` saved what the backward reads.
                TaskKind::Recompute => self.first_of(input.stage, microbatch),
                kind => kind,
            };
            Some(Task { kind, stage: input.stage, microbatch })
        });
        let other = self.slices.before(task.kind, task.microbatch).map(move |microbatch| {
            let is_forward = task.kind == TaskKind::Forward;
            let kind = if is_forward { task.kind } else { self.backward_of(task.stage, microbatch) };
            Task { kind, microbatch, ..task }
        });
        same.chain(other).chain(self.sum_inputs(task))
    }
}

/// Where every task of a complete schedule stands in the orders of its devices. Made by
/// [`crate::check::completeness`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskTable {
    n_microbatches: usize,
    /// By stage: where its rows begin, one for each kind, and how many devices each of its tasks occupies.
    stages: Vec<(usize, usize)>,
    /// By stage, kind, microbatch and device of its set; [`TaskTable::ABSENT`] where there is no such task.
    positions: Vec<u32>,
}

impl TaskTable {
    const ABSENT: u32 = u32::MAX;

    /// A table without tasks.
    pub fn empty(placement: &Placement, n_microbatches: u32) -> Self {
        let n_microbatches = n_microbatches as usize;
        let mut end = 0;
        let rows = placement.stages().map(|stage| {
            let (start, size) = (end, placement.set_size(stage));
            end += SCHEDULED.len() * n_microbatches * size;
            (start, size)
        });
        let stages = rows.collect();
        Self { n_microbatches, stages, positions: vec![Self::ABSENT; end] }
    }

    /// Where the positions of a task are, one for each of its devices.
    fn entry(&self, task: Task) -> Option<std::ops::Range<usize>> {
        let (start, size) = *self.stages.get(task.stage.index())?;
        let microbatch = task.microbatch.index();
        let row = task.kind.index() * self.n_microbatches + microbatch;
        let first = start + row * size;
        (task.kind != TaskKind::Update && microbatch < self.n_microbatches).then(|| first..first + size)
    }

    /// Where a task stands in the order of its first device.
    pub fn position(&self, task: Task) -> Option<usize> {
        let position = self.positions[self.entry(task)?.start];
        (position != Self::ABSENT).then_some(position as usize)
    }

    /// The devices of a task, each with where the task stands in its order.
    pub fn places<'a>(
        &'a self,
        placement: &'a Placement,
        task: Task,
    ) -> impl Iterator<Item = (DeviceId, usize)> + Clone + 'a {
        let positions = self.entry(task).map_or(&[][..], |entry| &self.positions[entry]);
        let places = placement.get(task.stage, task.microbatch).iter().copied().zip(positions);
        places.filter(|(_, position)| **position != Self::ABSENT).map(|(device, position)| (device, *position as usize))
    }

    /// Notes where a task stands on a device, counted in its set, and returns where it stood
    /// before. `None` also for tasks of no stage or microbatch.
    pub fn insert(&mut self, task: Task, member: usize, position: usize) -> Option<usize> {
        let entry = self.entry(task)?;
        let known = self.positions[entry].get_mut(member)?;
        let before = (*known != Self::ABSENT).then_some(*known as usize);
        *known = u32::try_from(position).expect("orders are far shorter than 2^32 tasks");
        before
    }

    fn row(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = (MicrobatchId, &[u32])> + '_ {
        let (start, size) = self.stages[stage.index()];
        let first = start + kind.index() * self.n_microbatches * size;
        let row = self.positions[first..first + self.n_microbatches * size].chunks(size);
        row.enumerate().map(|(microbatch, positions)| (MicrobatchId::from_index(microbatch), positions))
    }

    /// The microbatches of a stage for which there is no task of a kind.
    pub fn absent(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = MicrobatchId> + '_ {
        let absent = |positions: &[u32]| positions.iter().all(|position| *position == Self::ABSENT);
        self.row(kind, stage).filter(move |(_, positions)| absent(positions)).map(|(microbatch, _)| microbatch)
    }

    /// The tasks of a kind and stage that are on some of their devices only: microbatch and missing
    /// device, counted in its set.
    pub fn incomplete(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = (MicrobatchId, usize)> + '_ {
        let is_there = |positions: &[u32]| positions.iter().any(|position| *position != Self::ABSENT);
        self.row(kind, stage).filter(move |(_, positions)| is_there(positions)).flat_map(|(microbatch, positions)| {
            let absent = positions.iter().enumerate().filter(|(_, position)| **position == Self::ABSENT);
            absent.map(move |(member, _)| (microbatch, member))
        })
    }
}
