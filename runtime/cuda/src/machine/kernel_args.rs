//! Kernel arguments: what the arguments of launches stand for, as words that are handed to kernels.

use super::super::driver::Area;
use super::super::launch::Argument;
use pipe_ir::kernels::{Location, Storage};
use pipe_ir::units::Bytes;

/// What the arguments of one run, or of one collective, stand for.
#[derive(Default)]
pub(super) struct KernelArgs<'a> {
    pub(super) operands: &'a [Area],
    /// Which operand is scratch.
    pub(super) scratch: Option<usize>,
    /// What a sum adds up, and where it goes.
    pub(super) parts: &'a [Area],
    /// The address of the step's numbers.
    pub(super) step: u64,
    /// The address of the record of an error.
    pub(super) error: u64,
    /// The address of the device's working memory.
    pub(super) working: u64,
}

impl KernelArgs<'_> {
    /// The address of a place in an operand or in scratch.
    pub(super) fn address(&self, at: Location) -> u64 {
        let operand = match at.place {
            Storage::Operand(position) => Some(position as usize),
            Storage::Scratch => self.scratch,
        };
        address(operand.and_then(|position| self.operands.get(position)), at.offset)
    }

    /// An argument in the low bytes of a word.
    pub(super) fn word(&self, argument: &Argument) -> u64 {
        match *argument {
            Argument::Address(at) => self.address(at),
            Argument::Part(part) => address(self.parts.get(part as usize), Bytes::ZERO),
            Argument::Step => self.step,
            Argument::Error => self.error,
            Argument::Working => self.working,
            Argument::U64(number) => number,
            Argument::U32(number) => u64::from(number),
            Argument::F32(number) => u64::from(number.to_bits()),
            Argument::F64(number) => number.to_bits(),
        }
    }
}

fn address(area: Option<&Area>, offset: Bytes) -> u64 {
    area.map_or(0, |area| area.address + offset.0)
}
