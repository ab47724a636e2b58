//! The tape: all calls of one list of a program, of all devices of this process, in the order in which the host makes them.
//!
//! Devices have no thread of their own here. The host goes through their lists in turns and asks the driver for everything ahead of time:
//! a queue of the program is a stream, the end of a transfer is an event. Nothing waits on the host, so a tape can be captured as one graph.

use pipe_ir::graph::DType;
use pipe_ir::ids::{BufferId, DeviceId, ExecId, GroupId, MicrobatchId, ValueId};
use pipe_ir::instruction::{Class, Collective, Direction, Fill, OperandRange};

/// What works in order: a stream of the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Queue {
    /// Executables of a device.
    Compute(DeviceId),
    /// Transfers of a class from a device to another.
    Transfer(DeviceId, DeviceId, Class),
    /// Copies between a device and its host.
    Copy(DeviceId, Direction),
    /// What a group does together.
    Group(GroupId),
}

/// A queue, by its place in [`Tape::queues`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QueueId(pub(crate) u32);

/// A point in a queue that others wait for. Each is recorded once in a tape, before any wait for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EventId(pub(crate) u32);

/// A buffer of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Home {
    pub(crate) device: DeviceId,
    pub(crate) buffer: BufferId,
}

/// One call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Call {
    /// The queue goes on from here only when the event is over.
    Wait(QueueId, EventId),
    /// The event is over when all before it in the queue is.
    Record(QueueId, EventId),
    /// Work.
    Work(QueueId, Work),
}

/// What a queue does.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Work {
    /// Runs an executable of a device.
    Run { device: DeviceId, exec: ExecId, microbatch: MicrobatchId, operands: OperandRange },
    /// Writes zeros, or initial contents.
    Fill { home: Home, value: ValueId, with: Fill },
    /// Copies a microbatch's data from the staging memory of the host.
    Load { home: Home, value: ValueId, microbatch: MicrobatchId },
    /// Copies a loss to the staging memory of the host: the number of the loss among those of its device.
    Emit { home: Home, microbatch: MicrobatchId, number: u32 },
    /// Copies a buffer to another of its size: a transfer, or between the spaces of one device.
    Copy { from: Home, to: Home },
    /// What all members have joined, in the order of the group.
    Together { collective: Collective, dtype: DType, parts: Vec<Part> },
    /// Makes a buffer unusable, whose lifespan has ended: in strict runs.
    Spoil { home: Home },
}

/// A member's part of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) home: Home,
    /// Where its share is, if not inside the buffer.
    pub(crate) share: Option<Home>,
}

/// The calls of a list.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tape {
    pub(crate) queues: Vec<Queue>,
    pub(crate) n_events: u32,
    pub(crate) calls: Vec<Call>,
}
