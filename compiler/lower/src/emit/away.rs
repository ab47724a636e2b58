//! Writes values of microbatches that leave between two uses: a buffer in the memory of the host
//! for that time, and a copy each way.

use super::{Emitter, NO_BUFFER, index32};
use crate::activation_swaps::Absences;
use pipe_ir::ids::{BufferId, TokenId};
use pipe_ir::instruction::{Direction, Instruction};
use pipe_ir::program::Space;

/// A value that is away, or on its way.
#[derive(Clone, Copy)]
pub(super) struct Journey {
    /// Where it is in the memory of the host.
    host: BufferId,
    /// The copy that is waited for next.
    token: TokenId,
}

impl Emitter<'_> {
    /// What leaves while the next device is written.
    pub(super) fn set_out(&mut self, absences: Absences) {
        self.journeys = vec![Journey { host: NO_BUFFER, token: TokenId(0) }; absences.values.len()];
        self.absences = absences;
    }

    /// A point of a task: what has left gives its room back, copies are queued in the order of
    /// their times, and what the task uses has come.
    pub(super) fn point(&mut self, is_one: bool) {
        if !is_one {
            return;
        }
        let point = self.code.points.len();
        self.code.points.push(self.code.step.len());
        let absences = std::mem::take(&mut self.absences);
        let of = |all: &[Vec<usize>]| all.get(point).cloned().unwrap_or_default();
        of(&absences.gone).into_iter().for_each(|one| self.is_gone(&absences, one));
        of(&absences.leave).into_iter().for_each(|one| self.leave(&absences, one));
        of(&absences.come).into_iter().for_each(|one| self.come(&absences, one));
        of(&absences.back).into_iter().for_each(|one| self.is_back(one));
        self.absences = absences;
    }

    fn leave(&mut self, absences: &Absences, one: usize) {
        let (value, microbatch) = absences.values[one];
        self.code.buffers.push((self.work.values[value.index()].bytes.aligned(), Space::Host));
        let (buffer, token) = (BufferId(index32(self.code.buffers.len() - 1)), self.new_token());
        let from = self.buffers[self.work.entry(value, microbatch)];
        self.code.step.push(Instruction::Alloc { buffer });
        self.code.step.push(Instruction::CopyStart { buffer, from, direction: Direction::DeviceToHost, token });
        self.journeys[one] = Journey { host: buffer, token };
    }

    fn is_gone(&mut self, absences: &Absences, one: usize) {
        let (value, microbatch) = absences.values[one];
        self.code.step.push(Instruction::Wait { token: self.journeys[one].token });
        self.free(value, microbatch);
    }

    fn come(&mut self, absences: &Absences, one: usize) {
        let (value, microbatch) = absences.values[one];
        let (buffer, token) = (self.alloc(value, microbatch), self.new_token());
        let from = self.journeys[one].host;
        self.code.step.push(Instruction::CopyStart { buffer, from, direction: Direction::HostToDevice, token });
        self.journeys[one].token = token;
    }

    fn is_back(&mut self, one: usize) {
        let Journey { host: buffer, token } = self.journeys[one];
        self.code.step.push(Instruction::Wait { token });
        self.code.step.push(Instruction::Free { buffer });
    }
}
