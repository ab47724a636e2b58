//! Where the time of a device goes that it spends in no task: the parts add up to makespan - busy, to the tick.

use super::waits::Waits;
use super::{Cause, Gap, Idle, Reason, TickScale};
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_schedule::units::Ticks;
use std::collections::BTreeMap;

/// The idle time of a device or lane, cut where its cause changes.
///
/// Before a task, a device waits while another one computes what the task reads, then while that is
/// on its way, then for the rest: another device that the task occupies, weights, or copies. What
/// was measured may be late even then.
pub(super) fn gaps(
    analysis: &Analysis,
    (device, places): (DeviceId, &[u32]),
    waits: &Waits,
    scale: &TickScale,
) -> Vec<Gap> {
    let timeline = &analysis.timeline;
    let (starts, ends) = (&timeline.starts[device.index()], &timeline.ends[device.index()]);
    let mut gaps: Vec<Gap> = Vec::new();
    let mut add = |cause: Cause, other: Option<DeviceId>, from: Ticks, to: Ticks| {
        if to > from {
            let (start, end) = (scale.ticks(from), scale.ticks(to));
            let place = |queue: DeviceId| places[queue.index()];
            gaps.push(Gap { device: place(device), cause, other: other.map(place), start, end });
        }
    };
    let mut free: Option<Ticks> = None;
    for ((start, end), wait) in starts.iter().zip(ends).zip(&waits[device.index()]) {
        match free {
            None => add(Cause::WarmUp, None, Ticks::ZERO, *start),
            // The second of two tasks that share the device starts with the first.
            Some(free) if free < *start => {
                let (from, computed, arrived) = wait.input.unwrap_or((device, free, free));
                let possible = (*start - wait.late).max(free);
                let computed = computed.clamp(free, possible);
                let arrived = arrived.clamp(computed, possible);
                add(Cause::Waiting, Some(from), free, computed);
                add(Cause::Communication, None, computed, arrived);
                let (cause, other) = match wait.reason {
                    Reason::Weights => (Cause::Weights, None),
                    Reason::Copy => (Cause::Copies, None),
                    Reason::Nothing | Reason::Device | Reason::Input | Reason::Transfer => {
                        (Cause::Waiting, wait.after.map(|after| after.device))
                    }
                };
                add(cause, other, arrived, possible);
                add(Cause::Late, None, possible, *start);
            }
            Some(_) => {}
        }
        free = Some(*end);
    }
    let last = timeline.ends.iter().filter_map(|ends| ends.last().copied()).max().unwrap_or_default();
    add(Cause::CoolDown, None, free.unwrap_or_default(), last);
    add(Cause::Closing, None, last, timeline.makespan());
    gaps
}

/// What some of them come to, cause by cause.
pub(super) fn sums(gaps: &[Gap]) -> Vec<Idle> {
    let mut sums: BTreeMap<(Cause, Option<u32>), u64> = BTreeMap::new();
    for gap in gaps {
        *sums.entry((gap.cause, gap.other)).or_default() += gap.end - gap.start;
    }
    sums.into_iter().map(|((cause, device), time)| Idle { cause, device, time }).collect()
}
