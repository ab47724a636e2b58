//! The command list: all calls of one list of a program, of the devices of one process, in the order in
//! which the host makes them.
//!
//! Devices have no thread of their own here. The host goes through their lists in turns and asks
//! the driver for everything ahead of time: a queue of the program is a stream, the end of a
//! transfer is an event. Nothing waits on the host, so a command list can be captured as one graph.
//!
//! ```text
//! Program ──order──> turns ──record──> all calls ──prune──> CommandList ──races──> nobody meets
//! ```
//!
//! - The set-up list is one command list, the step list another, which is run again and again. Before a
//!   command list is run the host has waited for all queues of the one before, so that it begins with
//!   everything over, and no event of a command list is waited for in another.
//! - Every event is recorded before any wait for it. So the calls can be carried out one after the
//!   other, in their order, on a single queue: whatever a machine puts in between two queues beyond
//!   what the command list says, nothing gets stuck.
//! - Of several processes each goes through the lists of all devices, in the same order, and writes
//!   down what its own ones do. So all of them come to their ends of transfers and collectives in
//!   one order of all: even if each did one thing at a time, none would get stuck.
//! - A `wait` of a device's list makes its compute queue wait, never the host. Each token is waited
//!   for once, so that at the end of a command list the compute queues come after everything: who waits for
//!   all of them waits for all.

mod access;
mod clocks;
mod order;
mod prune;
mod races;
mod record;
mod text;

use pipe_ir::graph::DType;
use pipe_ir::ids::{BufferId, DeviceId, ExecId, GroupId, LaneId, MicrobatchId, ValueId};
use pipe_ir::instruction::{Class, Collective, Direction, Fill, OperandRange};
pub use races::{Race, races};
pub use record::{Facts, Recorded, Staged, record, record_part};
use std::fmt;
pub use text::lines;

/// What works in order: a stream of the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Queue {
    /// Executables of a device.
    Compute(DeviceId),
    /// Those of its executables that run on a lane.
    Lane(DeviceId, LaneId),
    /// Transfers of a class from a device to another.
    Transfer(DeviceId, DeviceId, Class),
    /// Copies between a device and its host.
    Copy(DeviceId, Direction),
    /// What a group does together.
    Group(GroupId),
}

impl Queue {
    /// The lane that it is, if it is one.
    pub const fn lane(self) -> Option<LaneId> {
        match self {
            Self::Lane(_, lane) => Some(lane),
            _ => None,
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(device) => write!(f, "compute {device}"),
            Self::Lane(device, lane) => write!(f, "{lane} {device}"),
            Self::Transfer(from, to, class) => write!(f, "{from}>{to} {}", class.word()),
            Self::Copy(device, direction) => write!(f, "{} {device}", direction.word()),
            Self::Group(group) => write!(f, "group {group}"),
        }
    }
}

/// A queue, by its place in [`CommandList::queues`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueueId(pub u32);

/// A point in a queue that others wait for. Each is recorded once in a command list, before any wait for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventId(pub u32);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

/// A buffer of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Home {
    /// Whose.
    pub device: DeviceId,
    /// Which of them.
    pub buffer: BufferId,
}

/// One call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// The queue goes on from here only when the event is over.
    Wait(QueueId, EventId),
    /// The event is over when all before it in the queue is.
    Record(QueueId, EventId),
    /// Work.
    Work(QueueId, Work),
}

impl Call {
    /// The queue that it goes to.
    pub const fn queue(&self) -> QueueId {
        match self {
            Self::Wait(queue, _) | Self::Record(queue, _) | Self::Work(queue, _) => *queue,
        }
    }
}

/// What a queue does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Runs an executable of a device.
    Run {
        /// Whose.
        device: DeviceId,
        /// What.
        exec: ExecId,
        /// On which microbatch.
        microbatch: MicrobatchId,
        /// The buffers.
        operands: OperandRange,
    },
    /// Writes zeros, or initial contents. In a set-up the buffer may be the host's.
    Fill {
        /// What is written.
        home: Home,
        /// What it holds then.
        value: ValueId,
        /// Which contents.
        with: Fill,
    },
    /// Copies a microbatch's data from the staging memory of the host: see [`Recorded::loads`].
    Load {
        /// What is written.
        home: Home,
        /// Which data.
        value: ValueId,
        /// Of which microbatch, counted over all steps of the list.
        microbatch: MicrobatchId,
    },
    /// Copies a loss to the staging memory of the host.
    Emit {
        /// What is read.
        home: Home,
        /// Whose loss it is, counted over all steps of the list.
        microbatch: MicrobatchId,
        /// Which of the losses of its device: see [`Facts::losses`].
        number: u32,
    },
    /// Copies a buffer to another of its size: a transfer, or between the spaces of one device.
    Copy {
        /// What is read.
        from: Home,
        /// What is written.
        to: Home,
    },
    /// Sends a buffer to a device of another process.
    Send {
        /// What is read.
        from: Home,
        /// Whose it is then.
        to: DeviceId,
    },
    /// Receives a buffer from a device of another process.
    Receive {
        /// Whose it was.
        from: DeviceId,
        /// What is written.
        to: Home,
    },
    /// What all members have joined.
    Together {
        /// What they do.
        collective: Collective,
        /// What the buffers consist of.
        dtype: DType,
        /// One of each member in this process, in the order of the group.
        parts: Vec<MemberPart>,
    },
    /// Makes a buffer of the device's memory unusable, whose lifespan has ended: in strict runs.
    Spoil {
        /// What is written.
        home: Home,
    },
}

/// A member's part of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberPart {
    /// What is joined.
    pub home: Home,
    /// Where its share is, if not inside the buffer.
    pub share: Option<Home>,
}

/// The calls of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandList {
    /// All queues, ascending.
    pub queues: Vec<Queue>,
    /// Number of events.
    pub n_events: u32,
    /// In the order of the host.
    pub calls: Vec<Call>,
}

impl CommandList {
    /// The queue with this id.
    pub fn queue(&self, id: QueueId) -> Queue {
        self.queues[id.0 as usize]
    }
}
