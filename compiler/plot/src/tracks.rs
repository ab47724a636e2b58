//! Tracks: what each device does, one mark for each of its tasks. Every picture starts from them.

use crate::shades::Shades;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::stuck::Stuck;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::Task;
use pipe_schedule::ratio::gcd;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::slices::Slices;
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;

/// One task on its track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// What is done; each slice of a microbatch counts as one.
    pub task: Task,
    /// Which of the device's stages, from 0, in the order of the model; of a part, its shade.
    pub nth_stage: usize,
    /// When it starts.
    pub start: Ticks,
    /// When it ends.
    pub end: Ticks,
    /// Whether it has the device for itself.
    pub share: Occupancy,
    /// Whether it occupies the next device as well.
    pub goes_on: bool,
    /// Whether it ever runs: not where the schedule is stuck before it.
    pub runs: bool,
}

/// What a task has of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupancy {
    /// All of it.
    Whole,
    /// A part, the first of two tasks that share it.
    First,
    /// A part, the second of them.
    Second,
}

/// What one device does, or one lane of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// Its name: `d1`, `d1 link`.
    pub name: String,
    /// The device.
    pub device: DeviceId,
    /// Whether it is a lane.
    pub is_lane: bool,
    /// In order.
    pub marks: Vec<Mark>,
    /// The stages that the device holds, in the order of the model.
    pub stages: Vec<StageId>,
    /// How many stages, or shades of parts, are told apart.
    pub n_shades: usize,
    /// In how many slices microbatches are cut.
    pub slices: Slices,
}

impl Track {
    /// Time in tasks that run.
    pub fn busy(&self) -> Ticks {
        let alone = self.marks.iter().filter(|mark| mark.runs && mark.share != Occupancy::Second);
        Ticks(alone.map(|mark| mark.end.0 - mark.start.0).sum())
    }

    /// What a task is drawn with: its microbatch, and where those are cut its slice after a point, `1.2`.
    pub fn number(&self, mark: &Mark) -> String {
        let at = mark.task.microbatch;
        let (microbatch, slice) = (self.slices.microbatch(at), self.slices.slice(at));
        if self.slices == Slices::ONE { microbatch.to_string() } else { format!("{microbatch}.{slice}") }
    }
}

/// The tracks of all devices. A task that occupies several stands on each of them.
pub fn tracks(analysis: &Analysis) -> Vec<Track> {
    of_timeline(&analysis.schedule, &analysis.timeline, None)
}

/// The tracks of a schedule that is stuck: what runs, and what is shown of the rest.
pub fn stuck_tracks(stuck: &Stuck) -> Vec<Track> {
    of_timeline(&stuck.schedule, &stuck.timeline, Some(&stuck.ran))
}

/// The orders of a schedule, in the order of their tracks: each device is followed by its lanes.
pub(super) fn rows(schedule: &Schedule) -> impl Iterator<Item = DeviceId> {
    let (n_devices, n_queues) = (schedule.n_devices(), schedule.n_queues());
    (0..n_devices).flat_map(move |device| (device..n_queues).step_by(n_devices)).map(DeviceId::from_index)
}

/// The tracks of a timeline. `ran` is how many tasks each device runs; `None` means all.
fn of_timeline(schedule: &Schedule, timeline: &Timeline, ran: Option<&[usize]>) -> Vec<Track> {
    // By device and lane: its stages, in the order of the model.
    let mut held: Vec<Vec<StageId>> = vec![Vec::new(); schedule.n_queues()];
    for stage in schedule.placement.stages() {
        schedule.placement.devices_of(stage).iter().for_each(|device| held[device.index()].push(stage));
    }
    let has_lanes = schedule.n_queues() > schedule.n_devices();
    let shades = Shades::of(schedule);
    let tracks = rows(schedule).map(|queue| {
        let index = queue.index();
        let (order, below) = (&schedule.orders[index], DeviceId::from_index(index + 1));
        let stages = std::mem::take(&mut held[index]);
        let tasks = order.iter().enumerate().zip(timeline.starts[index].iter().zip(&timeline.ends[index]));
        let ran = ran.map_or(usize::MAX, |ran| ran[index]);
        let is_below = |task| !has_lanes && schedule.devices_of(task).binary_search(&below).is_ok();
        let marks = tasks.map(|((position, scheduled), (start, end))| Mark {
            task: scheduled.task,
            nth_stage: match shades.of_parts.get(scheduled.task.stage.index()) {
                Some(shade) => *shade,
                None => stages.partition_point(|stage| *stage < scheduled.task.stage),
            },
            start: *start,
            end: *end,
            share: share(order, position),
            goes_on: position < ran && is_below(scheduled.task),
            runs: position < ran,
        });
        let marks = marks.collect();
        let lane = schedule.parts.lane_of(queue, schedule.n_devices());
        Track {
            name: schedule.device_name(queue),
            device: schedule.parts.device(queue, schedule.n_devices()),
            is_lane: index >= schedule.n_devices(),
            marks,
            n_shades: if schedule.parts.is_empty() { stages.len() } else { shades.on(&schedule.parts, lane) },
            stages,
            slices: schedule.slices,
        }
    });
    tracks.collect()
}

/// What a task has of its device.
fn share(order: &[ScheduledTask], position: usize) -> Occupancy {
    let is_second = position.checked_sub(1).is_some_and(|before| order[before].with_next);
    match (order[position].with_next, is_second) {
        (true, _) => Occupancy::First,
        (false, true) => Occupancy::Second,
        (false, false) => Occupancy::Whole,
    }
}

/// The largest duration that divides every start and end: one cell of a drawn track.
pub fn common_slot(tracks: &[Track]) -> Ticks {
    let moments = tracks.iter().flat_map(|track| track.marks.iter()).flat_map(|mark| [mark.start, mark.end]);
    Ticks(moments.fold(0, |common, moment| gcd(common, moment.0)).max(1))
}
