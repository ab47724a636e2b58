//! What the buffers of a device hold, instruction by instruction.

use pipe_ir::ids::{BufferId, MicrobatchId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Access, DeviceProgram, Program};

/// What a buffer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveBuffer {
    /// A row of [`Program::values`].
    pub value: ValueId,
    /// Of which microbatch, if of one.
    pub microbatch: Option<MicrobatchId>,
}

/// What each buffer of a device holds, as far as its list was followed: rows of the table of
/// buffers are used again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holds(Vec<Option<LiveBuffer>>);

impl Holds {
    /// Before the first instruction.
    pub fn new(device: &DeviceProgram) -> Self {
        Self(vec![None; device.buffers.len()])
    }

    /// What a buffer holds since its `alloc`, if that was said yet.
    pub fn of(&self, buffer: BufferId) -> Option<LiveBuffer> {
        self.0[buffer.index()]
    }

    /// Takes one instruction into account.
    pub fn follow(&mut self, program: &Program, device: &DeviceProgram, instruction: &Instruction) {
        let of = |value: ValueId, microbatch: MicrobatchId| {
            let is_persistent = program.value(value).kind.is_persistent();
            LiveBuffer { value, microbatch: (!is_persistent).then_some(microbatch) }
        };
        match *instruction {
            Instruction::Alloc { buffer } => self.0[buffer.index()] = None,
            Instruction::Fill { buffer, value, .. } => self.hold(buffer, LiveBuffer { value, microbatch: None }),
            Instruction::Load { buffer, value, microbatch }
            | Instruction::RecvStart { buffer, value, microbatch, .. } => self.hold(buffer, of(value, microbatch)),
            Instruction::Run { exec, microbatch, operands } => {
                for (buffer, operand) in device.operands(operands).iter().zip(&program.exec(exec).operands) {
                    let held = of(operand.value, operand.microbatch(microbatch));
                    // What is written takes the place of what was there, as a gradient may that of
                    // the one it is computed from.
                    match operand.access {
                        Access::Write => self.0[buffer.index()] = Some(held),
                        Access::Read | Access::Update => self.hold(*buffer, held),
                    }
                }
            }
            Instruction::CopyStart { buffer, from, .. } => {
                self.0[buffer.index()] = self.0[buffer.index()].or(self.0[from.index()]);
            }
            Instruction::Free { .. }
            | Instruction::Emit { .. }
            | Instruction::SendStart { .. }
            | Instruction::CollStart { .. }
            | Instruction::GatherStart { .. }
            | Instruction::LaneStart { .. }
            | Instruction::Wait { .. } => {}
        }
    }

    fn hold(&mut self, buffer: BufferId, held: LiveBuffer) {
        self.0[buffer.index()].get_or_insert(held);
    }
}
