//! Pictures of a timeline. Every form starts from the same lanes.

pub mod golden;
pub mod svg;
pub mod terminal;

use pipe_compiler::judge::Judged;
use pipe_compiler::schedule::ScheduledTask;
use pipe_compiler::slices::Slices;
use pipe_compiler::units::Ticks;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;

/// One task on its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// What is done.
    pub kind: TaskKind,
    /// Which of the device's stages, from 0, in the order of the model.
    pub nth_stage: usize,
    /// On which microbatch, each slice counted as one.
    pub microbatch: MicrobatchId,
    /// When it starts.
    pub start: Ticks,
    /// When it ends.
    pub end: Ticks,
    /// Whether it has the device for itself.
    pub share: Share,
    /// Whether it occupies the next device as well.
    pub goes_on: bool,
}

/// What a task has of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// All of it.
    Whole,
    /// A part, the first of two tasks that share it.
    First,
    /// A part, the second of them.
    Second,
}

/// What one device does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// In order.
    pub marks: Vec<Mark>,
    /// How many stages the device holds.
    pub n_stages: usize,
    /// In how many slices microbatches are cut.
    pub slices: Slices,
}

impl Lane {
    /// What a task is drawn with: its microbatch, and where those are cut its slice after a point, `1.2`.
    #[must_use]
    pub fn number(&self, mark: &Mark) -> String {
        let (microbatch, slice) = (self.slices.microbatch(mark.microbatch), self.slices.slice(mark.microbatch));
        if self.slices == Slices::ONE { microbatch.to_string() } else { format!("{microbatch}.{slice}") }
    }
}

/// The lanes of all devices. A task that occupies several stands on each of them.
#[must_use]
pub fn lanes(judged: &Judged) -> Vec<Lane> {
    let schedule = &judged.schedule;
    // By device: its stages, in the order of the model.
    let mut held: Vec<Vec<StageId>> = vec![Vec::new(); schedule.n_devices()];
    for stage in schedule.placement.stages() {
        schedule.placement.devices_of(stage).iter().for_each(|device| held[device.index()].push(stage));
    }
    let times = judged.timeline.starts.iter().zip(&judged.timeline.ends);
    let rows = (1..).map(DeviceId::from_index).zip(&schedule.orders);
    let lanes = rows.zip(times).zip(held).map(|(((below, order), (starts, ends)), stages)| {
        let tasks = order.iter().enumerate().zip(starts.iter().zip(ends));
        let marks = tasks.map(|((position, scheduled), (start, end))| Mark {
            kind: scheduled.task.kind,
            nth_stage: stages.partition_point(|stage| *stage < scheduled.task.stage),
            microbatch: scheduled.task.microbatch,
            start: *start,
            end: *end,
            share: share(order, position),
            goes_on: schedule.devices_of(scheduled.task).binary_search(&below).is_ok(),
        });
        Lane { marks: marks.collect(), n_stages: stages.len(), slices: schedule.slices }
    });
    lanes.collect()
}

/// What a task has of its device.
fn share(order: &[ScheduledTask], position: usize) -> Share {
    let is_second = position.checked_sub(1).is_some_and(|before| order[before].with_next);
    match (order[position].with_next, is_second) {
        (true, _) => Share::First,
        (false, true) => Share::Second,
        (false, false) => Share::Whole,
    }
}

/// The largest duration that divides every start and end: one cell of a drawn lane.
#[must_use]
pub fn common_slot(lanes: &[Lane]) -> Ticks {
    let moments = lanes.iter().flat_map(|lane| lane.marks.iter()).flat_map(|mark| [mark.start.0, mark.end.0]);
    Ticks(moments.fold(0, greatest_common_divisor).max(1))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The one letter that stands for a kind in pictures: both halves of a fused backward are a `B`.
#[must_use]
pub fn letter(kind: TaskKind) -> char {
    match kind {
        TaskKind::Forward => 'F',
        TaskKind::BackwardInput | TaskKind::Backward => 'B',
        TaskKind::BackwardWeight => 'W',
        TaskKind::Recompute => 'R',
        TaskKind::Update => 'U',
    }
}
