//! Rule: every stage lives on a device that exists, and its tasks run there.

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::schedule::Schedule;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use std::collections::BTreeMap;

/// Compares every task's device with its stage's.
///
/// # Errors
/// A diagnostic per stage without a device, and per statement and device whose tasks run elsewhere.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let n_devices = schedule.n_devices();
    let mut found = Diagnostics::new();
    for (stage, device) in schedule.placement.iter().enumerate() {
        if device.index() >= n_devices {
            let stage = StageId::from_index(stage);
            let message = format!("{stage} is placed on {device}, but there are {n_devices} devices");
            let label = format!("gives {} for {stage}", device.0);
            let help = format!("place stages on devices 0 to {}", n_devices.saturating_sub(1));
            found.push(Diagnostic::error(Code::StageOffDevices, schedule.placement_span, label, message).help(help));
        }
    }
    let mut strangers: BTreeMap<(u16, DeviceId, StageId), (TaskKind, usize)> = BTreeMap::new();
    for (device, order) in schedule.orders.iter().enumerate() {
        let device = DeviceId::from_index(device);
        for scheduled in order {
            let stage = scheduled.task.stage;
            if schedule.placement.get(stage.index()) != Some(&device) {
                strangers.entry((scheduled.origin, device, stage)).or_insert((scheduled.task.kind, 0)).1 += 1;
            }
        }
    }
    found.extend(strangers.iter().map(|(place, task)| stranger(schedule, *place, *task)));
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn stranger(
    schedule: &Schedule,
    (origin, device, stage): (u16, DeviceId, StageId),
    (kind, count): (TaskKind, usize),
) -> Diagnostic {
    let span = schedule.origins[usize::from(origin)];
    let what = format!("`{} {stage}`", kind.letters());
    let Some(home) = schedule.placement.get(stage.index()) else {
        let message = format!("{what} is scheduled on {device}, but there are {} stages", schedule.n_stages());
        let help = format!("stages count from s0 to s{}", schedule.n_stages().saturating_sub(1));
        return Diagnostic::error(Code::WrongDevice, span, "no such stage", message).help(help);
    };
    let message = format!("{what} is scheduled on {device}, but {stage} lives on {home}");
    Diagnostic::error(Code::WrongDevice, span, format!("{count} tasks of {stage}"), message)
        .label(schedule.placement_span, format!("places {stage} on {home}"))
        .help(format!("move {what} to the order of {home}, or place {stage} on {device}"))
}
