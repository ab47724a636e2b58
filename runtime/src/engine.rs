//! Engines: what executes the lists of a program. Threads do it on the processor, or only count; crates above this one
//! do it elsewhere.

use crate::devices::Loader;
use crate::run::{Options, Pace};
use pipe_distributed::{Profile, RankView, RunError, StepReport, UsedGpu};
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Buffer;
use pipe_ir::verify::Verified;
use std::sync::Arc;

/// Some bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferPlace {
    /// Which device.
    pub device: DeviceId,
    /// Where in its arenas.
    pub buffer: Buffer,
}

/// Allocates, compiles, and runs the set-up lists; in a job of several ranks, of the devices of one.
pub type StartEngine =
    fn(&Arc<Verified>, &Options, Arc<dyn Loader>, Option<&RankView>) -> Result<Box<dyn Engine>, RunError>;

/// What executes.
pub trait Engine {
    /// Executes the step lists once. Fails if a device fails.
    fn step(&mut self, step: u64, pace: Pace) -> Result<StepReport, RunError>;

    /// Where the time of kernels went so far, if that was asked for.
    fn profile(&mut self) -> Profile;

    /// The contents of a place between steps; nothing where there is no memory. Fails if the driver fails.
    fn read(&self, place: BufferPlace) -> Result<Option<Vec<u8>>, RunError>;

    /// Replaces them. Whether there is memory. Fails if the driver fails.
    fn write(&self, place: BufferPlace, data: &[u8]) -> Result<bool, RunError>;

    /// The GPUs, by name, with the devices on each.
    fn gpus(&self) -> Vec<UsedGpu> {
        Vec::new()
    }

    /// What should be said of the machine, each thing once.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Never gives its memory back: messages of other ranks may still arrive there.
    fn forget(&mut self) {}
}
