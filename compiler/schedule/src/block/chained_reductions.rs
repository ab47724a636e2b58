//! Travelling sums: where blocks run on across steps, the gradients of a replicated stage are added
//! up from device to device.
//!
//! The device of a microbatch adds its weight gradient to the sum of all microbatches of the step
//! before it, and hands that on to the device of the next one: the order of additions is that of
//! one device. The last microbatch's device has the total, and gives it to all other replicas, each
//! of which takes it right before its update.
//!
//! So tasks wait for more than their own microbatch: a weight gradient for that of the microbatch
//! before; whatever stands after an update for the last weight gradient of its step; and the next
//! weight gradient on the device that gave the total away, whose buffer holds it until then, for
//! all other replicas to have come to their updates.
//!
//! The last two waits follow the slots: an update stands at a slot, behind the gradients of its
//! step and before those of the next one, on all replicas alike. So does the first one where the
//! gradients of a stage start in the order of the microbatches, and then the order of the slots is
//! one in which everything runs, however long a step is.

use crate::block::async_window::{Update, step_length, updates};
use crate::block::weight_versions::cycles;
use crate::placement::Placement;
use crate::schedule::{Block, Schedule};
use crate::window::Window;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeMap;

/// Which sums travel, and what waits for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// By stage: whether a sum of its gradients travels. Empty where none does.
    travels: Vec<bool>,
    /// Microbatches of a step.
    per_step: u32,
    n_steps: u32,
    /// What tasks wait for beside the sum that they add to.
    waits: BTreeMap<Task, Vec<Task>>,
}

impl Sums {
    /// Those of a schedule; `gradient` is the kind of task that computes a stage's weight gradient.
    pub fn of(schedule: &Schedule, gradient: impl Fn(StageId, MicrobatchId) -> TaskKind) -> Self {
        let Some(window) = schedule.window.as_ref().filter(|_| schedule.placement.is_replicated()) else {
            return Self::default();
        };
        let is_shared = |stage: StageId| schedule.placement.has_replicas(stage);
        let stages = schedule.placement.stages().zip(&window.stages);
        let travels: Vec<bool> = stages.map(|(stage, versions)| versions.is_trained && is_shared(stage)).collect();
        if !travels.contains(&true) {
            return Self::default();
        }
        let (per_step, n_steps) = (schedule.microbatches_of_step(), window.n_steps);
        let mut sums = Self { travels, per_step, n_steps, waits: BTreeMap::new() };
        sums.waits = Waits::new(schedule, &sums, &gradient).all(window);
        sums
    }

    /// Whether a sum of a stage's gradients travels.
    pub fn travels(&self, stage: StageId) -> bool {
        self.travels.get(stage.index()) == Some(&true)
    }

    /// Whether any sum travels.
    pub fn is_empty(&self) -> bool {
        self.travels.is_empty()
    }

    /// The microbatch whose sum the weight gradient of another one is added to, if that is not the first of its step.
    pub fn before(&self, stage: StageId, microbatch: MicrobatchId) -> Option<MicrobatchId> {
        let adds = self.travels(stage) && !microbatch.0.is_multiple_of(self.per_step);
        adds.then(|| MicrobatchId(microbatch.0 - 1))
    }

    /// What a task waits for beside the sum that it adds to.
    pub fn waits(&self, task: Task) -> &[Task] {
        if self.waits.is_empty() { &[] } else { self.waits.get(&task).map_or(&[], Vec::as_slice) }
    }

    /// Whether a task is of the last microbatch of a step, of a stage whose sum travels.
    pub fn is_total(&self, task: Task) -> bool {
        self.travels(task.stage) && (task.microbatch.0 + 1).is_multiple_of(self.per_step)
    }

    /// The stages with travelling sums, each with the last microbatch: its total is the last thing that travels.
    pub fn last(&self) -> impl Iterator<Item = (StageId, MicrobatchId)> + '_ {
        let last = MicrobatchId((self.per_step * self.n_steps).saturating_sub(1));
        let stages = self.travels.iter().enumerate().filter(|(_, travels)| **travels);
        stages.map(move |(stage, _)| (StageId::from_index(stage), last))
    }
}

/// Whether sums travel in the order of the slots of a block, so that steps of no length are stuck
/// for them. Sums of these stages travel where they are replicated.
pub fn follow_slots(block: &Block, placement: &Placement, is_trained: impl Fn(StageId) -> bool) -> bool {
    let cycles = cycles(block, placement.n_stages());
    let travels = |stage: StageId| is_trained(stage) && placement.has_replicas(stage);
    placement.stages().zip(&cycles).all(|(stage, cycle)| !travels(stage) || cycle.is_in_order())
}

