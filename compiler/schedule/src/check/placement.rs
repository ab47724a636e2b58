//! Rule: every stage lives on devices that exist, and its tasks run there. Two tasks that share a
//! device occupy no other.

use crate::placement::{Placement, names};
use crate::schedule::{Schedule, ScheduledTask};
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::Task;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// Compares every task's device with its stage's.
///
/// # Errors
/// A diagnostic per stage without a device, and per statement and device whose tasks run elsewhere.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let mut found = off_devices(&schedule.placement, schedule.n_queues(), schedule.placement_span);
    let mut strangers: BTreeMap<(u16, DeviceId, StageId), (Task, usize)> = BTreeMap::new();
    for (device, order) in schedule.orders.iter().enumerate() {
        let device = DeviceId::from_index(device);
        for scheduled in order {
            let task = scheduled.task;
            if schedule.placement.get(task.stage, task.microbatch).binary_search(&device).is_err() {
                strangers.entry((scheduled.origin, device, task.stage)).or_insert((task, 0)).1 += 1;
            }
        }
    }
    found.extend(strangers.iter().map(|(place, task)| stranger(schedule, *place, *task)));
    found.extend(wide_pairs(schedule));
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// A diagnostic per stage that is placed on a device that is not there.
fn off_devices(placement: &Placement, n_devices: usize, line: Span) -> Diagnostics {
    let off = placement.stages().filter_map(|stage| {
        let device = placement.devices_of(stage).iter().find(|device| device.index() >= n_devices)?;
        let message = format!("{stage} is placed on {device}, but there are {n_devices} devices");
        let label = format!("gives {} for {stage}", device.0);
        let help = format!("place stages on devices 0 to {}", n_devices.saturating_sub(1));
        Some(Diagnostic::error(Code::StageOffDevices, line, label, message).help(help))
    });
    off.collect()
}

/// A diagnostic per statement that lets two tasks share devices of which one occupies several.
fn wide_pairs(schedule: &Schedule) -> Diagnostics {
    if schedule.placement.spread_stage().is_none() {
        return Vec::new();
    }
    let mut found: BTreeMap<u16, Diagnostic> = BTreeMap::new();
    for pair in schedule.orders.iter().flat_map(|order| order.windows(2)).filter(|pair| pair[0].with_next) {
        let homes = |one: &&ScheduledTask| schedule.placement.get(one.task.stage, one.task.microbatch).len();
        let Some(wide) = pair.iter().find(|one| homes(one) > 1) else { continue };
        let span = schedule.origins[usize::from(wide.origin)];
        let (task, n_devices) = (schedule.task_name(wide.task), homes(&wide));
        let message = format!("`{task}` cannot share a device: it occupies {n_devices} at once");
        let error = Diagnostic::error(Code::WrongPair, span, format!("on {n_devices} devices"), message)
            .label(schedule.placement_span, format!("places {} on them", schedule.stage_name(wide.task.stage)))
            .help("write one task after the other, without `&`");
        found.entry(wide.origin).or_insert(error);
    }
    found.into_values().collect()
}

fn stranger(
    schedule: &Schedule,
    (origin, device, stage): (u16, DeviceId, StageId),
    (task, count): (Task, usize),
) -> Diagnostic {
    let span = schedule.origins[usize::from(origin)];
    let what = format!("`{}`", schedule.kind_name(task.kind, stage));
    let (own, name) = (schedule.device_name(device), schedule.stage_name(stage));
    let homes = schedule.placement.get(stage, task.microbatch);
    let Some(home) = homes.first() else {
        let message = format!("{what} is scheduled on {own}, but there are {} stages", schedule.n_stages());
        let help = format!("stages count from s0 to s{}", schedule.n_stages().saturating_sub(1));
        return Diagnostic::error(Code::WrongDevice, span, "no such stage", message).help(help);
    };
    let home = schedule.device_name(*home);
    if homes.len() > 1 {
        let message = format!("{what} is scheduled on {own}, but {name} lives on {}", names(homes));
        return Diagnostic::error(Code::WrongDevice, span, of_stage(count, &name), message)
            .label(schedule.placement_span, format!("places {name} on {} devices at once", homes.len()))
            .help(format!("leave {what} out of the order of {own}, or place {name} on {own} too"));
    }
    if let [_] = schedule.placement.devices_of(stage) {
        let message = format!("{what} is scheduled on {own}, but {name} lives on {home}");
        return Diagnostic::error(Code::WrongDevice, span, of_stage(count, &name), message)
            .label(schedule.placement_span, format!("places {name} on {home}"))
            .help(format!("move {what} to the order of {home}, or place {name} on {own}"));
    }
    let (task, microbatch) = (schedule.task_name(task), schedule.slices.name(task.microbatch));
    let message = format!("`{task}` is scheduled on {own}, but {microbatch} of {name} lives on {home}");
    let diagnostic = Diagnostic::error(Code::WrongDevice, span, of_stage(count, &name), message)
        .label(schedule.placement_span, format!("places {microbatch} of {name} on {home}"));
    if schedule.placement.is_home(stage, device) {
        diagnostic.help(format!("{what} without a microbatch takes the next one that lives on {own}"))
    } else {
        diagnostic.help(format!("{own} has no replica of {name}: move the task to the order of {home}"))
    }
}

/// `3 tasks of s1`.
fn of_stage(count: usize, name: &str) -> String {
    format!("{count} {} of {name}", if count == 1 { "task" } else { "tasks" })
}
