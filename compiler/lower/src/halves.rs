//! Halves of a backward that stand side by side: where that takes less memory, they are one run,
//! `BW`, and what `W` needs of `B` has no buffer.
//!
//! A `B` directly followed by the `W` of its microbatch may run with it where no other device can
//! notice: nothing is sent when `B` ends, no receive waits for `B` to have read the one before,
//! neither shares its device with another task, and nothing is waited for between the two. Schedule
//! and timeline keep both tasks. The run takes the time of both, unless costs say that `BW` takes
//! longer, where halves stay apart, and gives the same bits.
//!
//! It needs more scratch than either half, and scratch is there for the whole step. So a device
//! joins its halves only if its peak shrinks, for which the fullest moment has to lie inside such a
//! pair.
//!
//! Where a step is planned task by task, all halves stay apart: copies of what lives with hosts,
//! weights that are gathered for their tasks, and updates that stand between tasks.

use super::Options;
use super::transfers::Transfers;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::{Instruction, LifespanEvent};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_model::stage_set::{StageExecs, StageSet};
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::step_tasks::StepTask;
use pipe_schedule::timing::timeline::Timeline;

/// By device: the positions of `B`s that may run with their `W`.
pub(super) type Firsts = Vec<Vec<usize>>;

/// The pairs on devices whose peak may shrink if both halves are one run, by the program in which
/// all are apart; none where there are none.
pub(super) fn found(
    (schedule, timeline, set): (&Schedule, &Timeline, &StageSet),
    options: &Options,
    (apart, transfers): (&Program, &Transfers),
) -> Option<Firsts> {
    if schedule.window.is_some() || options.offload.any() || options.zero.parameters() {
        return None;
    }
    let mut firsts = side_by_side(schedule, timeline, set);
    for (device, own) in (0..).map(DeviceId).zip(&mut firsts) {
        let order = &schedule.orders[device.index()];
        let is_waited_for = |first: usize| {
            !transfers.sent_after(device, first).is_empty() || transfers.are_held_until(device, first + 1)
        };
        let is_apart = |first: usize| options.apart.get(order[first].task.stage.index()) == Some(&true);
        own.retain(|first| !is_apart(*first) && !is_waited_for(*first));
        if !is_fullest_inside(apart, &apart.devices[device.index()], own.iter().map(|first| order[*first].task)) {
            own.clear();
        }
    }
    has_some(&firsts).then_some(firsts)
}

/// Whether any device has pairs.
fn has_some(firsts: &Firsts) -> bool {
    firsts.iter().any(|own| !own.is_empty())
}

/// By device: the positions of every `B` whose `W` stands and starts right behind it, and reads
/// something that `B` kept for it.
fn side_by_side(schedule: &Schedule, timeline: &Timeline, set: &StageSet) -> Firsts {
    let keeps: Vec<bool> = set.stages.iter().map(|stage| keeps(set, stage)).collect();
    let row = |task: Task| schedule.slices.slice(task.microbatch) as usize * schedule.n_stages() + task.stage.index();
    let of_device = |(device, order): (usize, &Vec<ScheduledTask>)| {
        let is_first = |position: &usize| {
            let both = Task { kind: TaskKind::Backward, ..order[*position].task };
            // Neither a sum nor an update stands between the two.
            let between = order[*position].at..order[position + 1].at;
            let is_between = |one: &StepTask| between.contains(&one.at);
            let placed = schedule.step_tasks.of(DeviceId::from_index(device));
            let alone = &order[position.saturating_sub(1)..=position + 1];
            ScheduledTask::run_by(&order[*position..], both) == Some(2)
                && keeps.get(row(both)) == Some(&true)
                && alone.iter().all(|scheduled| !scheduled.with_next)
                && !placed.iter().any(is_between)
                && timeline.ends[device][*position] == timeline.starts[device][position + 1]
        };
        (0..order.len().saturating_sub(1)).filter(is_first).collect()
    };
    schedule.orders.iter().enumerate().map(of_device).collect()
}

