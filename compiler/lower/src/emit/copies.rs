//! Writes what a residency plan asks for: buffers in the memory of the host, and copies from there and back.

use super::{Emitter, index32};
use crate::state_swaps::Residency;
use pipe_ir::ids::{BufferId, TokenId, ValueId};
use pipe_ir::instruction::{Direction, Fill, Instruction};
use pipe_ir::program::Space;
use std::collections::BTreeMap;

/// Copies of one device.
#[derive(Default)]
pub(super) struct Copies {
    /// Where each chunk lives.
    hosts: BTreeMap<ValueId, BufferId>,
    /// By stay: its copy to the device, and back.
    comes: BTreeMap<usize, TokenId>,
    goes: BTreeMap<usize, TokenId>,
}

impl Emitter<'_> {
    /// Gives a chunk its buffer in the memory of the host, with its first contents.
    pub(super) fn set_up_chunk(&mut self, value: ValueId, with: Fill) {
        self.code.buffers.push((self.work.values[value.index()].bytes.aligned(), Space::Host));
        let buffer = BufferId(index32(self.code.buffers.len() - 1));
        self.copies.hosts.insert(value, buffer);
        self.code.setup.push(Instruction::Alloc { buffer });
        self.code.setup.push(Instruction::Fill { buffer, value, with });
    }

    /// What stands before a step: what the one before changed last starts to go back, what has gone
    /// back gives its room, and what is used soon starts to come.
    pub(super) fn begin_step(&mut self, step: usize) {
        self.code.steps.push(self.code.step.len());
        let Some(residency) = self.residency.take() else { return };
        let of = |list: &[Vec<usize>]| list.get(step).cloned().unwrap_or_default();
        for stay in of(&residency.ends).into_iter().filter(|stay| residency.plan.stays[*stay].changed) {
            let token = self.copy(value(&residency, stay), Direction::DeviceToHost);
            self.copies.goes.insert(stay, token);
        }
        for stay in of(&residency.leaves) {
            if let Some(token) = self.copies.goes.remove(&stay) {
                self.code.step.push(Instruction::Wait { token });
            }
            let buffer = self.persistent[value(&residency, stay).index()];
            self.code.step.push(Instruction::Free { buffer });
        }
        for stay in of(&residency.comes) {
            let value = value(&residency, stay);
            let buffer = self.new_buffer(value);
            self.persistent[value.index()] = buffer;
            self.code.step.push(Instruction::Alloc { buffer });
            let token = self.copy(value, Direction::HostToDevice);
            self.copies.comes.insert(stay, token);
        }
        self.residency = Some(residency);
    }

    /// Waits for what a step is the first to use.
    pub(super) fn arrive(&mut self, step: usize) {
        let stays = self.residency.as_ref().and_then(|residency| residency.begins.get(step)).cloned();
        for stay in stays.unwrap_or_default() {
            if let Some(token) = self.copies.comes.remove(&stay) {
                self.code.step.push(Instruction::Wait { token });
            }
        }
    }

    fn copy(&mut self, value: ValueId, direction: Direction) -> TokenId {
        let token = self.new_token();
        let (device, host) = (self.persistent[value.index()], self.copies.hosts[&value]);
        let (buffer, from) = match direction {
            Direction::HostToDevice => (device, host),
            Direction::DeviceToHost => (host, device),
        };
        self.code.step.push(Instruction::CopyStart { buffer, from, direction, token });
        token
    }
}

/// The chunk of a stay.
fn value(residency: &Residency, stay: usize) -> ValueId {
    residency.chunks[residency.plan.stays[stay].chunk]
}
