//! The null device: has no memory and computes nothing. The executor still counts its bytes and instructions.

use crate::devices::Device;
use pipe_distributed::memory::Region;
use pipe_distributed::{Fault, Profile};
use pipe_ir::ids::{BufferId, ExecId, MicrobatchId, ValueId};
use pipe_ir::instruction::Fill;

/// A device that only keeps the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NullDevice;

impl Device for NullDevice {
    fn region(&self, _: BufferId) -> Region {
        Region::EMPTY
    }

    fn freed(&mut self, _: BufferId) {}

    fn fill(&mut self, _: BufferId, _: ValueId, _: Fill) -> Result<(), Fault> {
        Ok(())
    }

    fn load(&mut self, _: u64, _: BufferId, _: ValueId, _: MicrobatchId) -> Result<(), Fault> {
        Ok(())
    }

    fn run(&mut self, _: u64, _: ExecId, _: &[BufferId]) -> Result<(), Fault> {
        Ok(())
    }

    fn emit(&mut self, _: BufferId) -> Result<f64, Fault> {
        Ok(0.0)
    }

    fn is_timed(&self) -> bool {
        false
    }

    fn profile(&self) -> Profile {
        Profile::default()
    }
}
