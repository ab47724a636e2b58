//! Writes gatherings: weights that the device keeps a share of come into a buffer before tasks read
//! them, which goes after these.

use super::{Emitter, NO_BUFFER};
use crate::collectives::Gathering;
use pipe_ir::instruction::Instruction;

impl Emitter<'_> {
    /// Asks for weights. What only others need is not kept until then: nothing that others wait for
    /// comes after it and before this.
    pub(super) fn gather(&mut self, own: &Gathering) {
        self.bring_weights(|other| other.run.is_none());
        let (buffer, token) = (self.new_buffer(own.weights), self.new_token());
        self.persistent[own.weights.index()] = buffer;
        let (share, group) = (self.persistent[own.share.index()], own.group);
        self.code.step.push(Instruction::Alloc { buffer });
        self.code.step.push(Instruction::GatherStart { buffer, share, group, token });
        self.gathering.push((*own, Some(token)));
    }

    /// Waits for the weights that the task at a position reads, and for those that others need by then.
    pub(super) fn gathered(&mut self, position: usize) {
        self.bring_weights(|own| own.waits as usize == position);
    }

    fn bring_weights(&mut self, is_meant: impl Fn(&Gathering) -> bool) {
        let mut all = std::mem::take(&mut self.gathering);
        all.retain_mut(|(own, token)| {
            if let Some(token) = token.take_if(|_| is_meant(own)) {
                self.code.step.push(Instruction::Wait { token });
                if own.run.is_none() {
                    self.drop_weights(own);
                    return false;
                }
            }
            true
        });
        self.gathering = all;
    }

    /// Frees the weights that the task at a position was the last one to read.
    pub(super) fn release(&mut self, position: usize) {
        let mut all = std::mem::take(&mut self.gathering);
        all.retain(|(own, _)| {
            let is_last = own.run.is_some_and(|run| run.last as usize == position);
            if is_last {
                self.drop_weights(own);
            }
            !is_last
        });
        self.gathering = all;
    }

    fn drop_weights(&mut self, own: &Gathering) {
        let buffer = std::mem::replace(&mut self.persistent[own.weights.index()], NO_BUFFER);
        self.code.step.push(Instruction::Free { buffer });
    }
}