/// What is known while updates are gone through, in their order.
struct Waits<'a, G> {
    schedule: &'a Schedule,
    sums: &'a Sums,
    gradient: &'a G,
    /// By device: its updates, and how many were gone through.
    updates: Vec<(Vec<Update>, usize)>,
    /// By device and stage: where its weight gradients stand.
    gradients: BTreeMap<(DeviceId, StageId), Vec<usize>>,
    /// By device: where the latest update stands, and what happens before the next one that stands there.
    before: Vec<(u32, Vec<Task>)>,
    /// By device and stage: the next weight gradient after a total was given away, and what that waits for.
    given: BTreeMap<(DeviceId, StageId), (Option<usize>, Vec<Task>)>,
    found: BTreeMap<Task, Vec<Task>>,
}

impl<'a, G: Fn(StageId, MicrobatchId) -> TaskKind> Waits<'a, G> {
    fn new(schedule: &'a Schedule, sums: &'a Sums, gradient: &'a G) -> Self {
        let mut updates = updates(schedule);
        updates.iter_mut().for_each(|own| own.retain(|update| sums.travels(update.stage)));
        let mut gradients: BTreeMap<(DeviceId, StageId), Vec<usize>> = BTreeMap::new();
        for (device, order) in schedule.orders.iter().enumerate() {
            for (position, task) in order.iter().map(|one| one.task).enumerate() {
                if sums.travels(task.stage) && task.kind == gradient(task.stage, task.microbatch) {
                    gradients.entry((DeviceId::from_index(device), task.stage)).or_default().push(position);
                }
            }
        }
        Self {
            schedule,
            sums,
            gradient,
            updates: updates.into_iter().map(|own| (own, 0)).collect(),
            gradients,
            before: vec![(u32::MAX, Vec::new()); schedule.n_devices()],
            given: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }

    fn all(mut self, window: &Window) -> BTreeMap<Task, Vec<Task>> {
        let length = self.schedule.block.as_ref().map_or(0, |block| step_length(block, u64::from(self.sums.per_step)));
        let stages = || self.schedule.placement.stages().zip(&window.stages);
        let steps = (0..self.sums.n_steps)
            .flat_map(|step| stages().map(move |(stage, one)| (one.update + u64::from(step) * length, stage, step)));
        let mut order: Vec<(u64, StageId, u32)> = steps.filter(|(_, stage, _)| self.sums.travels(*stage)).collect();
        order.sort_unstable();
        for (_, stage, step) in order {
            self.update(stage, step);
        }
        self.found.retain(|_, tasks| !tasks.is_empty());
        self.found
    }

    /// The updates of all replicas of a stage after a step.
    fn update(&mut self, stage: StageId, step: u32) {
        let microbatch = MicrobatchId(step * self.sums.per_step + (self.sums.per_step - 1));
        let total = Task { kind: (self.gradient)(stage, microbatch), stage, microbatch };
        let giver = self.schedule.device_of(total);
        let (mut come, mut next) = (Vec::new(), None);
        for device in self.schedule.placement.devices_of(stage).iter().copied() {
            let (own, turn) = &mut self.updates[device.index()];
            let position = own[*turn].before;
            *turn += 1;
            if device == giver {
                let gradients = self.gradients.get(&(device, stage)).map_or(&[][..], Vec::as_slice);
                next = gradients.get(gradients.partition_point(|other| *other < position as usize)).copied();
            } else {
                self.take(device, position, total);
                come.extend(&self.before[device.index()].1);
                self.before[device.index()].1.push(total);
            }
        }
        if let Some(next) = next {
            let task = self.schedule.orders[giver.index()][next].task;
            self.found.entry(task).or_default().extend(&come);
        }
        self.given.insert((giver, stage), (next, come));
    }

    /// An update that takes a total: what comes before it, and what the task after it waits for.
    fn take(&mut self, device: DeviceId, position: u32, total: Task) {
        let order = &self.schedule.orders[device.index()];
        let (at, before) = &mut self.before[device.index()];
        if std::mem::replace(at, position) != position {
            *before = position.checked_sub(1).map(|last| order[last as usize].task).into_iter().collect();
        }
        // A total that was given away before is in the same buffer still, if no gradient came since.
        let given = self.given.remove(&(device, total.stage));
        let kept = given.filter(|(next, _)| next.is_none_or(|next| next >= position as usize));
        let kept = kept.map(|(_, come)| come).unwrap_or_default();
        if let Some(next) = order.get(position as usize) {
            self.found.entry(next.task).or_default().extend(kept.iter().copied().chain([total]));
        }
        before.extend(kept);
    }
}
