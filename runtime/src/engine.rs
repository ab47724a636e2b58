//! Engines: what executes the lists of a program. Threads do it on the CPU, or only count; the machine does it on GPUs.

use crate::device::Loader;
use crate::devices::cuda::Machine;
use crate::fault::RunError;
use crate::profile::Profile;
use crate::remote::RankView;
use crate::report::{StepReport, UsedGpu};
use crate::run::{Backend, Options, Pace};
use crate::threads::Threads;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Buffer;
use pipe_ir::verify::Verified;
use std::sync::Arc;

/// Some bytes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) device: DeviceId,
    pub(crate) buffer: Buffer,
}

/// What executes.
pub(crate) enum Engine {
    /// Threads of this machine.
    Threads(Box<Threads>),
    /// GPUs of this machine.
    Cuda(Box<Machine>),
}

impl Engine {
    /// Allocates, compiles, and runs the set-up lists.
    pub(crate) fn start(
        program: &Arc<Verified>,
        options: &Options,
        loader: Arc<dyn Loader>,
        rank_view: Option<&RankView>,
    ) -> Result<Self, RunError> {
        match options.backend {
            Backend::Null | Backend::Cpu => {
                Threads::start(program, options, loader, rank_view).map(|threads| Self::Threads(Box::new(threads)))
            }
            Backend::Cuda => Machine::start(Arc::clone(program), options, loader, rank_view)
                .map(|machine| Self::Cuda(Box::new(machine))),
        }
    }

    /// Executes the step lists once.
    pub(crate) fn step(&mut self, step: u64, pace: Pace) -> Result<StepReport, RunError> {
        match self {
            Self::Threads(threads) => threads.step(step),
            Self::Cuda(machine) => machine.step(step, pace),
        }
    }

    /// Where the time of kernels went so far, if that was asked for.
    pub(crate) fn profile(&mut self) -> Profile {
        match self {
            Self::Threads(threads) => threads.profile(),
            Self::Cuda(machine) => machine.profile(),
        }
    }

    /// The contents of a place between steps; nothing where there is no memory.
    ///
    /// # Errors
    /// If the driver fails.
    pub(crate) fn read(&self, place: Place) -> Result<Option<Vec<u8>>, RunError> {
        match self {
            Self::Threads(threads) => Ok(threads.region(place).map(|region| region.bytes().to_vec())),
            Self::Cuda(machine) => {
                let Some(area) = machine.area(place.device, place.buffer) else { return Ok(None) };
                let mut bytes = vec![0; place.buffer.bytes.to_usize()];
                area.read(&mut bytes)?;
                Ok(Some(bytes))
            }
        }
    }

    /// Replaces them. Whether there is memory.
    ///
    /// # Errors
    /// If the driver fails.
    pub(crate) fn write(&self, place: Place, data: &[u8]) -> Result<bool, RunError> {
        match self {
            Self::Threads(threads) => {
                Ok(threads.region(place).map(|region| region.bytes_mut().copy_from_slice(data)).is_some())
            }
            Self::Cuda(machine) => match machine.area(place.device, place.buffer) {
                Some(area) => area.write(data).map(|()| true).map_err(RunError::from),
                None => Ok(false),
            },
        }
    }

    /// The GPUs, by name, with the devices on each.
    pub(crate) fn gpus(&self) -> Vec<UsedGpu> {
        match self {
            Self::Threads(_) => Vec::new(),
            Self::Cuda(machine) => machine.gpus(),
        }
    }

    /// What should be said of the machine, each thing once.
    pub(crate) fn notes(&mut self) -> Vec<String> {
        match self {
            Self::Threads(_) => Vec::new(),
            Self::Cuda(machine) => machine.notes(),
        }
    }

    /// Never gives its memory back: messages of other ranks may still arrive there.
    pub(crate) fn forget(&mut self) {
        if let Self::Threads(threads) = self {
            threads.forget();
        }
    }
}
