//! Where the kernels of tests run: on the emulator, or, if the variable `PIPEC_GPU` is there, on
//! the GPU of this machine.

use super::card::Card;
use super::emulated::Emulated;
use crate::kernels::Sources;
use crate::launch::Argument;
use pipe_ir::kernels::Location;

/// Kernels that can be launched.
pub(super) enum Module {
    Emulated(Emulated),
    Card(Card),
}

impl Module {
    /// Compiles all functions of some sources, or `None` where there is no compiler for an emulator.
    pub(super) fn new(sources: Sources) -> Option<Self> {
        if is_on_gpu() { Some(Self::Card(Card::new(sources))) } else { Emulated::new(sources).map(Self::Emulated) }
    }
}

/// Whether kernels run on a GPU, and not on the emulator.
pub(super) fn is_on_gpu() -> bool {
    std::env::var_os("PIPEC_GPU").is_some()
}

/// What an argument may be the address of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    Place(Location),
    Part(u32),
    Step,
    Error,
    Working,
}

/// An argument in the low bytes of a word.
pub(super) fn word(argument: Argument, address: &dyn Fn(Address) -> u64) -> u64 {
    match argument {
        Argument::Address(location) => address(Address::Place(location)),
        Argument::Part(part) => address(Address::Part(part)),
        Argument::Step => address(Address::Step),
        Argument::Error => address(Address::Error),
        Argument::Working => address(Address::Working),
        Argument::U64(number) => number,
        Argument::U32(number) => u64::from(number),
        Argument::F32(number) => u64::from(number.to_bits()),
        Argument::F64(number) => number.to_bits(),
    }
}
