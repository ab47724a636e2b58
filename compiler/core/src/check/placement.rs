//! Rule: every stage lives on a device that exists, and its tasks run there.

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::schedule::Schedule;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::Task;
use std::collections::BTreeMap;

/// Compares every task's device with its stage's.
///
/// # Errors
/// A diagnostic per stage without a device, and per statement and device whose tasks run elsewhere.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let n_devices = schedule.n_devices();
    let mut found = Diagnostics::new();
    for stage in schedule.placement.stages() {
        let devices = schedule.placement.devices_of(stage);
        if let Some(device) = devices.iter().find(|device| device.index() >= n_devices) {
            let message = format!("{stage} is placed on {device}, but there are {n_devices} devices");
            let label = format!("gives {} for {stage}", device.0);
            let help = format!("place stages on devices 0 to {}", n_devices.saturating_sub(1));
            found.push(Diagnostic::error(Code::StageOffDevices, schedule.placement_span, label, message).help(help));
        }
    }
    let mut strangers: BTreeMap<(u16, DeviceId, StageId), (Task, usize)> = BTreeMap::new();
    for (device, order) in schedule.orders.iter().enumerate() {
        let device = DeviceId::from_index(device);
        for scheduled in order {
            let task = scheduled.task;
            if schedule.placement.get(task.stage, task.microbatch) != Some(device) {
                strangers.entry((scheduled.origin, device, task.stage)).or_insert((task, 0)).1 += 1;
            }
        }
    }
    found.extend(strangers.iter().map(|(place, task)| stranger(schedule, *place, *task)));
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn stranger(
    schedule: &Schedule,
    (origin, device, stage): (u16, DeviceId, StageId),
    (task, count): (Task, usize),
) -> Diagnostic {
    let span = schedule.origins[usize::from(origin)];
    let what = format!("`{} {stage}`", task.kind.letters());
    let Some(home) = schedule.placement.get(stage, task.microbatch) else {
        let message = format!("{what} is scheduled on {device}, but there are {} stages", schedule.n_stages());
        let help = format!("stages count from s0 to s{}", schedule.n_stages().saturating_sub(1));
        return Diagnostic::error(Code::WrongDevice, span, "no such stage", message).help(help);
    };
    if let [_] = schedule.placement.devices_of(stage) {
        let message = format!("{what} is scheduled on {device}, but {stage} lives on {home}");
        return Diagnostic::error(Code::WrongDevice, span, format!("{count} tasks of {stage}"), message)
            .label(schedule.placement_span, format!("places {stage} on {home}"))
            .help(format!("move {what} to the order of {home}, or place {stage} on {device}"));
    }
    let message = format!("`{task}` is scheduled on {device}, but {} of {stage} lives on {home}", task.microbatch);
    let diagnostic = Diagnostic::error(Code::WrongDevice, span, format!("{count} tasks of {stage}"), message)
        .label(schedule.placement_span, format!("places {} of {stage} on {home}", task.microbatch));
    if schedule.placement.is_home(stage, device) {
        diagnostic.help(format!("{what} without a microbatch takes the next one that lives on {device}"))
    } else {
        diagnostic.help(format!("{device} has no replica of {stage}: move the task to the order of {home}"))
    }
}
