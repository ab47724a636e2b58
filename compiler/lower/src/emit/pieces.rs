//! Writes pieces of tasks: each is a run, and behind it the members of the device exchange what it made.

use super::Emitter;
use pipe_ir::ids::{ExecId, GroupId, MicrobatchId};
use pipe_ir::instruction::Instruction;

impl Emitter<'_> {
    /// Runs a task, whole or piece by piece.
    pub(super) fn run(&mut self, exec: ExecId, microbatch: MicrobatchId) {
        let Some(pieces) = self.work.pieces.get(&exec) else { return self.run_whole(exec, microbatch) };
        for piece in pieces {
            for value in &piece.made {
                self.alloc(*value, microbatch);
            }
            self.run_whole(piece.exec, microbatch);
            for value in &piece.ended {
                self.free(*value, microbatch);
            }
            let starts = piece.exchanged.iter().map(|(value, collective)| {
                let (group, token) = (self.own_group(), self.new_token());
                let buffer = self.buffer(*value, microbatch);
                self.code.step.push(Instruction::CollStart { buffer, collective: *collective, group, token });
                token
            });
            let tokens: Vec<_> = starts.collect();
            self.code.step.extend(tokens.into_iter().map(|token| Instruction::Wait { token }));
        }
    }

    /// The group of the device alone, which stands for its members.
    pub(super) fn own_group(&self) -> GroupId {
        GroupId::from_index(self.collectives.groups.len() + self.own.index())
    }
}
