//! Rule: a `gather` in an order says where its device joins some all-gather.
//!
//! One statement stands for many places: of several devices, or of the turns of a loop. It has an effect if one of
//! these places has. Without `zero 3` there are no all-gathers, and schedules serve both.

use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::{StepTask, StepTaskKind};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::collections::BTreeMap;

/// Weights of a stage on a device: how many of its tasks come before it asks for them, and before they leave.
struct Stay {
    stage: StageId,
    from: usize,
    until: usize,
    /// Whether a `gather` places it.
    is_placed: bool,
}

/// A warning for each `gather` without any effect.
pub fn unused_gathers(schedule: &Schedule, program: &Program) -> Diagnostics {
    let is_divided = program.values.iter().any(|value| value.share.is_some());
    if !is_divided || schedule.step_tasks.first(StepTaskKind::Gather).is_none() {
        return Diagnostics::new();
    }
    let mut stays: Vec<Vec<Stay>> = (0..schedule.n_devices()).map(|device| stays(program, device)).collect();
    // By statement: what the first of its places lacks, unless one of them lacks nothing.
    let mut found: BTreeMap<u16, Option<Diagnostic>> = BTreeMap::new();
    for (device, one) in schedule.step_tasks.all().filter(|(_, one)| one.kind == StepTaskKind::Gather) {
        let why = why(schedule, (device, one), &mut stays[device.index()]);
        let known = found.entry(one.origin).or_insert_with(|| why.clone());
        if why.is_none() {
            *known = None;
        }
    }
    found.into_values().flatten().collect()
}

/// All stays of weights on a device.
fn stays(program: &Program, device: usize) -> Vec<Stay> {
    let code = &program.devices[device];
    let mut shares = BTreeMap::new();
    for instruction in &code.setup {
        if let Instruction::Fill { buffer, value, .. } = *instruction {
            let whole = program.value(value).share.map(|share| program.value(share.whole));
            shares.extend(whole.map(|whole| (buffer, whole.stage)));
        }
    }
    let (mut all, mut here, mut tasks): (Vec<Stay>, BTreeMap<_, usize>, usize) = (Vec::new(), BTreeMap::new(), 0);
    for instruction in &code.step {
        match *instruction {
            Instruction::Run { exec, .. } => tasks += usize::from(program.exec(exec).kind != TaskKind::Update),
            Instruction::GatherStart { buffer, share, .. } => {
                let stage = shares.get(&share).copied();
                here.extend(stage.map(|_| (buffer, all.len())));
                all.extend(stage.map(|stage| Stay { stage, from: tasks, until: usize::MAX, is_placed: false }));
            }
            Instruction::Free { buffer } => {
                here.remove(&buffer).into_iter().for_each(|stay: usize| all[stay].until = tasks);
            }
            _ => {}
        }
    }
    all
}

/// Why a place has no effect, if it has none.
fn why(schedule: &Schedule, (device, one): (DeviceId, &StepTask), all: &mut [Stay]) -> Option<Diagnostic> {
    let place = schedule.tasks_before(device, one);
    let begins = |stay: &&mut Stay| stay.stage == one.stage && stay.from == place && !stay.is_placed;
    if let Some(stay) = all.iter_mut().find(begins) {
        stay.is_placed = true;
        return None;
    }
    let own = || all.iter().filter(|stay| stay.stage == one.stage);
    let order = &schedule.orders[device.index()];
    let reads = |position: usize| order.get(position).is_some_and(|task| task.task.stage == one.stage);
    // Right behind the last of several tasks of the stage, it lets the weights stay.
    let is_last = !reads(place) && place.checked_sub(1).is_some_and(reads);
    let is_here = |stay: &Stay| stay.from <= place && place < stay.until;
    if is_last && own().any(is_here) {
        return None;
    }
    let stage = schedule.parts.stage_of(one.stage);
    let nothing = |reason: String| ("nothing to gather", reason, "leave it out");
    let (label, reason, help) = if own().any(is_here) {
        let help = "let it stand where the weights are not there, or leave it out";
        ("here already", format!("weights of {stage} are on {device}, or on their way to it"), help)
    } else if own().any(|stay| stay.from > place) {
        let help = "let all devices with the same stages gather in the same order";
        ("too early", "other collectives come before that all-gather".to_owned(), help)
    } else if own().next().is_some() {
        let help = "let it stand before a task that reads them, or leave it out";
        ("too late", format!("no later task of {device} reads weights of {stage}"), help)
    } else if schedule.frozen.is_frozen(one.stage) {
        nothing(format!("{stage} is frozen, and each of its devices has all weights"))
    } else if schedule.placement.devices_of(one.stage).len() == 1 {
        nothing(format!("all weights of {stage} are on {device}"))
    } else {
        nothing(format!("no all-gather is of weights of {stage} alone"))
    };
    let message = format!("`{}` of {device} has no effect: {reason}", schedule.step_task_name(one));
    let span = schedule.origins[usize::from(one.origin)];
    Some(Diagnostic::warning(Code::UnusedGather, span, label, message).help(help))
}
