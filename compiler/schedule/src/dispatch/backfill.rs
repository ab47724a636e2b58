//! What nothing waits for, such as `W`, goes where devices wait anyway.
//!
//! The tasks that something waits for keep their order: the *frame*. Timed from its first task on,
//! a device knows when the next one of the frame can start. If that is later, it fills the pause,
//! and perhaps also begins what ends after the pause ([`Aim`]). Where memory is missing, it fills
//! before it goes on. (After the list schedules of arXiv 2401.10241, section 3.1.)
//!
//! It decides where fillers go as it times the frame, so it does not replay an order as
//! [`crate::dispatch::plan::Plan`] does. Both give the same times; a test compares them.

use super::Objective;
use super::job::{Job, Mention, Orders, SeriesId, TaskId, TaskSeries, Time};
use super::plan::Length;
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};
use std::collections::VecDeque;

/// How many lengths are aimed at where nobody knows what can be reached.
const AIMS: Time = 8;
/// No schedule is as long.
pub const NEVER: Time = Time::MAX / 4;

/// When a device that waits begins what ends after the pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Never.
    Fit,
    /// Where it would else be idle for longer than a schedule of that length allows.
    Length(Time),
    /// Where it would else be idle for longer than any device was so far, and only before its last
    /// series: what comes of that, few tasks wait for.
    Level,
}

/// Schedules with fillers of one job, one after the other, in the same memory.
#[derive(Clone, Debug)]
pub struct Fill<'a> {
    job: &'a Job,
    objective: Objective,
    /// By series: whether it fills.
    fills: IndexVec<SeriesId, bool>,
    /// By series: tasks that are done; and when each ended.
    done: IndexVec<SeriesId, u32>,
    ends: IndexVec<TaskId, Time>,
    devices: IndexVec<DeviceId, Device>,
    aim: Aim,
    /// The length above which no schedule is of use.
    limit: Time,
}

/// A device so far.
#[derive(Clone, Debug, Default)]
struct Device {
    /// Tasks of its frame that are done.
    place: usize,
    free: Time,
    first: Option<Time>,
    held: i64,
    /// How long it was idle, and how long all of its tasks take.
    idle: Time,
    work: Time,
    /// The last of its series that something waits for.
    last: Option<SeriesId>,
    /// Series that can fill, the oldest first.
    waiting: VecDeque<SeriesId>,
    order: Vec<Mention>,
}

/// So many of some equal parts of a time.
pub fn part_of(time: Time, parts: Time, of: Time) -> Time {
    Time::try_from(i128::from(time) * i128::from(parts) / i128::from(of)).unwrap_or(Time::MAX)
}

/// Whether nothing waits for a series, and it waits for nothing but its device once its inputs are there.
fn fills(job: &Job, own: &TaskSeries) -> bool {
    let is_here = |(need, latency): &(SeriesId, Time)| *latency == 0 && job.series[*need].devices == own.devices;
    own.feeds.is_empty()
        && own.takes <= 0
        && own.devices.len() == 1
        && own.needs.len() == 1
        && own.needs.iter().all(is_here)
}

impl<'a> Fill<'a> {
    /// None if nothing fills.
    pub fn new(job: &'a Job, objective: Objective) -> Option<Self> {
        let fills: IndexVec<_, _> = job.series.iter().map(|series| fills(job, series)).collect();
        fills.contains(&true).then(|| Self {
            job,
            objective,
            fills,
            done: job.series.map(|_| 0),
            ends: vec![0; job.n_tasks()].into(),
            devices: job.capacity.map(|_| Device::default()),
            aim: Aim::Fit,
            limit: 0,
        })
    }

    /// Whether nothing waits for a series.
    pub fn is_filler(&self, series: SeriesId) -> bool {
        self.fills[series]
    }

    /// The tasks of some orders that something waits for.
    pub fn frame(&self, orders: &Orders) -> Orders {
        let is_frame = |mention: &&Mention| !self.fills[self.job.series_of(**mention).0];
        let of_device = |order: &Vec<Mention>| order.iter().filter(is_frame).copied().collect();
        self.job.split(orders).iter().map(of_device).collect()
    }

