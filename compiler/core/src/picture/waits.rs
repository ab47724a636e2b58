//! What the start of each task waited for last, by the rules by which the timeline was made.

use super::Reason;
use crate::check::dependencies::Slot;
use crate::judge::Judged;
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;

/// By device and position in its order.
pub(super) type Waits = Vec<Vec<Wait>>;

/// What one task waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// What came last.
    pub(super) reason: Reason,
    /// The task behind which it came.
    pub(super) after: Option<Slot>,
    /// Where the last of its inputs was computed, when that had ended, and when it arrived.
    pub(super) input: Option<(DeviceId, Ticks, Ticks)>,
}

/// All of them.
pub(super) fn all(judged: &Judged) -> Waits {
    let Judged { schedule, order, costs, timeline, .. } = judged;
    let none = Wait { reason: Reason::Nothing, after: None, input: None };
    let mut waits: Waits = schedule.orders.iter().map(|order| vec![none; order.len()]).collect();
    for slot in &order.sequence {
        let node = schedule.node(slot.device, slot.position as usize);
        let devices = schedule.devices_of(node[0].task);
        let start = timeline.starts[slot.device.index()][slot.position as usize];
        let arrivals = node.iter().flat_map(|one| order.dependencies.inputs(one.task)).map(|input| {
            let from = Slot::new(schedule.device_of(input), order.position(input));
            let end = timeline.ends[from.device.index()][from.position as usize];
            let latency = costs.latency.between_sets(schedule.devices_of(input), devices);
            (end + latency, end, from)
        });
        let input = arrivals.max_by_key(|(arrival, end, _)| (*arrival, *end));
        let before = order.places(schedule, *slot).find_map(|(device, position)| {
            let before = position.checked_sub(1).filter(|before| timeline.ends[device.index()][*before] == start)?;
            Some(Slot::new(device, before))
        });
        let gathered = timeline.gathered.get(&(slot.device, slot.position));
        let (reason, after) = match (before, input, gathered) {
            (Some(before), _, _) => (Reason::Device, Some(before)),
            (None, Some((arrival, _, from)), _) if arrival == start => {
                let is_near = devices.contains(&from.device);
                (if is_near { Reason::Input } else { Reason::Transfer }, Some(from))
            }
            (None, _, Some(after)) => (Reason::Weights, *after),
            (None, _, None) if start == Ticks::ZERO => (Reason::Nothing, None),
            (None, _, None) => (Reason::Copy, None),
        };
        let wait = Wait { reason, after, input: input.map(|(arrival, end, from)| (from.device, end, arrival)) };
        for (device, position) in order.places(schedule, *slot) {
            waits[device.index()][position..position + node.len()].fill(wait);
        }
    }
    waits
}
