//! Faults: why a run cannot go on.

use crate::rank::Rank;
use pipe_ir::ids::DeviceId;
use pipe_ir::verify::List;

/// What went wrong on a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    message: String,
    /// Whether it only follows from another device's fault.
    secondary: bool,
}

impl Fault {
    /// A fault of this device.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), secondary: false }
    }

    /// Whether it only follows from another device's fault.
    pub const fn is_secondary(&self) -> bool {
        self.secondary
    }

    /// Another device had a fault, so that this one waits in vain.
    pub(crate) fn abandoned() -> Self {
        Self { message: "another device stopped".into(), secondary: true }
    }
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The machine has less memory than the program needs.
    #[error("cannot allocate the arena of {device}: {bytes} (the machine has too little free memory)")]
    OutOfMemory {
        /// Whose arena.
        device: DeviceId,
        /// Its size.
        bytes: pipe_ir::units::Bytes,
    },
    /// A GPU has less memory than the program needs.
    #[error("cannot allocate the arena of {device}: {bytes}, but {gpu} has {free} free")]
    GpuMemory {
        /// Whose arena.
        device: DeviceId,
        /// Its size.
        bytes: pipe_ir::units::Bytes,
        /// Which GPU.
        gpu: String,
        /// What is left there.
        free: pipe_ir::units::Bytes,
    },
    /// The driver of a GPU refuses a call.
    #[error("the CUDA driver cannot go on: {0}")]
    Driver(String),
    /// The backend cannot run the program.
    #[error("{0}")]
    Unsupported(String),
    /// An instruction failed.
    #[error("{device} stopped at instruction {index} of its {list}, `{instruction}`: {fault}")]
    Instruction {
        /// Where.
        device: DeviceId,
        /// In which list.
        list: List,
        /// Position in it.
        index: usize,
        /// The instruction as it is written in Rust.
        instruction: String,
        /// What went wrong.
        fault: Fault,
    },
    /// A device's thread broke.
    #[error("{device} broke: {message} (this is a bug in pipec, please report it)")]
    Panic {
        /// Whose thread.
        device: DeviceId,
        /// What it said.
        message: String,
    },
    /// A job has more ranks than the program has devices.
    #[error("{ranks} ranks cannot divide {devices} device{}: every rank needs at least one, so start no more than {devices}", if *devices == 1 { "" } else { "s" })]
    TooManyRanks {
        /// Of the program.
        devices: usize,
        /// Of the job.
        ranks: usize,
    },
    /// Another rank of the job cannot go on.
    #[error("{rank}: {message}")]
    Remote {
        /// Which.
        rank: Rank,
        /// Why.
        message: String,
    },
    /// No device can go on.
    #[error("all devices wait: {0} (a verified program cannot do this; please report it)")]
    Stuck(String),
    /// GPUs of several processes cannot exchange bytes.
    #[error("NCCL cannot go on: {0}")]
    Nccl(String),
    /// Two calls of a command list touch the same bytes, and nothing orders them.
    #[error("{0} (a mistake of pipec; please report it)")]
    Race(String),
}
