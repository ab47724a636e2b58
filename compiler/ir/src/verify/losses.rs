//! Rule: every loss is emitted exactly once, on the device that computes it, before its buffer gets other contents.

use super::report::Report;
use crate::ids::DeviceId;
use crate::instruction::Instruction;
use crate::operand::Touch;
use crate::program::{Access, DeviceProgram, Program};
use crate::value::ValueKind;

/// A loss in a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// None was computed there, or it is gone.
    Absent,
    /// Computed by this instruction of the step, and not emitted yet.
    Due(u32),
    Emitted,
}

/// Checks one device.
pub(super) fn check(program: &Program, device: DeviceId, code: &DeviceProgram, report: &mut Report) {
    let mut losses = vec![Loss::Absent; code.buffers.len()];
    let mut lost = Vec::new();
    for (index, instruction) in code.step.iter().enumerate() {
        if let Instruction::Emit { buffer } = *instruction {
            match std::mem::replace(&mut losses[buffer.index()], Loss::Emitted) {
                Loss::Due(_) => {}
                Loss::Absent => report.step(device, index, format!("no run of this device left a loss in {buffer}")),
                Loss::Emitted => report.step(device, index, format!("the loss in {buffer} was emitted already")),
            }
            continue;
        }
        instruction.accesses(program, code, |buffer, touch| {
            let ends = matches!(touch, Touch::Alloc | Touch::Free | Touch::Write | Touch::Receive);
            if ends && let Loss::Due(run) = std::mem::replace(&mut losses[buffer.index()], Loss::Absent) {
                lost.push(run);
            }
        });
        let Instruction::Run { exec, operands, .. } = *instruction else { continue };
        for (operand, buffer) in program.exec(exec).operands.iter().zip(code.operands(operands)) {
            if operand.access != Access::Read && program.value(operand.value).kind == ValueKind::Loss {
                losses[buffer.index()] = Loss::Due(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
    }
    lost.extend(losses.iter().filter_map(|loss| if let Loss::Due(run) = loss { Some(*run) } else { None }));
    for run in lost {
        report.step(device, run as usize, "its loss is never emitted");
    }
}
