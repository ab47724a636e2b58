//! Plan, refitted plan and run of each device above each other, as a trace for Perfetto.

use crate::trace::{Queue, SCHEMA, TaskArguments, Trace, task_name};
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Class;
use pipe_ir::task::TaskKind;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// One of the three, with the tasks that make it as long as it is, by device and position.
struct Version<'a> {
    queue: Queue,
    analysis: &'a Analysis,
    critical: BTreeSet<(DeviceId, usize)>,
}

/// Writes the trace of plan, refitted plan and run.
pub(crate) fn write(versions: [&Analysis; 3], out: &mut dyn Write) -> io::Result<()> {
    let analysis = versions[0];
    let devices = || (0..analysis.schedule.n_devices()).map(DeviceId::from_index);
    let queues = [Queue::Planned, Queue::Refitted, Queue::Measured];
    let versions = queues.into_iter().zip(versions).map(|(queue, analysis)| {
        let path = &analysis.critical_path.tasks;
        let critical = path.iter().map(|slot| (slot.device, slot.position as usize)).collect();
        Version { queue, analysis, critical }
    });
    let versions: Vec<Version<'_>> = versions.collect();
    let name = analysis.pipeline.as_ref().map_or(&analysis.schedule.name, |pipeline| &pipeline.name);
    let about = json!({"schema": SCHEMA, "what": "diff", "target": name, "devices": devices().len()});
    let names: Vec<String> = devices().map(|device| device.to_string()).collect();
    let tracks = devices().flat_map(|device| queues.map(|queue| (device, queue)));
    let mut trace = Trace::begin(out, &about, &names, tracks)?;
    for version in &versions {
        version.tasks(&mut trace)?;
        version.arrows(&mut trace)?;
    }
    trace.end()
}

impl Version<'_> {
    fn span(&self, device: DeviceId, position: usize) -> (u64, u64) {
        let (index, timeline) = (device.index(), &self.analysis.timeline);
        (timeline.starts[index][position].0, timeline.ends[index][position].0)
    }

    fn tasks(&self, trace: &mut Trace<'_>) -> io::Result<()> {
        let schedule = &self.analysis.schedule;
        for (device, order) in (0..).map(DeviceId).zip(&schedule.orders) {
            for (position, task) in order.iter().map(|one| one.task).enumerate() {
                let (stage, microbatch) = (task.stage.0, Some(task.microbatch.0));
                let critical = self.critical.contains(&(device, position));
                let arguments = TaskArguments { step: None, device: device.0, stage, microbatch, critical };
                let name = task_name(task.kind, stage, microbatch, schedule.slices.count());
                let category = task.kind.letters().to_owned() + if critical { ",critical" } else { "" };
                trace.slice((device, self.queue), &name, &category, self.span(device, position), &arguments)?;
            }
        }
        Ok(())
    }

    /// From each task to those of other devices that read what it makes.
    fn arrows(&self, trace: &mut Trace<'_>) -> io::Result<()> {
        let Analysis { schedule, order, .. } = self.analysis;
        for (device, own) in (0..).map(DeviceId).zip(&schedule.orders) {
            for (position, task) in own.iter().map(|one| one.task).enumerate() {
                let inputs = order.dependencies.inputs_beside_updates(task);
                for input in inputs.filter(|input| !schedule.devices_of(*input).contains(&device)) {
                    let from = schedule.device_of(input);
                    let class = if input.kind == TaskKind::Forward { Class::Activation } else { Class::Gradient };
                    let made = self.span(from, order.position(input));
                    let read = ((device, self.queue), self.span(device, position).0);
                    trace.arrow(class.word(), (from, self.queue), made, &[read])?;
                }
            }
        }
        Ok(())
    }
}
