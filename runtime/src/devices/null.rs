//! The null device: computes nothing, so that a run measures dispatch, and counts bytes and instructions.

use crate::device::{Context, Device};
use pipe_ir::ids::{ExecId, MicrobatchId, ValueId};
use pipe_ir::instruction::Fill;
use pipe_ir::program::Buffer;

/// A device without memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl Device for Null {
    fn fill(&mut self, _: &Context, _: Buffer, _: ValueId, _: Fill) {}

    fn load(&mut self, _: &Context, _: Buffer, _: ValueId, _: MicrobatchId, _: u64) {}

    fn run(&mut self, _: &Context, _: ExecId, _: &[Buffer], _: u64) -> Result<(), String> {
        Ok(())
    }

    fn emit(&mut self, _: Buffer) -> Option<f32> {
        None
    }
}
