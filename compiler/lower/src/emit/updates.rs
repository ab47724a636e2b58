//! Writes updates that stand between tasks.

use super::Emitter;
use pipe_ir::ids::{DeviceId, MicrobatchId, ValueId};
use pipe_ir::value::ValueKind;
use pipe_schedule::block::async_window::Update;

impl<'a> Emitter<'a> {
    /// Updates that stand before a task. Gradients of the next step start at zero.
    pub(super) fn updates(&mut self, device: DeviceId, position: usize) {
        let n_steps = self.schedule.n_steps();
        for Update { stage, step, .. } in self.updates_before(device, position).iter().copied() {
            let Some(exec) = self.work.update_of(stage) else { continue };
            if let Some(sum) = self.sums.total(device, stage, step) {
                self.receive_sum(sum);
            }
            self.run(exec, MicrobatchId(step * self.schedule.microbatches_of_step()));
            let operands = &self.work.execs[exec.index()].operands;
            let gradients = operands.iter().map(|operand| operand.value);
            let is_gradient = |value: &ValueId| self.work.values[value.index()].kind == ValueKind::ParameterGradients;
            // Sums that travel begin where the first gradient of a step is added.
            let begins = step + 1 < n_steps && !self.sums.travels(stage);
            for value in gradients.filter(is_gradient).filter(|_| begins).collect::<Vec<_>>() {
                self.zero(value);
            }
        }
    }

    pub(super) fn updates_before(&self, device: DeviceId, position: usize) -> &'a [Update] {
        let all = &self.updates[device.index()];
        let first = all.partition_point(|update| (update.before as usize) < position);
        let rest = &all[first..];
        &rest[..rest.partition_point(|update| update.before as usize == position)]
    }
}