/// Whether `W` of a stage reads what its `B` wrote, or what came for that and stays.
fn keeps(set: &StageSet, stage: &StageExecs) -> bool {
    let Some(weight) = stage.exec_of(TaskKind::BackwardWeight).filter(|_| stage.both.is_some()) else { return false };
    let mut read = set.execs[weight.index()].operands.iter().map(|operand| set.values[operand.value.index()].kind);
    read.any(|kind| matches!(kind, ValueKind::DeferredGradient | ValueKind::Gradient | ValueKind::CarriedGradient))
}

/// Whether a device reaches its peak only while it runs pairs that begin with these tasks: from the
/// run before each to its `W`.
fn is_fullest_inside(program: &Program, code: &DeviceProgram, firsts: impl Iterator<Item = Task>) -> bool {
    let mut firsts = firsts.peekable();
    let count = |live: Bytes, instruction: &Instruction| match instruction.lifespan() {
        Some(LifespanEvent::Begins(buffer)) => live + code.buffers[buffer.index()].bytes,
        Some(LifespanEvent::Ends(buffer)) => live - code.buffers[buffer.index()].bytes,
        None => live,
    };
    let mut live = code.setup.iter().fold(Bytes::ZERO, count);
    // The most since the last run, and whether that was the `B` of a pair.
    let (mut most, mut inside) = (live, false);
    for instruction in &code.step {
        live = count(live, instruction);
        most = most.max(live);
        let Instruction::Run { exec, microbatch, .. } = *instruction else { continue };
        let exec = program.exec(exec);
        let task = Task { kind: exec.kind, stage: exec.stage, microbatch };
        let begins = firsts.next_if_eq(&task).is_some();
        if !begins && !inside && most >= code.peak {
            return false;
        }
        (most, inside) = (Bytes::ZERO, begins);
    }
    most < code.peak
}

/// The schedule with `BW` in place of the tasks at these positions and behind them, and its times.
pub(super) fn joined(schedule: &Schedule, timeline: &Timeline, firsts: &Firsts) -> (Schedule, Timeline) {
    let mut own = (Schedule { orders: Vec::new(), ..schedule.clone() }, Timeline::default());
    for (device, firsts) in firsts.iter().enumerate() {
        let is_first = |position: usize| firsts.binary_search(&position).is_ok();
        let stays = |position: &usize| position.checked_sub(1).is_none_or(|before| !is_first(before));
        let positions: Vec<usize> = (0..schedule.orders[device].len()).filter(stays).collect();
        let task = |position: &usize| {
            let scheduled = schedule.orders[device][*position];
            let both = Task { kind: TaskKind::Backward, ..scheduled.task };
            ScheduledTask { task: if is_first(*position) { both } else { scheduled.task }, ..scheduled }
        };
        let end = |position: &usize| timeline.ends[device][position + usize::from(is_first(*position))];
        own.0.orders.push(positions.iter().map(task).collect());
        own.1.starts.push(positions.iter().map(|position| timeline.starts[device][*position]).collect());
        own.1.ends.push(positions.iter().map(end).collect());
    }
    own
}

/// The program in which the pairs of each device are joined whose peak shrinks; the one in which
/// all are apart where that is none, or where another device would then need more.
pub(super) fn least(apart: Program, firsts: &Firsts, write: impl Fn(&Firsts) -> Program) -> Program {
    let joined = write(firsts);
    let shrinks = |(before, after): (&DeviceProgram, &DeviceProgram)| after.peak < before.peak;
    let kept = firsts.iter().zip(apart.devices.iter().zip(&joined.devices));
    let kept: Firsts = kept.map(|(own, pair)| if shrinks(pair) { own.clone() } else { Vec::new() }).collect();
    if !has_some(&kept) {
        return apart;
    }
    let joined = if kept == *firsts { joined } else { write(&kept) };
    let grows =
        |(before, after): (&DeviceProgram, &DeviceProgram)| after.peak > before.peak || after.arena > before.arena;
    if apart.devices.iter().zip(&joined.devices).any(grows) { apart } else { joined }
}