    /// How long the schedule is with that frame and aim. `None` if it does not fit in the memory,
    /// or is longer than a limit.
    pub fn run(&mut self, frame: &Orders, aim: Aim, limit: Time) -> Option<Length> {
        (self.aim, self.limit) = (aim, limit);
        self.begin();
        let mut awake: Vec<DeviceId> = frame.ids().rev().collect();
        while let Some(device) = awake.pop() {
            while let Some(mention) = frame[device].get(self.devices[device].place).copied() {
                let series = self.job.series_of(mention).0;
                let Some(ready) = self.ready(series, frame) else { break };
                self.place(series, ready)?;
                let own = &self.job.series[series];
                let fed = own.feeds.iter().flat_map(|(next, _)| &self.job.series[*next].devices);
                awake.extend(
                    fed.chain(own.devices.iter().filter(|_| own.devices.len() > 1)).filter(|other| **other != device),
                );
            }
        }
        let is_done = self.devices.iter().zip(frame).all(|(device, order)| device.place == order.len());
        self.devices.ids().for_each(|device| while self.fill(device) {});
        is_done.then(|| self.length())
    }

    /// The orders of the last schedule.
    pub fn orders(&self) -> Orders {
        self.devices.iter().map(|device| device.order.clone()).collect()
    }

    /// The first of the devices that make the last schedule as long as it is.
    pub fn longest(&self) -> DeviceId {
        let each = self.devices.iter_ids().rev();
        each.max_by_key(|(_, device)| self.of_device(device)).map_or(DeviceId(0), |(id, _)| id)
    }

    /// The shortest of the schedules with a frame, for all aims; lengths are aimed at up to the one with [`Aim::Fit`].
    pub fn best(&mut self, frame: &Orders) -> Option<(Length, Orders)> {
        let least = self.job.work() * self.job.microbatches as Time;
        let mut best = (self.run(frame, Aim::Fit, NEVER)?, self.orders());
        let most = best.0.length - least;
        let lengths = (0..AIMS).map(|part| Aim::Length(least + part_of(most, part * part, AIMS * AIMS)));
        for aim in lengths.chain([Aim::Level]) {
            if let Some(length) = self.run(frame, aim, best.0.length).filter(|length| *length < best.0) {
                best = (length, self.orders());
            }
        }
        Some(best)
    }

    fn begin(&mut self) {
        let job = self.job;
        self.done.fill(0);
        for (device, all) in self.devices.iter_mut().zip(&job.on_device) {
            let work: Time = all.iter().map(|series| job.series[*series].duration).sum();
            device.waiting.clear();
            device.order.clear();
            *device = Device {
                work: work * job.microbatches as Time,
                last: all.iter().copied().filter(|series| !self.fills[*series]).max(),
                waiting: std::mem::take(&mut device.waiting),
                order: std::mem::take(&mut device.order),
                ..Device::default()
            };
        }
    }

    /// When all is there that the next task of a series needs, and it is next on all of its devices.
    fn ready(&self, series: SeriesId, frame: &Orders) -> Option<Time> {
        let (done, own) = (self.done[series], &self.job.series[series]);
        let next = Mention::Series(series);
        let is_next = |device: &DeviceId| frame[*device].get(self.devices[*device].place) == Some(&next);
        if !own.devices.iter().all(is_next) || !own.needs.iter().all(|(need, _)| self.done[*need] > done) {
            return None;
        }
        let free = own.devices.iter().map(|device| self.devices[*device].free).filter(|_| own.devices.len() > 1);
        let end = |need: SeriesId| self.ends[self.job.task(need, MicrobatchId(done))];
        let inputs = own.needs.iter().map(|(need, latency)| end(*need) + latency);
        Some(inputs.chain(free).max().unwrap_or(0))
    }

    /// Runs a task of the frame, after what fills the pause before it. `None` if there is too
    /// little memory, or its device gets too late.
    fn place(&mut self, series: SeriesId, ready: Time) -> Option<()> {
        let own = &self.job.series[series];
        for device in &own.devices {
            while self.devices[*device].held + own.takes > self.job.capacity[*device] {
                self.fill(*device).then_some(())?;
            }
            while self.wants_filling(*device, series, ready) && self.fill(*device) {}
        }
        let free = own.devices.iter().map(|device| self.devices[*device].free);
        let start = free.fold(ready, Ord::max);
        let end = start + own.duration;
        for index in &own.devices {
            let device = &mut self.devices[*index];
            device.idle += match (device.first, self.objective) {
                (None, Objective::LongestStage) => 0,
                _ => start - device.free,
            };
            device.first.get_or_insert(start);
            if device.idle > self.limit - device.work {
                return None;
            }
            device.place += 1;
            device.run(series, own.takes, end);
        }
        self.ends[self.job.task(series, MicrobatchId(self.done[series]))] = end;
        self.done[series] += 1;
        for (next, _) in own.feeds.iter().filter(|(next, _)| self.fills[*next]) {
            self.devices[own.devices[0]].waiting.push_back(*next);
        }
        Some(())
    }

