//! Travelling sums: where blocks run on across steps, the gradients of a replicated stage are added up from worker to worker.
//!
//! A device adds its gradient of a microbatch to the sum of all microbatches of the step before it, which it receives
//! straight into its gradient buffer, and sends the sum on to the device of the next one. That of the last microbatch has
//! the total, and sends it to all others, so that each updates its weights. The order of additions is that of one device.

use super::index32;
use super::work::Work;
use crate::schedule::Schedule;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId, ValueId};
use std::collections::BTreeMap;

/// The sum of a step's gradients up to a microbatch, on its way from or to another device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) gradients: ValueId,
    pub(super) upto: MicrobatchId,
    pub(super) other: DeviceId,
}

/// Everything that travels.
#[derive(Default)]
pub(super) struct Sums {
    /// By device and task: what is sent after it.
    sent: BTreeMap<(DeviceId, u32), Vec<Sum>>,
    /// By device and task: what is received right before it.
    received: BTreeMap<(DeviceId, u32), Sum>,
    /// By device, stage and step: the total that its update takes.
    totals: BTreeMap<(DeviceId, StageId, u32), Sum>,
}

impl Sums {
    pub(super) fn new(schedule: &Schedule, work: &Work) -> Self {
        let mut sums = Self::default();
        if schedule.window.is_none() || !schedule.placement.is_replicated() {
            return sums;
        }
        // By stage and microbatch: the device and task that adds its gradient.
        let none = (DeviceId(0), u32::MAX);
        let mut adds = vec![vec![none; schedule.n_microbatches as usize]; schedule.n_stages()];
        for (device, order) in schedule.orders.iter().enumerate() {
            for (position, scheduled) in order.iter().enumerate() {
                let task = scheduled.task;
                if work.gradients_of(task).is_some() {
                    adds[task.stage.index()][task.microbatch.index()] =
                        (DeviceId::from_index(device), index32(position));
                }
            }
        }
        for (stage, adds) in adds.iter().enumerate() {
            let stage = StageId::from_index(stage);
            if let Some(gradients) = work.trained(stage).filter(|_| schedule.placement.devices_of(stage).len() > 1) {
                sums.of_stage(schedule, (stage, gradients), adds);
            }
        }
        sums
    }

    fn of_stage(&mut self, schedule: &Schedule, (stage, gradients): (StageId, ValueId), adds: &[(DeviceId, u32)]) {
        let per_step = schedule.microbatches_of_step();
        for (index, (from, position)) in adds.iter().copied().enumerate() {
            let upto = MicrobatchId::from_index(index);
            let sum = |other| Sum { gradients, upto, other };
            let sent = self.sent.entry((from, position)).or_default();
            if !(upto.0 + 1).is_multiple_of(per_step) {
                let (to, reader) = adds[index + 1];
                if to != from {
                    sent.push(sum(to));
                    self.received.insert((to, reader), sum(from));
                }
                continue;
            }
            for to in schedule.placement.devices_of(stage).iter().filter(|to| **to != from) {
                sent.push(sum(*to));
                self.totals.insert((*to, stage, upto.0 / per_step), sum(from));
            }
        }
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
