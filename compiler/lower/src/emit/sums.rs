//! Writes sums of gradients: they start at zero, and travel where a step does not flush.

use super::Emitter;
use crate::chained_reductions::Sum;
use pipe_ir::ids::{DeviceId, ValueId};
use pipe_ir::instruction::{Class, Fill, Instruction};
use pipe_ir::task::Task;

impl Emitter<'_> {
    pub(super) fn zero(&mut self, gradients: ValueId) {
        let buffer = self.persistent[gradients.index()];
        self.code.step.push(Instruction::Fill { buffer, value: gradients, with: Fill::Zero });
    }

    /// Makes the gradients ready that a task adds to.
    pub(super) fn take_sum(&mut self, device: DeviceId, position: usize, task: Task) {
        if let Some(sum) = self.sums.received_before(device, position) {
            self.receive_sum(sum);
        } else if let Some(gradients) = self.work.gradients_of(task) {
            self.end_sends(gradients);
            if self.sums.begins(task) {
                self.zero(gradients);
            }
        }
    }

    /// Sends sums of gradients on, right after what was added last.
    pub(super) fn send_sums(&mut self, device: DeviceId, position: usize) {
        for sum in self.sums.sent_after(device, position) {
            let (buffer, token) = (self.persistent[sum.gradients.index()], self.new_token());
            self.code.step.push(Instruction::SendStart { buffer, to: sum.other, class: Class::Sum, token });
            self.sending.entry(sum.gradients).or_default().push(token);
        }
    }

    /// Receives a sum of gradients straight into their buffer.
    pub(super) fn receive_sum(&mut self, sum: Sum) {
        self.end_sends(sum.gradients);
        let (buffer, token) = (self.persistent[sum.gradients.index()], self.new_token());
        let (value, microbatch, from) = (sum.gradients, sum.upto, sum.other);
        let class = Class::Sum;
        self.code.step.push(Instruction::RecvStart { buffer, value, microbatch, from, class, token });
        self.code.step.push(Instruction::Wait { token });
    }

    /// Waits until nothing sends these gradients any more, so that they can change.
    pub(super) fn end_sends(&mut self, gradients: ValueId) {
        for token in self.sending.remove(&gradients).unwrap_or_default() {
            self.code.step.push(Instruction::Wait { token });
        }
    }
}
