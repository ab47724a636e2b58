//! What recomputation costs: which stages run their forward once more, and how much of a device's time that takes.

use super::time;
use crate::analyze::Analysis;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::policy::recompute::recomputing;
use pipe_schedule::units::Ticks;
use serde::Serialize;

/// The recomputation of a step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecomputeReport {
    /// The stages that recompute, ascending.
    pub stages: Vec<u32>,
    /// The device that spends most time on it.
    pub device: u32,
    /// How much that is.
    pub time: f64,
    /// Of the time that this device is busy.
    pub busy: f64,
}

impl RecomputeReport {
    /// None where no stage recomputes.
    pub fn new(analysis: &Analysis) -> Option<Self> {
        let rows = (0..).map(StageId::from_index).zip(recomputing(&analysis.schedule));
        let stages = rows.filter_map(|(row, own)| own.then_some(analysis.schedule.parts.stage_of(row).0));
        let mut stages: Vec<u32> = stages.collect();
        stages.dedup();
        let spent = |device: DeviceId| {
            let tasks = analysis.schedule.orders[device.index()].iter().map(|scheduled| scheduled.task);
            let again = tasks.filter(|task| task.kind == TaskKind::Recompute);
            again.fold(Ticks::ZERO, |sum, task| sum + analysis.costs.of_task(task))
        };
        let devices = (0..analysis.schedule.n_devices()).map(DeviceId::from_index);
        // Of several that spend as much, the first.
        let (most, device) = devices.map(|device| (spent(device), device)).rev().max_by_key(|(spent, _)| *spent)?;
        let busy = analysis.timeline.busy(device);
        (!stages.is_empty()).then(|| Self { stages, device: device.0, time: time(most), busy: time(busy) })
    }
}
