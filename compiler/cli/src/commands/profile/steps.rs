//! Measured steps, from a run at hand or from a file: what ran when, and what that says about costs.

use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::task::{Task, TaskKind};
use pipe_runtime::StepReport;
use pipe_schedule::dependencies::Dependencies;
use std::collections::BTreeMap;

/// A task that ran; an update has the first microbatch of its step. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MeasuredSteps {
    pub(crate) task: Task,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl MeasuredSteps {
    /// How long it took.
    pub(crate) const fn time(&self) -> u64 {
        self.end - self.start
    }
}

/// What each device ran, in its order.
pub(crate) type Step = Vec<Vec<MeasuredSteps>>;

/// The tasks of a step, by device of the schedule. `program` has a list for each device that runs; the devices of a
/// tensor-parallel group are one device here.
pub(crate) fn of_report(program: &Program, step: &StepReport) -> Step {
    let ran = |span: &pipe_runtime::Span| {
        let exec = program.exec(span.exec);
        let task = Task { kind: exec.kind, stage: exec.stage, microbatch: span.microbatch };
        MeasuredSteps { task, start: span.start.0, end: span.end.0 }
    };
    // Sums of squares are neither tasks nor updates.
    let is_meant = |span: &&pipe_runtime::Span| !program.exec(span.exec).is_squares();
    let devices: Step =
        step.devices.iter().map(|device| device.spans.iter().filter(is_meant).map(ran).collect()).collect();
    devices.chunks(program.members() as usize).map(of_group).collect()
}

/// What the devices of a group ran, as if it were one device: the same tasks, at their mean times. Where they ran
/// different ones, what the first of them ran.
pub(crate) fn of_group(members: &[Vec<MeasuredSteps>]) -> Vec<MeasuredSteps> {
    let Some(first) = members.first() else { return Vec::new() };
    let are_alike = |other: &Vec<MeasuredSteps>| other.iter().map(|ran| ran.task).eq(first.iter().map(|ran| ran.task));
    if members.len() == 1 || !members.iter().all(are_alike) {
        return first.clone();
    }
    let mean = |place: usize, time: fn(&MeasuredSteps) -> u64| {
        members.iter().map(|own| time(&own[place])).sum::<u64>() / members.len() as u64
    };
    let places = first.iter().enumerate();
    let ran = places.map(|(place, ran)| MeasuredSteps {
        start: mean(place, |own| own.start),
        end: mean(place, |own| own.end),
        ..*ran
    });
    ran.collect()
}

/// What the tasks of each stage and kind took on average.
pub(crate) fn means(step: &Step) -> BTreeMap<(u32, TaskKind), u64> {
    let mut sums: BTreeMap<(u32, TaskKind), (u64, u64)> = BTreeMap::new();
    for ran in step.iter().flatten() {
        let (sum, count) = sums.entry((ran.task.stage.0, ran.task.kind)).or_default();
        (*sum, *count) = (*sum + ran.time(), *count + 1);
    }
    sums.into_iter().map(|(key, (sum, count))| (key, sum / count)).collect()
}

/// For each task that waited for nothing but an input from another device: from the end of what
/// makes the input to its own start.
pub(crate) fn waits(dependencies: &Dependencies, step: &Step) -> Vec<u64> {
    let mut ends: BTreeMap<Task, (DeviceId, u64)> = BTreeMap::new();
    let is_task = |ran: &&MeasuredSteps| ran.task.kind != TaskKind::Update;
    for (device, own) in (0..).map(DeviceId).zip(step) {
        ends.extend(own.iter().filter(is_task).map(|ran| (ran.task, (device, ran.end))));
    }
    let mut waits = Vec::new();
    for (device, own) in (0..).map(DeviceId).zip(step) {
        for pair in own.windows(2).filter(|pair| pair[1].task.kind != TaskKind::Update) {
            let inputs = dependencies.inputs_beside_updates(pair[1].task);
            let Some((maker, end)) = inputs.filter_map(|task| ends.get(&task)).max_by_key(|(_, end)| *end) else {
                continue;
            };
            if *maker != device && *end > pair[0].end {
                waits.push(pair[1].start.saturating_sub(*end));
            }
        }
    }
    waits
}

/// The operations of a kind of task of a stage, over all its executables.
pub(crate) fn operations(program: &Program, kind: TaskKind, stage: u32) -> u64 {
    let own = program.execs.iter().filter(|exec| exec.stage.0 == stage && exec.kind == kind);
    own.map(|exec| exec.flops).fold(0, u64::saturating_add)
}
