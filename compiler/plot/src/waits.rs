//! What the start of each task waited for last, by the rules by which the timeline was made; of a
//! measured one, how much later than that it came.

use super::drawn::Basis;
use super::{Moments, Reason};
use pipe_ir::ids::DeviceId;
use pipe_schedule::order::Position;
use pipe_schedule::units::Ticks;
use std::cmp::Reverse;

/// By device and position in its order.
pub(super) type Waits = Vec<Vec<Wait>>;

/// What one task waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// What came last.
    pub(super) reason: Reason,
    /// The task behind which it came.
    pub(super) after: Option<Position>,
    /// Where the last of its inputs was computed, when that had ended, and when it arrived.
    pub(super) input: Option<(DeviceId, Ticks, Ticks)>,
    /// How much later than everything it waited for it started, as measured.
    pub(super) late: Ticks,
}

/// All of them.
pub(super) fn all(basis: Basis<'_>, moments: Moments) -> Waits {
    let Basis { schedule, order, costs, timeline } = basis;
    let none = Wait { reason: Reason::Nothing, after: None, input: None, late: Ticks::ZERO };
    let mut waits: Waits = schedule.orders.iter().map(|order| vec![none; order.len()]).collect();
    let end = |slot: Position| timeline.end(slot);
    for slot in &order.sequence {
        let node = schedule.node(slot.device, slot.position as usize);
        let devices = schedule.devices_of(node[0].task);
        let arrivals = order.inputs(schedule, &costs.latency, *slot);
        let arrivals = arrivals.map(|(from, latency)| (end(from) + latency, end(from), from));
        let input = arrivals.max_by_key(|(arrival, end, _)| (*arrival, *end));
        let places = order.places(schedule, *slot);
        // Of several devices, the one that was free last.
        let before = places.filter_map(|(device, position)| Some(Position::new(device, position.checked_sub(1)?)));
        let before = before.min_by_key(|before| Reverse(end(*before)));
        let free = before.map_or(Ticks::ZERO, end);
        let arrived = input.map_or(Ticks::ZERO, |(arrival, ..)| arrival);
        let device = |queue: &DeviceId| schedule.parts.device(*queue, schedule.n_devices());
        let is_near = |from: Position| {
            let input = schedule.orders[from.device.index()][from.position as usize].task;
            let homes = schedule.devices_of(input);
            homes.iter().any(|home| devices.iter().any(|own| device(own) == device(home)))
        };
        let last = match (before, input) {
            (Some(before), _) if free >= arrived => Some((Reason::Device, before)),
            (_, Some((.., from))) => Some((if is_near(from) { Reason::Input } else { Reason::Transfer }, from)),
            (before, None) => before.map(|before| (Reason::Device, before)),
        };
        let input = input.map(|(arrival, end, from)| (from.device, end, arrival));
        for (device, position) in order.places(schedule, *slot) {
            let (starts, ends) = (&timeline.starts[device.index()], &timeline.ends[device.index()]);
            let late = starts[position] - free.max(arrived);
            let gathered = timeline.gathered.get(&(slot.device, slot.position));
            let cause = timeline.causes.get(&(slot.device, slot.position));
            let (reason, after) = match (last, gathered) {
                (Some((reason, after)), _) if moments == Moments::Measured || late == Ticks::ZERO => {
                    (reason, Some(after))
                }
                (_, None) if cause.is_some() => (Reason::Transfer, cause.copied()),
                (_, Some(after)) => (Reason::Weights, *after),
                (None, None) if moments == Moments::Measured || late == Ticks::ZERO => (Reason::Nothing, None),
                (_, None) => (Reason::Copy, None),
            };
            let late = if moments == Moments::Measured { late } else { Ticks::ZERO };
            waits[device.index()][position..position + node.len()].fill(Wait { reason, after, input, late });
            // Two tasks that were to share the device may have run one after the other.
            for second in (position + 1..position + node.len()).filter(|second| starts[*second] >= ends[second - 1]) {
                let after = Some(Position::new(device, second - 1));
                let late = starts[second] - ends[second - 1];
                waits[device.index()][second] = Wait { reason: Reason::Device, after, input: None, late };
            }
        }
    }
    waits
}
