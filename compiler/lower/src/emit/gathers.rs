//! Writes gatherings: weights that the device keeps a share of come into a buffer before tasks read
//! them, which goes after these.

use super::{Emitter, NO_BUFFER};
use crate::collectives::Gathering;
use pipe_ir::ids::{BufferId, TokenId};
use pipe_ir::instruction::Instruction;

/// Weights that were asked for, until they leave.
pub(super) struct OnTheWay {
    own: Gathering,
    buffer: BufferId,
    /// None when they have come.
    token: Option<TokenId>,
}

impl Emitter<'_> {
    /// Asks for weights. What only others need is not kept until then, unless some of these may join it later: nothing
    /// else that others wait for comes after it and before this.
    pub(super) fn gather(&mut self, own: &Gathering) {
        if !own.is_early {
            self.bring_weights(|other| other.run.is_none());
        }
        let (buffer, token) = (self.new_buffer(own.weights), self.new_token());
        self.persistent[own.weights.index()] = buffer;
        let (share, group) = (self.persistent[own.share.index()], own.group);
        self.code.step.push(Instruction::Alloc { buffer });
        self.code.step.push(Instruction::GatherStart { buffer, share, group, token });
        self.gathering.push(OnTheWay { own: *own, buffer, token: Some(token) });
    }

    /// Waits for the weights that the task at a position reads, and for those that others need by then.
    pub(super) fn gathered(&mut self, position: usize) {
        self.bring_weights(|own| own.waits as usize == position);
    }

    fn bring_weights(&mut self, is_meant: impl Fn(&Gathering) -> bool) {
        let mut all = std::mem::take(&mut self.gathering);
        all.retain_mut(|one| {
            if let Some(token) = one.token.take_if(|_| is_meant(&one.own)) {
                self.code.step.push(Instruction::Wait { token });
                if one.own.run.is_none() {
                    self.drop_weights(one);
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
        all.retain(|one| {
            let is_last = one.own.run.is_some_and(|run| run.last as usize == position);
            if is_last {
                self.drop_weights(one);
            }
            !is_last
        });
        self.gathering = all;
    }

    fn drop_weights(&mut self, one: &OnTheWay) {
        // The next ones may be on the way.
        let newest = &mut self.persistent[one.own.weights.index()];
        if *newest == one.buffer {
            *newest = NO_BUFFER;
        }
        self.code.step.push(Instruction::Free { buffer: one.buffer });
    }
}
