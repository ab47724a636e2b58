//! Clusters: the machines that a pipeline is to run on, read from a `cluster.toml`, and how long things take there.
//!
//! A cluster has nodes of equally many devices, numbered node by node ([`DeviceSlot`]).
//! [`read`](Cluster::read) checks the file; [`SlotLayout`] says which device slots each device of a schedule
//! stands for; [`collective`] times what groups of device slots exchange; [`durations`] makes the costs of
//! a pipeline of all that, in milliseconds, so that a tick is a nanosecond as with profiles.
//! `docs/cluster.md` has the formulas.

mod beside;
pub mod collective;
pub mod durations;
pub mod gradients;
mod layout;
mod quantity;
mod rates;
mod read;
pub mod unmodelled;
mod value;
pub mod ways;

pub use layout::{SlotLayout, check};
pub use rates::Rates;

use pipe_ir::units::Bytes;
use pipe_schedule::units::Ticks;
use pipe_syntax::source::{FileId, Source, Sources, Span};
use std::ops::Range;

/// Devices with less memory are no GPUs that anybody trains on: a context and libraries would take most of it.
const SMALLEST_GPU: Bytes = Bytes(4 << 30);

/// The most device slots of a cluster.
pub const MAX_DEVICE_SLOTS: u64 = 1 << 20;

/// A device of a cluster, counted node by node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceSlot(pub u32);

/// A way from one device to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// What a message takes however short it is.
    pub latency: Ticks,
    /// How fast it then goes on; never 0.
    pub bytes_per_second: u64,
}

impl Link {
    /// From a device to itself.
    pub const NONE: Self = Self { latency: Ticks::ZERO, bytes_per_second: u64::MAX };

    /// How long so many bytes take, rounded up to a nanosecond.
    pub fn time(self, bytes: u128) -> Ticks {
        self.latency + ticks(bytes, self.bytes_per_second)
    }
}

/// Time of a copy of 1 MiB at so many bytes per second.
pub(crate) fn copied(per_second: u64) -> Ticks {
    ticks(1 << 20, per_second)
}

