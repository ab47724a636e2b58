//! Comparisons: what a profile predicts against steps that it was not made from.

use super::steps::{self, MeasuredSteps};
use crate::output::figures::{count, duration};
use crate::output::table::Table;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_runtime::StepReport;
use pipe_runtime::calibrate::median;
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use serde::Serialize;

/// The difference up to which a prediction counts as true, in percent.
const TOLERANCE: f64 = 5.0;

/// Medians over steps, in nanoseconds.
pub(crate) struct Measurement {
    /// By device: from the first start of the step to the end of its last task.
    ends: Vec<u64>,
    pub(crate) makespan: u64,
    wall: u64,
    /// The shortest and the longest makespan.
    range: (u64, u64),
    n_steps: usize,
}

impl Measurement {
    /// What some steps took, of devices or groups of them.
    pub(crate) fn of(program: &Program, steps: &[&StepReport]) -> Self {
        let is_task = |ran: &&MeasuredSteps| ran.task.kind != TaskKind::Update;
        let n_devices = program.devices.len() / program.members() as usize;
        let mut ends = vec![Vec::new(); n_devices];
        let mut makespans = Vec::new();
        for step in steps {
            let devices = steps::of_report(program, step);
            let start = devices.iter().filter_map(|own| own.first()).map(|ran| ran.start).min().unwrap_or_default();
            let last: Vec<u64> = devices
                .iter()
                .map(|own| own.iter().rfind(is_task).map_or(0, |ran| ran.end.saturating_sub(start)))
                .collect();
            makespans.push(last.iter().copied().max().unwrap_or_default());
            ends.iter_mut().zip(last).for_each(|(ends, end)| ends.push(end));
        }
        makespans.sort_unstable();
        let range = (makespans.first().copied().unwrap_or_default(), makespans.last().copied().unwrap_or_default());
        Self {
            ends: ends.into_iter().map(median).collect(),
            range,
            makespan: median(makespans),
            wall: median(steps.iter().map(|step| step.wall.0).collect()),
            n_steps: steps.len(),
        }
    }
}

/// Predicted against measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Comparison {
    /// Steps that were compared.
    steps: usize,
    /// The end of the last task of each device, from the first start.
    per_device: Vec<Figure>,
    /// From the first start to the end of the last task.
    makespan: Figure,
    /// The same before times were stretched.
    unfitted_makespan: Figure,
    /// The whole step with its updates, as the clock of the machine has it.
    step: Figure,
    /// The shortest and the longest makespan that was measured.
    makespan_range_ns: (u64, u64),
}

/// One figure both ways, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Figure {
    predicted_ns: u64,
    measured_ns: u64,
    /// By how much more was predicted than measured.
    difference_percent: f64,
}

impl Figure {
    fn new(predicted_ns: u64, measured_ns: u64) -> Self {
        let ratio = predicted_ns as f64 / measured_ns.max(1) as f64;
        Self { predicted_ns, measured_ns, difference_percent: (ratio - 1.0) * 100.0 }
    }
}

impl Comparison {
    /// Compares a timeline and when each device has done its updates, whose ticks are nanoseconds,
    /// with what was measured. `unfitted` is the makespan before times were stretched.
    pub(crate) fn new((timeline, updated): &(Timeline, Vec<Ticks>), unfitted: u64, measured: &Measurement) -> Self {
        let devices = measured.ends.iter().enumerate();
        let per_device = devices.map(|(device, end)| {
            let device = DeviceId::from_index(device);
            (device, Figure::new(timeline.last_end(device).0, *end))
        });
        let per_device: Vec<(DeviceId, Figure)> = per_device.collect();
        let makespan = timeline.makespan().0;
        let updated = updated.iter().map(|end| end.0).max();
        Self {
            steps: measured.n_steps,
            makespan: Figure::new(makespan, measured.makespan),
            unfitted_makespan: Figure::new(unfitted, measured.makespan),
            step: Figure::new(updated.unwrap_or_default().max(makespan), measured.wall),
            per_device: per_device.into_iter().map(|(_, figure)| figure).collect(),
            makespan_range_ns: measured.range,
        }
    }

    /// For people; `on` is what computed, and `members` the number of devices of each group, if there are groups.
    pub(crate) fn table(&self, ranks: usize, members: Option<u32>, on: &str) -> String {
        let time = |ns: u64| duration(ns as f64 / 1e6);
        let devices = self.per_device.iter().enumerate().map(|(device, figure)| (format!("d{device}"), *figure));
        let whole = [("makespan", self.makespan), ("unfitted", self.unfitted_makespan), ("step", self.step)];
        let rows = devices.chain(whole.map(|(name, figure)| (name.to_owned(), figure))).collect::<Vec<_>>();
        let table = Table::new(false)
            .left("end", 0, 10, |(name, _): &(String, Figure)| name.clone())
            .right("predicted", 2, 12, |(_, figure)| time(figure.predicted_ns))
            .right("measured", 2, 12, |(_, figure)| time(figure.measured_ns))
            .right("difference", 2, 10, |(_, figure)| format!("{:+.1}%", figure.difference_percent))
            .draw(&rows);
        let within = if self.makespan.difference_percent.abs() <= TOLERANCE { "within" } else { "not within" };
        let (low, high) = self.makespan_range_ns;
        format!(
            "{table}{within} {TOLERANCE}%: the median of {}, whose makespans go from {} to {}; {}{} on {on}\n",
            count(self.steps, "other step"),
            time(low),
            time(high),
            match members {
                None => count(self.per_device.len(), "device"),
                Some(members) => format!("{} of {members} devices", count(self.per_device.len(), "group")),
            },
            if ranks == 1 { String::new() } else { format!(" of {ranks} processes") },
        )
    }
}
