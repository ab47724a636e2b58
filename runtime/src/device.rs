//! What a backend must offer.

use crate::data::Data;
use pipe_ir::ids::{ExecId, MicrobatchId, ValueId};
use pipe_ir::instruction::Fill;
use pipe_ir::program::{Buffer, Program};

/// What every device of a run shares.
pub struct Context {
    /// What is run.
    pub program: std::sync::Arc<pipe_ir::verify::Verified>,
    /// Seed of initial weights.
    pub seed: u64,
    /// Where microbatches come from.
    pub data: Data,
}

impl Context {
    /// The verified program.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.program.program()
    }
}

/// One executor of instructions. The executor calls it in the order of the device's list; buffers are places in the
/// device's arena, and the verifier has proved that each call may touch them.
pub trait Device: Send {
    /// Writes zeros or initial contents.
    fn fill(&mut self, context: &Context, buffer: Buffer, value: ValueId, with: Fill);

    /// Writes the data of a microbatch of a step.
    fn load(&mut self, context: &Context, buffer: Buffer, value: ValueId, microbatch: MicrobatchId, step: u64);

    /// Runs an executable on its operands. Steps count from 0.
    ///
    /// # Errors
    /// If the data makes it impossible, such as an index outside its table.
    fn run(&mut self, context: &Context, exec: ExecId, operands: &[Buffer], step: u64) -> Result<(), String>;

    /// The number in a buffer, handed to the host; `None` from a device that computes nothing.
    fn emit(&mut self, buffer: Buffer) -> Option<f32>;
}
