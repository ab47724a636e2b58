//! Lanes: what a task waits for because its device has one list of tasks, and queues beside compute.
//!
//! A device goes through its list, runs compute tasks one after the other, and starts lane tasks where they stand. So a
//! lane task starts when all compute tasks before it in the list have ended, its lane is free and its inputs have
//! ended. It may overlap the compute tasks behind it. The list waits for a lane task before the second task after it on
//! that lane, so at most two tasks of a lane have started and not ended.

use crate::schedule::Schedule;
use pipe_ir::ids::DeviceId;

/// How many tasks of a lane may have started and not ended.
pub const OUTSTANDING: usize = 2;

/// What [`waits`] gives for each place of a task.
pub fn waits_at(
    schedule: &Schedule,
    places: impl Iterator<Item = (DeviceId, usize)>,
) -> impl Iterator<Item = (DeviceId, usize)> {
    let has_lanes = !schedule.parts.lanes().is_empty();
    places.filter(move |_| has_lanes).flat_map(|(queue, position)| waits(schedule, queue, position))
}

/// The tasks of other queues of the same device that must have ended before a task starts: each queue, and the position
/// in its order. Empty if there are no lanes.
pub fn waits(schedule: &Schedule, queue: DeviceId, position: usize) -> impl Iterator<Item = (DeviceId, usize)> + '_ {
    let (n_devices, n_lanes) = (schedule.n_devices(), schedule.parts.lanes().len());
    let device = schedule.parts.device(queue, n_devices);
    let n_queues = if n_lanes == 0 { 0 } else { n_lanes + 1 };
    let others = (0..n_queues).map(move |lane| (lane, DeviceId::from_index(device.index() + lane * n_devices)));
    others.filter(move |(_, other)| *other != queue).filter_map(move |(lane, other)| {
        let at = schedule.orders[queue.index()][position].at;
        let before = schedule.orders[other.index()].partition_point(|one| one.at < at);
        let last = before.checked_sub(if lane == 0 { 1 } else { OUTSTANDING + 1 })?;
        Some((other, last))
    })
}

/// The same for queues whose tasks are asked about in their order: it goes on where it was.
pub struct Cursors {
    n_lanes: usize,
    /// By queue and lane, compute first: how many tasks of that queue of the same device stand before.
    before: Vec<u32>,
}

impl Cursors {
    /// At the beginning of all queues.
    pub fn new(schedule: &Schedule) -> Self {
        let n_lanes = schedule.parts.lanes().len();
        let n_pairs = if n_lanes == 0 { 0 } else { schedule.n_queues() * (n_lanes + 1) };
        Self { n_lanes, before: vec![0; n_pairs] }
    }

    /// Whether there is anything to wait for.
    pub const fn has_lanes(&self) -> bool {
        self.n_lanes > 0
    }

    /// What [`waits`] gives. The position is not before one that this queue was asked about.
    pub fn waits<'a>(
        &'a mut self,
        schedule: &'a Schedule,
        queue: DeviceId,
        position: usize,
    ) -> impl Iterator<Item = (DeviceId, usize)> + 'a {
        let n_queues = if self.n_lanes == 0 { 0 } else { self.n_lanes + 1 };
        let (n_devices, own) = (schedule.n_queues() / (self.n_lanes + 1), queue.index() * (self.n_lanes + 1));
        let device = queue.index() % n_devices.max(1);
        (0..n_queues).filter_map(move |lane| {
            let other = device + lane * n_devices;
            if other == queue.index() {
                return None;
            }
            let at = schedule.orders[queue.index()][position].at;
            let order = &schedule.orders[other];
            let before = &mut self.before[own + lane];
            while order.get(*before as usize).is_some_and(|one| one.at < at) {
                *before += 1;
            }
            let last = (*before as usize).checked_sub(if lane == 0 { 1 } else { OUTSTANDING + 1 })?;
            Some((DeviceId::from_index(other), last))
        })
    }
}
