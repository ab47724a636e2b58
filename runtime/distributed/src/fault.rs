//! Faults: why a run cannot go on.

use crate::rank::Rank;
use pipe_ir::ids::DeviceId;
use pipe_ir::units::Bytes;
use pipe_ir::verify::List;
use std::fmt;

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

/// What some devices need of their GPU, which has less.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuNeed {
    /// Which GPU.
    pub gpu: String,
    /// Those that share it.
    pub devices: Vec<DeviceId>,
    /// Bytes of their arenas.
    pub arenas: Bytes,
    /// Bytes of what else they need there.
    pub beside: Bytes,
    /// What is left there.
    pub free: Bytes,
    /// What NCCL has taken there, in a job of several ranks.
    pub nccl: Bytes,
}

impl fmt::Display for GpuNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpu, devices, arenas, beside, free, nccl } = self;
        let (last, others) =
            devices.split_last().map_or((String::new(), &[][..]), |(last, others)| (last.to_string(), others));
        let others: Vec<String> = others.iter().map(DeviceId::to_string).collect();
        let [does, its, it] =
            if others.is_empty() { ["does", "its arena", "it"] } else { ["do", "their arenas", "them"] };
        let joined = if others.is_empty() { last } else { format!("{} and {last}", others.join(", ")) };
        write!(f, "{joined} {does} not fit on {gpu}")?;
        if *nccl > Bytes::ZERO {
            write!(f, " beside NCCL, which holds {nccl} there")?;
        }
        write!(f, ": {its} and what is beside {it} need {arenas} + {beside}, and {free} are free")
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
        bytes: Bytes,
    },
    /// A GPU has less memory than the program needs.
    #[error("{0}")]
    GpuMemory(Box<GpuNeed>),
    /// The driver of a GPU refuses a call.
    #[error("the CUDA driver cannot go on: {0}")]
    Driver(String),
    /// The backend cannot run the program.
    #[error("{0}")]
    Unsupported(String),
    /// The data of a step cannot be read.
    #[error("{0}")]
    Data(String),
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

#[cfg(test)]
mod tests {
    use super::{Bytes, DeviceId, GpuNeed};

    #[test]
    fn what_does_not_fit_on_a_gpu_is_said_with_its_parts() {
        let need = |devices: &[u32], nccl| GpuNeed {
            gpu: "GPU 0 (H100)".to_owned(),
            devices: devices.iter().copied().map(DeviceId).collect(),
            arenas: Bytes(3 << 30),
            beside: Bytes(1 << 20),
            free: Bytes(1 << 30),
            nccl: Bytes(nccl),
        };
        assert_eq!(
            need(&[0, 1, 2], 0).to_string(),
            "d0, d1 and d2 do not fit on GPU 0 (H100): their arenas and what is beside them need 3GiB + 1MiB, and 1GiB are free"
        );
        assert_eq!(
            need(&[4], 5 << 20).to_string(),
            "d4 does not fit on GPU 0 (H100) beside NCCL, which holds 5MiB there: its arena and what is beside it need 3GiB + 1MiB, \
             and 1GiB are free"
        );
    }
}
