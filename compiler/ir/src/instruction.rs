//! The instruction table: one row per instruction; enum, printer, parser and buffer accesses follow from it.

use crate::ids::{BufferId, DeviceId, ExecId, MicrobatchId, TokenId, ValueId};
use serde::{Deserialize, Serialize};

/// A range of the device's operand table: the buffers of one `run`, in the order of its executable's operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperandRange {
    /// First entry.
    pub start: u32,
    /// Number of entries.
    pub len: u32,
}

/// The queue pair that a transfer goes through. Activations and gradients never wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Forward values.
    Activation,
    /// Backward values.
    Gradient,
}

/// What a `fill` writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Zero bytes.
    Zero,
    /// The initial contents of the value's tensors, from the run's seed.
    Init,
}

/// One step of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Instruction {
    /// `alloc`: begins the lifespan of a buffer.
    Alloc { buffer: BufferId },
    /// `free`: ends it.
    Free { buffer: BufferId },
    /// `fill`: writes zeros or initial contents; the buffer then holds `value`, of no microbatch.
    Fill { buffer: BufferId, value: ValueId, with: Fill },
    /// `load`: the next-step data of a microbatch into a buffer.
    Load { buffer: BufferId, value: ValueId, microbatch: MicrobatchId },
    /// `run`: an executable on its operands. Updates have no microbatch and write `m0`.
    Run { exec: ExecId, microbatch: MicrobatchId, operands: OperandRange },
    /// `emit`: hands a buffer's contents to the host (the loss of a microbatch).
    Emit { buffer: BufferId },
    /// `send.start`: queues a buffer on `out[to, class]`.
    SendStart { buffer: BufferId, to: DeviceId, class: Class, token: TokenId },
    /// `recv.start`: queues a buffer on `in[from, class]` for this value of this microbatch.
    RecvStart {
        buffer: BufferId,
        value: ValueId,
        microbatch: MicrobatchId,
        from: DeviceId,
        class: Class,
        token: TokenId,
    },
    /// `wait`: until the transfer has ended. Each token is waited exactly once.
    Wait { token: TokenId },
}
