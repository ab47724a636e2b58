//! Rule: the squares of the gradients of each update are added up once in a step, on one device.

use super::report::Report;
use super::{Place, devices};
use crate::instruction::Instruction;
use crate::program::Program;

/// Checks the whole program.
pub(super) fn check(program: &Program, report: &mut Report) {
    let mut runs = vec![0_u32; program.execs.len()];
    for (device, code) in devices(program) {
        for (index, instruction) in code.step.iter().enumerate() {
            let Instruction::Run { exec, .. } = *instruction else { continue };
            if !program.exec(exec).is_squares() {
                continue;
            }
            runs[exec.index()] += 1;
            if runs[exec.index()] == 2 {
                report.step(device, index, "adds squares that are added up already in this step");
            }
        }
    }
    let lacks = |(index, runs): &(usize, &u32)| **runs == 0 && program.execs[*index].is_squares();
    for (index, _) in runs.iter().enumerate().filter(lacks) {
        let message = format!("`@{}` runs on no device", program.execs[index].name());
        report.error(Place::Exec(u32::try_from(index).unwrap_or(u32::MAX)), message);
    }
}
