//! Traces: what really happened when, on each device.

use pipe_ir::ids::{ExecId, MicrobatchId};
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A moment or a duration of a run, in nanoseconds; moments count from the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub struct Nanos(pub u64);

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Nanos {
    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        match self.0 {
            0..1_000_000 => write!(f, "{:.1}us", seconds * 1e6),
            1_000_000..1_000_000_000 => write!(f, "{:.1}ms", seconds * 1e3),
            _ => write!(f, "{seconds:.2}s"),
        }
    }
}

/// One executable that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Which.
    pub exec: ExecId,
    /// On which microbatch; `m0` for updates.
    pub microbatch: MicrobatchId,
    /// When it started.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
}

/// What one device did in one step.
#[derive(Clone, Debug, Default)]
pub struct DeviceStep {
    /// Everything that ran, in order.
    pub ran: Vec<Ran>,
    /// Losses of the microbatches whose loss this device computed.
    pub losses: Vec<(MicrobatchId, f32)>,
    /// Instructions executed.
    pub instructions: u64,
}

/// Busy time and extent of the scheduled tasks of a step on one device; updates are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Sum of task durations.
    pub busy: Nanos,
    /// Start of the first task.
    pub first_start: Nanos,
    /// End of the last task.
    pub last_end: Nanos,
}

impl DeviceStep {
    /// Busy time and extent of the tasks that the schedule orders.
    #[must_use]
    pub fn extent(&self, program: &Program) -> Extent {
        let tasks = self.ran.iter().filter(|ran| program.exec(ran.exec).kind != TaskKind::Update);
        let mut extent: Option<Extent> = None;
        for ran in tasks {
            let extent = extent.get_or_insert(Extent { first_start: ran.start, ..Extent::default() });
            extent.busy.0 += ran.end.0 - ran.start.0;
            extent.last_end = ran.end;
        }
        extent.unwrap_or_default()
    }
}

/// What all devices did in one step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// By device.
    pub devices: Vec<DeviceStep>,
}

impl Step {
    /// Mean of the microbatches' losses; `None` where nothing was computed.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        let mut losses: Vec<_> = self.devices.iter().flat_map(|device| &device.losses).collect();
        losses.sort_by_key(|(microbatch, _)| *microbatch);
        let sum: f64 = losses.iter().map(|(_, loss)| f64::from(*loss)).sum();
        (!losses.is_empty()).then(|| sum / losses.len() as f64)
    }

    /// First start to last end of the scheduled tasks.
    #[must_use]
    pub fn makespan(&self, program: &Program) -> Nanos {
        let extents = || self.devices.iter().map(|device| device.extent(program));
        let start = extents().map(|extent| extent.first_start).min().unwrap_or_default();
        let end = extents().map(|extent| extent.last_end).max().unwrap_or_default();
        Nanos(end.0 - start.0)
    }

    /// Idle share of the busiest device within the makespan: 1 - work / makespan.
    #[must_use]
    pub fn bubble(&self, program: &Program) -> f64 {
        let work = self.devices.iter().map(|device| device.extent(program).busy).max().unwrap_or_default();
        let makespan = self.makespan(program);
        if makespan > Nanos(0) { 1.0 - work.seconds() / makespan.seconds() } else { 0.0 }
    }
}
