//! Pieces of tasks in lists: each is a run, and behind it the members of the device exchange what it made.

use crate::emit::Emitter;
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{ExecId, GroupId, MicrobatchId, ValueId};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::{DeviceProgram, Exec};
use pipe_model::pieces::pieces;

/// One piece of a task, with the numbers of the program's tables.
#[derive(Clone, Debug)]
pub(crate) struct TaskPiece {
    exec: ExecId,
    made: Vec<ValueId>,
    exchanged: Vec<(ValueId, Collective)>,
    ended: Vec<ValueId>,
}

impl ProgramTables {
    /// Cuts the tasks in which members exchange something. Their pieces follow all whole ones in the table.
    pub(crate) fn find_pieces(&mut self, members: u32) {
        for index in 0..self.execs.len() {
            let Some(found) = pieces(&self.execs[index], members, &mut self.values) else { continue };
            let parts = found.made.into_iter().zip(found.exchanged).zip(found.ended);
            let own = found.execs.into_iter().zip(parts).map(|(exec, ((made, exchanged), ended))| {
                self.add_piece(exec);
                TaskPiece { exec: ExecId::from_index(self.execs.len() - 1), made, exchanged, ended }
            });
            let own = own.collect();
            self.pieces.insert(ExecId::from_index(index), own);
        }
    }

    /// Leaves out the executables that run in pieces.
    pub(crate) fn leave_out_wholes(&mut self, devices: &mut [DeviceProgram]) {
        if self.pieces.is_empty() {
            return;
        }
        let mut kept: Vec<Exec> = Vec::with_capacity(self.execs.len() - self.pieces.len());
        let mut numbers = Vec::with_capacity(self.execs.len());
        for (index, exec) in self.execs.drain(..).enumerate() {
            numbers.push(ExecId::from_index(kept.len()));
            if !self.pieces.contains_key(&ExecId::from_index(index)) {
                kept.push(exec);
            }
        }
        self.execs = kept;
        for instruction in devices.iter_mut().flat_map(|device| &mut device.step) {
            if let Instruction::Run { exec, .. } = instruction {
                *exec = numbers[exec.index()];
            }
        }
    }
}

impl Emitter<'_> {
    /// Runs a task, whole or piece by piece.
    pub(crate) fn run(&mut self, exec: ExecId, microbatch: MicrobatchId) {
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
    fn own_group(&self) -> GroupId {
        GroupId::from_index(self.collectives.groups.len() + self.own.index())
    }
}
