//! Lanes in the report: what each device does on each of them, and how much of that compute hides.

use super::time;
use pipe_ir::ids::DeviceId;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use serde::Serialize;

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
    /// The lanes of a device that have tasks.
    pub fn all(schedule: &Schedule, timeline: &Timeline, device: DeviceId) -> Vec<Self> {
        let n_devices = schedule.n_devices();
        let queues = (1..).zip(schedule.parts.lanes());
        let queue = |lane: usize| DeviceId::from_index(device.index() + lane * n_devices);
        let with_tasks = queues.filter(|(lane, _)| !schedule.orders[queue(*lane).index()].is_empty());
        let of_lane = |(lane, name): (usize, &std::sync::Arc<str>)| Self {
            lane: name.to_string(),
            first_start: time(timeline.first_start(queue(lane))),
            last_end: time(timeline.last_end(queue(lane))),
            busy: time(timeline.busy(queue(lane))),
            hidden: time(both(timeline, device, queue(lane))),
        };
        with_tasks.map(of_lane).collect()
    }
}

/// How long two queues run tasks at the same time.
fn both(timeline: &Timeline, one: DeviceId, other: DeviceId) -> Ticks {
    let tasks = |queue: DeviceId| {
        let (starts, ends) = (&timeline.starts[queue.index()], &timeline.ends[queue.index()]);
        starts.iter().copied().zip(ends.iter().copied()).collect::<Vec<_>>()
    };
    let (ones, others) = (tasks(one), tasks(other));
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
