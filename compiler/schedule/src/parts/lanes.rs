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
