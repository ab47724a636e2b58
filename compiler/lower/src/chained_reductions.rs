//! Where travelling sums are sent and received (see [`pipe_schedule::block::chained_reductions`]).
//!
//! A sum is received straight into the gradient buffer, right before the task that adds to it or
//! the update that takes it. As with other transfers, a channel carries sums in the order in which
//! the receiver takes them: a sum is sent right after the task that makes it, or after the one that
//! makes a sum that the receiver takes before it.

use super::index32;
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId, ValueId};
use pipe_ir::task::Task;
use pipe_schedule::block::async_window::Update;
use pipe_schedule::dependencies::Dependencies;
use pipe_schedule::schedule::Schedule;
use std::collections::BTreeMap;

/// The sum of a step's gradients up to a microbatch, on its way from or to another device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) gradients: ValueId,
    pub(super) upto: MicrobatchId,
    pub(super) other: DeviceId,
}

/// A sum on its way. Ordered by channel, then by when the receiver takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hop {
    from: DeviceId,
    to: DeviceId,
    /// The task of the receiver right before which it is taken.
    before: u32,
    /// Of those taken there, which one: updates in their order, then the task itself.
    turn: u32,
    /// The task of the sender that makes it.
    made_by: u32,
    gradients: ValueId,
    upto: MicrobatchId,
}

/// Everything that travels.
#[derive(Default)]
pub(super) struct Sums<'a> {
    dependencies: Option<&'a Dependencies>,
    /// By device and task: what is sent after it.
    sent: BTreeMap<(DeviceId, u32), Vec<Sum>>,
    /// By device and task: what is received right before it.
    received: BTreeMap<(DeviceId, u32), Sum>,
    /// By device, stage and step: the total that its update takes.
    totals: BTreeMap<(DeviceId, StageId, u32), Sum>,
}

impl<'a> Sums<'a> {
    pub(super) fn new(
        schedule: &Schedule,
        work: &ProgramTables,
        dependencies: Option<&'a Dependencies>,
        updates: &[Vec<Update>],
    ) -> Self {
        let mut sums = Self { dependencies, ..Self::default() };
        let Some(travelling) = dependencies.map(Dependencies::sums).filter(|sums| !sums.is_empty()) else {
            return sums;
        };
        let gradients = |stage| work.trained(stage).filter(|_| travelling.travels(stage));
        // By stage and microbatch: the device and task that adds its gradient.
        let none = (DeviceId(0), u32::MAX);
        let mut adds = vec![vec![none; schedule.n_microbatches as usize]; schedule.n_stages()];
        for (device, order) in schedule.orders.iter().enumerate() {
            for (position, task) in order.iter().map(|one| one.task).enumerate() {
                if work.gradients_of(task).is_some() {
                    adds[task.stage.index()][task.microbatch.index()] =
                        (DeviceId::from_index(device), index32(position));
                }
            }
        }
        let mut hops = Vec::new();
        for (stage, adds) in schedule.placement.stages().zip(&adds) {
            let Some(gradients) = gradients(stage) else { continue };
            for (upto, pair) in (0..).map(MicrobatchId).zip(adds.windows(2)) {
                let ((from, made_by), (to, before)) = (pair[0], pair[1]);
                if from != to && travelling.before(stage, MicrobatchId(upto.0 + 1)).is_some() {
                    hops.push(Hop { from, to, before, turn: u32::MAX, made_by, gradients, upto });
                    sums.received.insert((to, before), Sum { gradients, upto, other: from });
                }
            }
        }
        let per_step = schedule.microbatches_of_step();
        for (to, updates) in updates.iter().enumerate() {
            let to = DeviceId::from_index(to);
            for (turn, Update { before, stage, step }) in (0..).zip(updates.iter().copied()) {
                let Some(gradients) = gradients(stage) else { continue };
                let upto = MicrobatchId(step * per_step + (per_step - 1));
                let (from, made_by) = adds[stage.index()][upto.index()];
                if from != to {
                    hops.push(Hop { from, to, before, turn, made_by, gradients, upto });
                    sums.totals.insert((to, stage, step), Sum { gradients, upto, other: from });
                }
            }
        }
        hops.sort_unstable();
        for channel in hops.chunk_by(|one, other| (one.from, one.to) == (other.from, other.to)) {
            let mut after = 0;
            for Hop { from, to, made_by, gradients, upto, .. } in channel.iter().copied() {
                after = made_by.max(after);
                sums.sent.entry((from, after)).or_default().push(Sum { gradients, upto, other: to });
            }
        }
        sums
    }

    /// Whether a task begins the sum of a step anew, after that of the step before.
    pub(super) fn begins(&self, task: Task) -> bool {
        let sums = self.dependencies.map(Dependencies::sums).filter(|sums| sums.travels(task.stage));
        task.microbatch.0 > 0 && sums.is_some_and(|sums| sums.before(task.stage, task.microbatch).is_none())
    }

    /// Whether the sum of a stage's gradients travels.
    pub(super) fn travels(&self, stage: StageId) -> bool {
        self.dependencies.is_some_and(|dependencies| dependencies.sums().travels(stage))
    }

    /// What is sent after a task.
    pub(super) fn sent_after(&self, device: DeviceId, position: usize) -> &[Sum] {
        self.sent.get(&(device, index32(position))).map_or(&[], Vec::as_slice)
    }

    /// What is received right before a task.
    pub(super) fn received_before(&self, device: DeviceId, position: usize) -> Option<Sum> {
        self.received.get(&(device, index32(position))).copied()
    }

    /// What is received right before the update of a stage after a step.
    pub(super) fn total(&self, device: DeviceId, stage: StageId, step: u32) -> Option<Sum> {
        self.totals.get(&(device, stage, step)).copied()
    }
}
