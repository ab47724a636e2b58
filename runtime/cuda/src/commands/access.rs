//! What a work touches: which bytes it reads, and which it writes.

use super::{Home, Work};
use pipe_ir::ids::{BufferId, DeviceId};
use pipe_ir::program::{Access as Touch, Program, Space};
use std::fmt;
use std::ops::Range;

/// Memory that works touch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Arena {
    /// One of a device's two.
    Of(DeviceId, Space),
    /// The staging memory of the losses of a device. That of the data is only read.
    Losses(DeviceId),
}

impl fmt::Display for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(device, Space::Device) => write!(f, "the arena of {device}"),
            Self::Of(device, Space::Host) => write!(f, "the host arena of {device}"),
            Self::Losses(device) => write!(f, "the losses of {device}"),
        }
    }
}

/// One access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Access {
    pub(super) arena: Arena,
    pub(super) bytes: Range<u64>,
    pub(super) writes: bool,
}

/// Bytes of a loss in the staging memory.
const LOSS: u64 = 8;

/// Calls `visit` with everything that a work touches. Buffers count as a whole: of what a
/// collective leaves as it is, nobody may rely on anything before its `wait`.
pub(super) fn accesses(program: &Program, work: &Work, mut visit: impl FnMut(Access)) {
    let mut touch = |device: DeviceId, buffer: BufferId, writes: bool| {
        let place = program.devices[device.index()].buffers[buffer.index()];
        let (start, end) = (place.offset.0, place.offset.0 + place.bytes.0);
        visit(Access { arena: Arena::Of(device, place.space), bytes: start..end, writes });
    };
    let mut buffer = |home: &Home, writes: bool| touch(home.device, home.buffer, writes);
    match work {
        Work::Run { device, exec, operands, .. } => {
            let buffers = program.devices[device.index()].operands(*operands);
            for (operand, buffer) in program.exec(*exec).operands.iter().zip(buffers) {
                touch(*device, *buffer, operand.access != Touch::Read);
            }
        }
        Work::Fill { home, .. } | Work::Load { home, .. } | Work::Spoil { home } => buffer(home, true),
        Work::Emit { home, number, .. } => {
            buffer(home, false);
            let start = LOSS * u64::from(*number);
            visit(Access { arena: Arena::Losses(home.device), bytes: start..start + LOSS, writes: true });
        }
        Work::Send { from, .. } => buffer(from, false),
        Work::Receive { to, .. } => buffer(to, true),
        Work::Copy { from, to } => {
            buffer(from, false);
            buffer(to, true);
        }
        Work::Together { parts, .. } => {
            for part in parts {
                buffer(&part.home, true);
                part.share.iter().for_each(|share| buffer(share, false));
            }
        }
    }
}
