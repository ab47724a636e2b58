//! Devices: what each must offer: memory and compute. Control, transfers and bookkeeping belong to the executor.

pub mod axes;
pub(crate) mod cpu;
pub(crate) mod null;

use crate::values::data::Data;
use pipe_distributed::memory::Region;
use pipe_distributed::{Fault, Profile};
use pipe_ir::ids::{BufferId, ExecId, MicrobatchId, ValueId};
use pipe_ir::instruction::Fill;

/// One executor's backend. Every buffer that it is handed is alive and free for that use: the program was verified.
pub(crate) trait Device: Send {
    /// Where a buffer lies; [`Region::EMPTY`] on a device without memory.
    fn region(&self, buffer: BufferId) -> Region;

    /// A buffer's lifespan has ended; in strict runs its contents are made unusable.
    fn freed(&mut self, buffer: BufferId);

    /// Writes zeros or initial contents of a value.
    fn fill(&mut self, buffer: BufferId, value: ValueId, with: Fill) -> Result<(), Fault>;

    /// Loads the data of a microbatch.
    fn load(&mut self, step: u64, buffer: BufferId, value: ValueId, microbatch: MicrobatchId) -> Result<(), Fault>;

    /// Runs an executable.
    fn run(&mut self, step: u64, exec: ExecId, operands: &[BufferId]) -> Result<(), Fault>;

    /// The number in a buffer, for the host.
    fn emit(&mut self, buffer: BufferId) -> Result<f64, Fault>;

    /// Whether running takes time that is worth a look at the clock.
    fn is_timed(&self) -> bool;

    /// Where the time went, if it was asked for.
    fn profile(&self) -> Profile;
}

/// Fills the buffers of `load` instructions.
pub trait Loader: Send + Sync {
    /// Writes a microbatch's data of a value (see [`pipe_ir::value::Value::tensors`]) for a step.
    ///
    /// # Errors
    /// If they can no longer be read.
    fn load(&self, step: u64, value: ValueId, microbatch: MicrobatchId, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Tells these data from others, where that is known.
    fn identity(&self) -> Option<String> {
        None
    }
}

impl<F: Fn(u64, ValueId, MicrobatchId, &mut [u8]) + Send + Sync> Loader for F {
    fn load(&self, step: u64, value: ValueId, microbatch: MicrobatchId, bytes: &mut [u8]) -> Result<(), Fault> {
        self(step, value, microbatch, bytes);
        Ok(())
    }
}

impl Loader for Data {
    fn load(&self, step: u64, value: ValueId, microbatch: MicrobatchId, bytes: &mut [u8]) -> Result<(), Fault> {
        let found = self.load(step, value, microbatch, bytes);
        found.map_err(|error| Fault::new(format!("the data of {microbatch} can no longer be read: {error}")))
    }

    fn identity(&self) -> Option<String> {
        self.identity()
    }
}
