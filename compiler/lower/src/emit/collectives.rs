//! Writes collectives: gradients are added up, and where each device updates its share only, the
//! shares of the weights are exchanged at the end of the step, in the order of the sums, which all
//! devices have.

use super::{Emitter, NO_BUFFER};
use crate::collectives::{Join, ReductionPart};
use pipe_ir::ids::{DeviceId, ExecId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Collective, Instruction};

/// Collectives that were joined and not waited for.
pub(super) type Joined = Vec<(TokenId, ReductionPart)>;

impl Emitter<'_> {
    /// Joins a collective. What it waits for that is not weights.
    pub(super) fn join(&mut self, join: &Join) -> Option<(TokenId, ReductionPart)> {
        match join {
            Join::Gather(gathering) => {
                self.gather(gathering);
                None
            }
            Join::Sum(part) => {
                let collective = if part.divided.is_some() { Collective::ReduceScatter } else { Collective::AllReduce };
                self.bring(part.gradients);
                Some((self.collect(part.gradients, collective, part), *part))
            }
        }
    }

    fn collect(&mut self, value: ValueId, collective: Collective, part: &ReductionPart) -> TokenId {
        let (buffer, token) = (self.persistent[value.index()], self.new_token());
        self.code.step.push(Instruction::CollStart { buffer, collective, group: part.group, token });
        token
    }

    /// Waits for those that are meant.
    pub(super) fn wait(&mut self, joined: &mut Joined, is_meant: impl Fn(&ReductionPart) -> bool) {
        joined.retain(|(token, part)| {
            let waits = is_meant(part);
            if waits {
                self.code.step.push(Instruction::Wait { token: *token });
            }
            !waits
        });
    }

    /// Makes the gradients ready that a task adds to, where they are not on the device all the time.
    pub(super) fn bring_gradients(&mut self, exec: ExecId) {
        let work = self.work;
        work.execs[exec.index()].operands.iter().for_each(|operand| self.bring(operand.value));
    }

    fn bring(&mut self, value: ValueId) {
        if self.persistent[value.index()] == NO_BUFFER && self.work.leaves(value) {
            let buffer = self.new_buffer(value);
            self.persistent[value.index()] = buffer;
            self.code.step.push(Instruction::Alloc { buffer });
            self.zero(value);
        }
    }

    /// Where gradients leave, updates weights with the sums that have ended before a task, and gives their room back.
    pub(super) fn use_sums(&mut self, joined: &mut Joined, position: usize) {
        let (work, mut ended) = (self.work, Vec::new());
        joined.retain(|(token, part)| {
            let ends = part.ends as usize <= position && work.leaves(part.gradients);
            ended.extend(ends.then_some((*token, *part)));
            !ends
        });
        for (token, part) in ended {
            self.code.step.push(Instruction::Wait { token });
            if let Some(update) = part.update {
                self.run(update, MicrobatchId(0));
            }
            let buffer = std::mem::replace(&mut self.persistent[part.gradients.index()], NO_BUFFER);
            self.code.step.push(Instruction::Free { buffer });
        }
    }

    /// Whether an update waits for the end of the step.
    pub(super) fn is_update_at_end(&self, exec: ExecId) -> bool {
        let exec = &self.work.execs[exec.index()];
        exec.is_update() && !exec.operands.iter().any(|operand| self.work.leaves(operand.value))
    }

    /// Exchanges the shares of all weights that are divided, and whole on every device.
    pub(super) fn exchange_shares(&mut self, device: DeviceId, joined: &mut Joined) {
        let (collectives, work) = (self.collectives, self.work);
        for part in collectives.sums(device) {
            if let Some(weights) = part.divided.filter(|weights| !work.is_kept(*weights)) {
                joined.push((self.collect(weights, Collective::AllGather, part), *part));
            }
        }
    }
}
