//! Pieces of tasks in the tables of the program: those of each task follow all whole ones, which are then left out.

use super::ProgramTables;
use pipe_ir::ids::{ExecId, ValueId};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::{DeviceProgram, Exec};
use pipe_model::pieces::pieces;

/// One piece of a task, with the numbers of the program's tables.
#[derive(Clone, Debug)]
pub(in super::super) struct TaskPiece {
    pub(in super::super) exec: ExecId,
    pub(in super::super) made: Vec<ValueId>,
    pub(in super::super) exchanged: Vec<(ValueId, Collective)>,
    pub(in super::super) ended: Vec<ValueId>,
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
