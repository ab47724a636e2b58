//! Rule: no task is missing because a loop never runs.

use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::{BTreeMap, BTreeSet};

/// A loop that ran no turn on a device, because its count is below 0 or its end is below its start.
pub(in super::super) struct IdleLoop {
    /// Why it runs no turn.
    pub(in super::super) reason: String,
    /// What it would run.
    pub(in super::super) kinds: BTreeSet<TaskKind>,
}

/// Reports loops that run no turn on a device that lacks tasks of their kinds. The first device stands for the others.
pub(in super::super) fn check(schedule: &Schedule, loops: &BTreeMap<(DeviceId, Span), IdleLoop>) -> Diagnostics {
    let mut found: BTreeMap<Span, (Diagnostic, BTreeSet<DeviceId>)> = BTreeMap::new();
    for ((device, span), idle) in loops {
        if let Some((_, devices)) = found.get_mut(span) {
            devices.insert(*device);
        } else if let Some((kind, stage)) = lacking(schedule, *device, idle) {
            let (kind, reason) = (kind.letters(), &idle.reason);
            let message = format!(
                "the loop never runs on {device}, where `{kind}` of {} is missing: {reason}",
                schedule.stage_name(stage)
            );
            let error = Diagnostic::error(Code::OutOfRange, *span, "never runs", message);
            found.insert(*span, (error, BTreeSet::from([*device])));
        }
    }
    let told = found.into_values().map(|(error, devices)| match devices.len() - 1 {
        0 => error,
        1 => error.note("likewise on one more device"),
        more => error.note(format!("likewise on {more} more devices")),
    });
    told.collect()
}

/// A kind of task that the loop would run, and a stage of its device that has fewer of them than microbatches.
fn lacking(schedule: &Schedule, device: DeviceId, idle: &IdleLoop) -> Option<(TaskKind, StageId)> {
    let order = schedule.orders.get(device.index())?;
    let mut counts: BTreeMap<(TaskKind, StageId), usize> = BTreeMap::new();
    order.iter().for_each(|one| *counts.entry((one.task.kind, one.task.stage)).or_default() += 1);
    let count = |kind, stage| counts.get(&(kind, stage)).copied().unwrap_or(0);
    let stages = (0..schedule.n_stages()).map(StageId::from_index);
    let mut own = stages.filter(|stage| schedule.placement.is_home(*stage, device));
    own.find_map(|stage| {
        let is_here = |nth: &u32| schedule.placement.devices(stage, MicrobatchId(*nth)).binary_search(&device).is_ok();
        let wanted = (0..schedule.n_microbatches).filter(is_here).count();
        let both = count(TaskKind::Backward, stage);
        let frozen = &schedule.frozen;
        let lacks = |kind: &TaskKind| match kind {
            TaskKind::Forward => count(*kind, stage) < wanted,
            TaskKind::BackwardInput | TaskKind::Backward => {
                frozen.has_backward(stage) && both + count(TaskKind::BackwardInput, stage) < wanted
            }
            TaskKind::BackwardWeight => !frozen.is_frozen(stage) && both + count(*kind, stage) < wanted,
            TaskKind::Recompute | TaskKind::Update => false,
        };
        idle.kinds.iter().copied().find(lacks).map(|kind| (kind, stage))
    })
}
