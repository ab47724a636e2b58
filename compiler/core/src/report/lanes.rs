//! Lanes in the report: what each device does on each of them, and how much of that compute hides.

use super::time;
use pipe_ir::ids::DeviceId;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lane of a device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LaneReport {
    /// Its name.
    pub lane: String,
    /// When its first task starts.
    pub first_start: f64,
    /// When its last task ends.
    pub last_end: f64,
    /// Time in tasks.
    pub busy: f64,
    /// Of that, the time in which the device also computes.
    pub hidden: f64,
}

impl LaneReport {
    /// The lanes of a device that carry something.
    pub fn all(schedule: &Schedule, timeline: &Timeline, carried: &Carriage, device: DeviceId) -> Vec<Self> {
        let n_devices = schedule.n_devices();
        let compute = spans(timeline, device);
        let of_parts = schedule.parts.lanes().iter().enumerate();
        let mut lanes: Vec<(usize, &Arc<str>)> = of_parts.chain(schedule.carried.lanes()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let of_lane = |(lane, name): (usize, &Arc<str>)| {
            let queue = DeviceId::from_index(device.index() + (lane + 1) * n_devices);
            let mut own = if queue.index() < schedule.n_queues() { spans(timeline, queue) } else { Vec::new() };
            own.extend(carried.get(&(device, lane)).into_iter().flatten());
            own.sort_unstable();
            let ((first, _), last) = (*own.first()?, own.iter().map(|(_, end)| *end).max()?);
            Some(Self {
                lane: name.to_string(),
                first_start: time(first),
                last_end: time(last),
                busy: time(own.iter().fold(Ticks::ZERO, |sum, (start, end)| sum + (*end - *start))),
                hidden: time(both(&compute, &own)),
            })
        };
        lanes.into_iter().filter_map(of_lane).collect()
    }
}

/// By device and lane: when that carries something beside parts.
pub type Carriage = BTreeMap<(DeviceId, usize), Vec<(Ticks, Ticks)>>;

/// What lanes carry beside parts.
pub fn carriage(timeline: &Timeline) -> Carriage {
    let mut all = Carriage::new();
    for part in &timeline.collectives {
        let own = part.lane.map(|lane| all.entry((part.device, lane)).or_default());
        own.into_iter().for_each(|own| own.push((part.start, part.end)));
    }
    all
}

/// When a queue runs tasks.
fn spans(timeline: &Timeline, queue: DeviceId) -> Vec<(Ticks, Ticks)> {
    let (starts, ends) = (&timeline.starts[queue.index()], &timeline.ends[queue.index()]);
    starts.iter().copied().zip(ends.iter().copied()).collect()
}

/// How long two queues are busy at the same time.
fn both(ones: &[(Ticks, Ticks)], others: &[(Ticks, Ticks)]) -> Ticks {
    let (mut left, mut right, mut sum) = (0, 0, Ticks::ZERO);
    while let (Some((start, end)), Some((begin, finish))) = (ones.get(left), others.get(right)) {
        sum += *end.min(finish) - *start.max(begin).min(end.min(finish));
        if end < finish {
            left += 1;
        } else {
            right += 1;
        }
    }
    sum
}
