//! Writes updates that stand between tasks.

use super::Emitter;
use super::collectives::Joined;
use pipe_ir::ids::{DeviceId, MicrobatchId, ValueId};
use pipe_ir::value::ValueKind;
use pipe_schedule::block::async_window::Update;
use pipe_schedule::step_tasks::StepTaskKind;

impl<'a> Emitter<'a> {
    /// Updates that the order of a device places before a task: each waits for the sum of its gradients. Weights that
    /// several stages share are updated at the end of the step.
    pub(super) fn placed_updates(&mut self, device: DeviceId, position: usize, joined: &mut Joined) {
        let (schedule, work) = (self.schedule, self.work);
        let own = schedule.step_tasks.of(device).iter();
        let own = own.filter(|one| one.kind == StepTaskKind::Update && schedule.tasks_before(device, one) == position);
        for update in own.flat_map(|one| work.updates_of(one.stage, device)) {
            self.wait(joined, |part| part.update == Some(update));
            self.run(update, MicrobatchId(0));
            self.updated.insert(update);
        }
    }

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
