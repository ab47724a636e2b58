//! Plan, refitted plan and run of each device above each other, as a trace for Perfetto.

use super::losses::Loss;
use super::measured::Measured;
use super::refit::Refit;
use crate::trace::{Queue, SCHEMA, TaskArguments, Trace, task_name};
use pipe_compiler::critical_path::critical_path;
use pipe_compiler::dependencies::Dependencies;
use pipe_compiler::judge::Judged;
use pipe_compiler::schedule::Costs;
use pipe_compiler::timeline::{Timeline, place};
use pipe_compiler::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Class;
use pipe_ir::task::{Task, TaskKind};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// One of the three, with the tasks that make it as long as it is.
struct Version {
    queue: Queue,
    timeline: Timeline,
    critical: BTreeSet<(DeviceId, Task)>,
}

/// Writes the trace. `path` is the critical path of the run.
pub(crate) fn write(
    judged: &Judged,
    (plan, refit): (&Costs, &Refit),
    (measured, path): (&Measured, &[Loss]),
    out: &mut dyn Write,
) -> io::Result<()> {
    let devices = || (0..judged.schedule.n_devices()).map(DeviceId::from_index);
    let versions =
        [placed(judged, Queue::Planned, plan), placed(judged, Queue::Refitted, &refit.costs), ran(measured, path)];
    let name = judged.pipeline.as_ref().map_or(&judged.schedule.name, |pipeline| &pipeline.name);
    let about = json!({"schema": SCHEMA, "what": "diff", "target": name, "devices": devices().len()});
    let names: Vec<String> = devices().map(|device| device.to_string()).collect();
    let tracks = devices().flat_map(|device| versions.iter().map(move |version| (device, version.queue)));
    let mut trace = Trace::begin(out, &about, &names, tracks)?;
    for version in &versions {
        version.tasks(judged, &mut trace)?;
        version.arrows(judged, &mut trace)?;
    }
    trace.end()
}

fn placed(judged: &Judged, queue: Queue, costs: &Costs) -> Version {
    let Judged { schedule, order, .. } = judged;
    let timeline = place(schedule, order, costs);
    let path = critical_path(schedule, order, costs, &timeline);
    let task = |device: DeviceId, position: u32| schedule.orders[device.index()][position as usize].task;
    let critical = path.tasks.iter().map(|slot| (slot.device, task(slot.device, slot.position))).collect();
    Version { queue, timeline, critical }
}

fn ran(measured: &Measured, path: &[Loss]) -> Version {
    let moments = |pick: fn(&(u64, u64)) -> u64| {
        measured.spans.iter().map(|spans| spans.iter().map(|span| Ticks(pick(span))).collect()).collect()
    };
    let timeline = Timeline { starts: moments(|span| span.0), ends: moments(|span| span.1), ..Timeline::default() };
    let critical = path.iter().map(|loss| (loss.device, loss.task)).collect();
    Version { queue: Queue::Measured, timeline, critical }
}

impl Version {
    fn span(&self, device: DeviceId, position: usize) -> (u64, u64) {
        let index = device.index();
        (self.timeline.starts[index][position].0, self.timeline.ends[index][position].0)
    }

    fn tasks(&self, judged: &Judged, trace: &mut Trace<'_>) -> io::Result<()> {
        let schedule = &judged.schedule;
        for (device, order) in (0..).map(DeviceId).zip(&schedule.orders) {
            for (position, task) in order.iter().map(|one| one.task).enumerate() {
                let (stage, microbatch) = (task.stage.0, Some(task.microbatch.0));
                let critical = self.critical.contains(&(device, task));
                let arguments = TaskArguments { step: None, device: device.0, stage, microbatch, critical };
                let name = task_name(task.kind, stage, microbatch, schedule.slices.count());
                let category = task.kind.letters().to_owned() + if critical { ",critical" } else { "" };
                trace.slice((device, self.queue), (&name, &category), self.span(device, position), &arguments)?;
            }
        }
        Ok(())
    }

    /// From each task to those of other devices that read what it makes.
    fn arrows(&self, judged: &Judged, trace: &mut Trace<'_>) -> io::Result<()> {
        let Judged { schedule, order, .. } = judged;
        let dependencies: &Dependencies = &order.dependencies;
        for (device, own) in (0..).map(DeviceId).zip(&schedule.orders) {
            for (position, task) in own.iter().map(|one| one.task).enumerate() {
                for input in dependencies.inputs(task).filter(|input| !schedule.devices_of(*input).contains(&device)) {
                    let from = schedule.device_of(input);
                    let class = if input.kind == TaskKind::Forward { Class::Activation } else { Class::Gradient };
                    let made = ((from, self.queue), self.span(from, order.position(input)));
                    trace.arrow(class.word(), made, &[((device, self.queue), self.span(device, position).0)])?;
                }
            }
        }
        Ok(())
    }
}