/// So much at so much a second, in nanoseconds, rounded up.
pub(crate) fn ticks(amount: u128, per_second: u64) -> Ticks {
    let nanos = amount.saturating_mul(1_000_000_000).div_ceil(u128::from(per_second.max(1)));
    Ticks(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The memory of a node beside that of its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Host {
    memory: Bytes,
    /// Where that is written.
    place: Range<usize>,
    /// Between the host and each device, each way, in bytes per second.
    bandwidth: Option<u64>,
}

/// Machines and the links between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    source: Source,
    /// Its place among the sources of a compilation.
    file: Option<FileId>,
    /// Where the memory of devices and the number of nodes are written.
    memory_place: Range<usize>,
    nodes_place: Range<usize>,
    n_nodes: u32,
    /// Devices of each node.
    pub per_node: u32,
    memory: Bytes,
    /// Whether the file says what is reserved of it.
    is_reserved: bool,
    host: Option<Host>,
    /// How fast devices compute.
    pub rates: Rates,
    /// Floating-point operations of matrix products that a device does in a second at most, as its
    /// maker states it, where it is said.
    pub peak_flops: Option<u64>,
    /// Between devices of one node, by node.
    inside: Vec<Link>,
    /// Between devices of two nodes: one for all of them, or by node and node.
    between: Vec<Link>,
    /// The order in which nodes are filled; empty for that of the pipeline, or else of the file.
    fill: Vec<u32>,
}

impl Cluster {
    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// Number of nodes.
    pub const fn n_nodes(&self) -> u32 {
        self.n_nodes
    }

    /// Devices of all nodes.
    pub const fn n_device_slots(&self) -> u32 {
        self.n_nodes * self.per_node
    }

    /// Bytes of each device.
    pub const fn memory(&self) -> Bytes {
        self.memory
    }

    /// Whether devices of this memory are taken to be GPUs whose driver and libraries need some of it, and the file
    /// does not say how much.
    pub fn counts_beside(&self) -> bool {
        !self.is_reserved && self.memory >= SMALLEST_GPU
    }

    /// What each device may use of its node's host, where that is said: an equal part.
    pub fn host_of_device(&self) -> Option<Bytes> {
        let host = self.host.as_ref()?;
        Some(Bytes(host.memory.0 / u64::from(self.per_node.max(1))))
    }

    /// Time of a copy of 1 MiB between a device and its host, either way, where the bandwidth is said.
    pub fn copy(&self) -> Option<Ticks> {
        let bandwidth = self.host.as_ref()?.bandwidth?;
        Some(copied(bandwidth))
    }

    /// The same with devices that compute as fast as was measured.
    #[must_use]
    pub fn at_rates(self, rates: Rates) -> Self {
        Self { rates, ..self }
    }

    /// Whether all ways between two nodes are alike.
    pub const fn is_even(&self) -> bool {
        self.between.len() == 1
    }

    /// Whether all nodes are alike inside.
    pub fn is_even_inside(&self) -> bool {
        self.inside.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// The same with the best of all links between nodes for each of them, and inside nodes
    /// likewise: nothing is slower there.
    pub fn at_best(&self) -> Self {
        let n = self.n_nodes as usize;
        let is_between = |place: &usize| self.is_even() || place / n != place % n;
        let best = |links: &mut dyn Iterator<Item = Link>| {
            links.reduce(|one, other| Link {
                latency: one.latency.min(other.latency),
                bytes_per_second: one.bytes_per_second.max(other.bytes_per_second),
            })
        };
        let inside = best(&mut self.inside.iter().copied());
        let mut places = (0..self.between.len()).filter(is_between).map(|place| self.between[place]);
        let between = best(&mut places).unwrap_or(Link::NONE);
        Self { inside: inside.map(|link| vec![link; n]).unwrap_or_default(), between: vec![between], ..self.clone() }
    }

    /// Whether two nodes can change places without any difference.
    pub fn are_alike(&self, one: u32, other: u32) -> bool {
        let (n, a, b) = (self.n_nodes as usize, one as usize, other as usize);
        let at = |from: usize, to: usize| self.between[from * n + to];
        let others = || (0..n).filter(|node| *node != a && *node != b);
        let same = || at(a, b) == at(b, a) && others().all(|to| at(a, to) == at(b, to) && at(to, a) == at(to, b));
        self.inside[a] == self.inside[b] && (self.is_even() || same())
    }

    /// The node of a device slot.
    pub const fn node_of(&self, device_slot: DeviceSlot) -> u32 {
        device_slot.0 / self.per_node
    }

    /// The way from one device slot to another.
    pub fn link(&self, from: DeviceSlot, to: DeviceSlot) -> Link {
        if from == to {
            return Link::NONE;
        }
        let (one, other) = (self.node_of(from) as usize, self.node_of(to) as usize);
        match self.between.as_slice() {
            _ if one == other => self.inside[one],
            [all] => *all,
            each => each[one * self.n_nodes as usize + other],
        }
    }

    /// The same with its nodes filled in this order, whatever the pipeline says: a permutation of them.
    #[must_use]
    pub fn filled(self, fill: Vec<u32>) -> Self {
        Self { fill, ..self }
    }

    /// Puts the file among the sources of a compilation, so that findings can point into it.
    pub fn placed(&self, sources: &mut Sources) -> Self {
        Self { file: Some(sources.add(self.source.clone())), ..self.clone() }
    }

    /// Where the memory of devices is written, once the file is [placed](Self::placed).
    pub fn memory_span(&self) -> Option<Span> {
        Some(pipe_syntax::json::span(self.file?, self.memory_place.start, self.memory_place.end))
    }

    /// Where the memory of hosts is written, likewise.
    pub fn host_span(&self) -> Option<Span> {
        let place = &self.host.as_ref()?.place;
        Some(pipe_syntax::json::span(self.file?, place.start, place.end))
    }

    /// Where the number of nodes is written, likewise.
    pub fn nodes_span(&self) -> Option<Span> {
        Some(pipe_syntax::json::span(self.file?, self.nodes_place.start, self.nodes_place.end))
    }
}
