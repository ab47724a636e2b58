//! Rules about what buffers hold: readers find the value that they expect, and a step ends with what it began with.

use super::List;
use super::report::{Report, at};
use crate::ids::{BufferId, DeviceId, ExecId, MicrobatchId, ValueId};
use crate::instruction::{Fill, Instruction, OperandRange};
use crate::program::{Access, DeviceProgram, Operand, Program};
use crate::task::TaskKind;
use crate::value::ValueKind;

/// What a buffer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Nothing that anyone wrote since its lifespan began.
    Nothing,
    /// A value of no microbatch.
    Persistent(ValueId),
    /// A value of a microbatch.
    Of(ValueId, MicrobatchId),
    /// Anything: an error was reported already.
    Unknown,
}

impl Content {
    /// How messages write it.
    pub(super) fn describe(self, program: &Program) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Persistent(value) => format!("`{}`", program.value(value).name),
            Self::Of(value, microbatch) => format!("`{} {microbatch}`", program.value(value).name),
            Self::Unknown => "something unknown".to_owned(),
        }
    }
}

/// Gradients of one value on one device, as far as this step.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Sum {
    /// From the step before.
    #[default]
    Stale,
    Zeroed,
    Added,
}

struct Contents<'a> {
    program: &'a Program,
    code: &'a DeviceProgram,
    buffers: Vec<Content>,
    /// By value; empty where no value is a gradient.
    sums: Vec<Sum>,
    sent: Vec<Content>,
}

/// Checks one device and returns what each `send.start` carries, in their order.
pub(super) fn check(program: &Program, device: DeviceId, code: &DeviceProgram, report: &mut Report) -> Vec<Content> {
    let buffers = vec![Content::Nothing; code.buffers.len()];
    let sums = vec![Sum::default(); program.values.len()];
    let mut contents = Contents { program, code, buffers, sums, sent: Vec::new() };
    for (index, instruction) in code.setup.iter().enumerate() {
        if let Err(message) = contents.instruction(instruction) {
            report.error(at(device, List::Setup, index), message);
        }
    }
    let start = contents.buffers.clone();
    contents.sums.fill(Sum::Stale);
    for (index, instruction) in code.step.iter().enumerate() {
        if let Err(message) = contents.instruction(instruction) {
            report.step(device, index, message);
        }
    }
    let changed = |buffer: &usize| {
        let (before, after) = (start[*buffer], contents.buffers[*buffer]);
        before != after && after != Content::Unknown && alive(code, *buffer)
    };
    for buffer in (0..start.len()).filter(changed) {
        let (before, after) = (start[buffer].describe(program), contents.buffers[buffer].describe(program));
        let index = last_write(program, code, buffer).unwrap_or(0);
        report.step(
            device,
            index,
            format!("leaves {after} in %{buffer}, which the next step expects to hold {before}"),
        );
    }
    contents.sent
}

/// Whether a buffer lives from step to step.
fn alive(code: &DeviceProgram, buffer: usize) -> bool {
    let allocates = |instruction: &Instruction| matches!(instruction, Instruction::Alloc { buffer: other } if other.index() == buffer);
    code.setup.iter().any(allocates)
}

fn last_write(program: &Program, code: &DeviceProgram, buffer: usize) -> Option<usize> {
    code.step.iter().rposition(|instruction| {
        let mut writes = false;
        instruction.accesses(program, code, |other, touch| {
            writes |= other.index() == buffer && touch != crate::operand::Touch::Read;
        });
        writes
    })
}

impl Contents<'_> {
    fn instruction(&mut self, instruction: &Instruction) -> Result<(), String> {
        match *instruction {
            Instruction::Alloc { buffer } | Instruction::Free { buffer } => {
                self.buffers[buffer.index()] = Content::Nothing;
                Ok(())
            }
            Instruction::Fill { buffer, value, with } => {
                self.buffers[buffer.index()] = Content::Persistent(value);
                self.fill(value, with)
            }
            Instruction::Load { buffer, value, microbatch }
            | Instruction::RecvStart { buffer, value, microbatch, .. } => {
                self.buffers[buffer.index()] = Content::Of(value, microbatch);
                Ok(())
            }
            Instruction::Run { exec, microbatch, operands } => self.run(exec, microbatch, operands),
            Instruction::Emit { buffer } => self.emit(buffer),
            Instruction::SendStart { buffer, .. } => {
                let content = self.buffers[buffer.index()];
                self.sent.push(content);
                match content {
                    Content::Of(..) | Content::Unknown => Ok(()),
                    Content::Nothing | Content::Persistent(_) => {
                        let held = content.describe(self.program);
                        Err(format!("{buffer} holds {held}; only values of a microbatch are sent"))
                    }
                }
            }
            Instruction::Wait { .. } => Ok(()),
        }
    }

    fn fill(&mut self, value: ValueId, with: Fill) -> Result<(), String> {
        let row = self.program.value(value);
        if row.kind != ValueKind::ParameterGradients {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.sums[value.index()], Sum::Zeroed);
        match (with, before) {
            (Fill::Init, _) => Err("gradients start at zero".to_owned()),
            (Fill::Zero, Sum::Added) => Err(format!("drops what was added to `{}` in this step", row.name)),
            (Fill::Zero, Sum::Stale | Sum::Zeroed) => Ok(()),
        }
    }

    fn emit(&mut self, buffer: BufferId) -> Result<(), String> {
        match self.buffers[buffer.index()] {
            Content::Unknown => Ok(()),
            Content::Of(value, _) if self.program.value(value).kind == ValueKind::Loss => Ok(()),
            other => Err(format!("{buffer} holds {}, which is not a loss", other.describe(self.program))),
        }
    }

    fn run(&mut self, id: ExecId, microbatch: MicrobatchId, range: OperandRange) -> Result<(), String> {
        let exec = self.program.exec(id);
        let mut result = Ok(());
        for (operand, buffer) in exec.operands.iter().zip(self.code.operands(range)) {
            let value = self.program.value(operand.value);
            let expected = if value.kind.is_persistent() {
                Content::Persistent(operand.value)
            } else {
                Content::Of(operand.value, microbatch)
            };
            let held = &mut self.buffers[buffer.index()];
            let reads = operand.access != Access::Write;
            if reads && *held != expected && *held != Content::Unknown {
                let (expected, found) = (expected.describe(self.program), held.describe(self.program));
                *held = Content::Unknown;
                result = Err(format!("expects {expected} in {buffer}, which holds {found}"));
            } else if !reads {
                *held = expected;
            }
            if value.kind == ValueKind::ParameterGradients
                && let Err(message) = self.gradient(exec.kind, operand)
            {
                result = Err(message);
            }
        }
        result
    }

    fn gradient(&mut self, kind: TaskKind, operand: &Operand) -> Result<(), String> {
        let sum = &mut self.sums[operand.value.index()];
        let name = &self.program.value(operand.value).name;
        match (operand.access, *sum) {
            (Access::Write, Sum::Added) => Err(format!("overwrites what was added to `{name}` in this step")),
            (Access::Write, _) => {
                *sum = Sum::Added;
                Ok(())
            }
            (Access::Read | Access::Update, Sum::Stale) => {
                *sum = Sum::Added;
                Err(format!("`{name}` was not filled with zeros in this step"))
            }
            (Access::Update, _) if kind != TaskKind::Update => {
                *sum = Sum::Added;
                Ok(())
            }
            (Access::Read | Access::Update, _) => Ok(()),
        }
    }
}