    /// Whether a device should run what fills before a task that can start at a moment: it ends by
    /// then, or the pause is too long.
    fn wants_filling(&self, device: DeviceId, series: SeriesId, ready: Time) -> bool {
        let device = &self.devices[device];
        let ends = |series: &SeriesId| device.free + self.job.series[*series].duration <= ready;
        let idle = device.idle + ready - device.free;
        let is_too_long = match self.aim {
            Aim::Fit => false,
            Aim::Length(length) => idle > length - device.work,
            Aim::Level => device.last == Some(series) && self.devices.iter().all(|other| idle > other.idle),
        };
        device.free < ready && (is_too_long || device.waiting.front().is_some_and(ends))
    }

    /// Runs the oldest task that fills, if there is one.
    fn fill(&mut self, device: DeviceId) -> bool {
        let device = &mut self.devices[device];
        let Some(series) = device.waiting.pop_front() else { return false };
        let own = &self.job.series[series];
        device.run(series, own.takes, device.free + own.duration);
        true
    }

    fn length(&self) -> Length {
        let each = self.devices.iter().map(|device| self.of_device(device));
        each.fold(Length { length: 0, ends: 0 }, |all, one| Length {
            length: all.length.max(one),
            ends: all.ends + one,
        })
    }

    fn of_device(&self, device: &Device) -> Time {
        match self.objective {
            Objective::Makespan => device.free,
            Objective::LongestStage => device.free - device.first.unwrap_or(device.free),
        }
    }
}

impl Device {
    fn run(&mut self, series: SeriesId, takes: i64, end: Time) {
        self.free = end;
        self.held += takes;
        self.order.push(Mention::Series(series));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::plan::Plan;
    use crate::dispatch::round_robin::in_turns;
    use crate::dispatch::samples::{fusing, staged, v};

    #[test]
    fn what_is_filled_fits_and_takes_as_long_as_its_plan() {
        let line = staged(&[0, 1, 2, 3], 9, 5, [3, 4, 2], 1);
        for job in [line, v(4, 8, 6, [1, 1, 1], 0), v(3, 7, 5, [3, 2, 4], 1), fusing(3, 6, 4, [2, 3, 2, 4], 0)] {
            for objective in [Objective::Makespan, Objective::LongestStage] {
                let mut fill = Fill::new(&job, objective).expect("W fills");
                for spare in 0..3 {
                    let Some(frame) = in_turns(&job, &fill, spare) else { continue };
                    let least = job.work() * job.microbatches as Time;
                    let lengths = [0, least, least + 7, 2 * least].map(Aim::Length);
                    for aim in lengths.into_iter().chain([Aim::Fit, Aim::Level]) {
                        let Some(length) = fill.run(&frame, aim, NEVER) else { continue };
                        let orders = fill.orders();
                        assert!(job.fits(&orders) && fill.frame(&orders) == frame);
                        assert_eq!(Plan::new(&job, objective, &orders).expect("no cycle").1, length);
                        assert_eq!(fill.run(&frame, aim, length.length), Some(length));
                        assert_eq!(fill.run(&frame, aim, length.length - 1), None);
                    }
                }
            }
        }
    }

    #[test]
    fn a_pause_is_filled_unless_idle_time_is_left() {
        // On the second device, W has room only if B may wait for it.
        let job = staged(&[0, 1], 3, 3, [2, 2, 3], 0);
        let all = |order: [u32; 6]| order.map(|series| Mention::Series(SeriesId(series))).to_vec();
        let orders = vec![all([0, 0, 0, 4, 4, 4]), all([1, 2, 1, 2, 1, 2])].into();
        let mut fill = Fill::new(&job, Objective::LongestStage).expect("W fills");
        let last = |fill: &Fill<'_>| fill.orders()[DeviceId(1)].clone();
        let lazy = fill.run(&orders, Aim::Fit, NEVER).map(|length| (length, last(&fill)));
        let busy = fill.run(&orders, Aim::Length(21), NEVER).map(|length| (length, last(&fill)));
        assert_ne!(lazy, busy);
        assert!(fill.best(&orders).map(|(length, _)| length) <= lazy.map(|(length, _)| length));
    }
}
