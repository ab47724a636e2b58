//! Rules about what is run: every microbatch goes through every stage exactly once, on one device. A stage lives on
//! several devices where it is replicated; each of them then updates its weights.

use super::orders::Holders;
use super::report::Report;
use super::tables::pieces;
use super::{Place, devices};
use crate::ids::{DeviceId, ExecId, MicrobatchId, StageId};
use crate::instruction::Instruction;
use crate::program::{Exec, Program};
use crate::task::TaskKind;
use crate::value::ValueKind;
use std::collections::{BTreeMap, BTreeSet};

const N_KINDS: usize = TaskKind::ALL.len();

/// One stage as it was found so far.
#[derive(Clone, Default)]
struct Stage {
    /// On how many devices its weights are.
    homes: u32,
    /// How often its updates run in a step, over all of these: each of the whole weights or of a
    /// chunk on every one, each of a share on one.
    updates: u32,
    /// Runs so far, by kind.
    runs: [u32; N_KINDS],
    /// The device whose runs are looked at.
    device: Option<DeviceId>,
    /// The step whose weight gradients are added up on it, and how many there are of it.
    step: u32,
    gradients: u32,
    /// Executables, by kind.
    execs: [Option<u32>; N_KINDS],
    /// Whether it has a forward that `R` repeats and another one that it does not.
    repeats: bool,
    /// Runs so far of the forward that `R` repeats.
    repeated: u32,
}

impl Stage {
    fn of(&self, kind: TaskKind) -> u32 {
        self.runs[kind.index()]
    }
}

/// Checks the whole program.
pub(super) fn check(program: &Program, holders: &Holders, report: &mut Report) {
    let numbers = stages(program);
    let slot: Vec<usize> = program.execs.iter().map(|exec| numbers[&exec.stage]).collect();
    let mut stages = vec![Stage::default(); numbers.len()];
    for (index, exec) in program.execs.iter().enumerate() {
        let stage = &mut stages[slot[index]];
        if exec.is_squares() {
            continue;
        }
        stage.execs[exec.kind.index()] = Some(u32::try_from(index).unwrap_or(u32::MAX));
        stage.repeats |= exec.is_repeated;
        if exec.kind == TaskKind::Update {
            stage.homes = homes(program, holders, exec);
            let runs = if exec.chunk.is_some_and(|chunk| chunk.group.is_some()) { 1 } else { stage.homes };
            stage.updates = stage.updates.saturating_add(runs);
        }
    }
    let mut sound = true;
    for (device, code) in devices(program) {
        let shares = shares(program, &code.step, &slot, &stages);
        let mut open = None;
        for (index, instruction) in code.step.iter().enumerate() {
            let Instruction::Run { exec, microbatch, .. } = instruction else { continue };
            let (row, number) = (program.exec(*exec), slot[exec.index()]);
            let kind = row.kind;
            if let Err(message) = in_order(row, *microbatch, &mut open) {
                report.step(device, index, message);
                sound = false;
            }
            if !begins(row) {
                continue;
            }
            let stage = &mut stages[number];
            if stage.device.replace(device) != Some(device) {
                (stage.step, stage.gradients) = (0, 0);
            }
            stage.runs[kind.index()] = stage.of(kind).saturating_add(1);
            stage.repeated = stage.repeated.saturating_add(row.is_repeated.into());
            let all = if stage.homes > 1 {
                shares.get(&(number, program.step_of(*microbatch))).copied().unwrap_or(0)
            } else {
                program.microbatches_of_step()
            };
            if let Err(message) = of_step(program, stage, row, *microbatch, all) {
                report.step(device, index, message);
                sound = false;
            }
        }
    }
    if twice(program, &slot, &stages, report) && sound {
        for stage in &stages {
            missing(program, stage, report);
        }
    }
}

/// Whether an executable is a task, or its first piece: that one counts. What adds up squares is none.
fn begins(exec: &Exec) -> bool {
    !exec.is_squares() && exec.piece.is_none_or(|piece| piece.number == 0)
}

/// The pieces of a task follow each other on a device, with no other run between them. `open` is the task whose pieces
/// have not all run, its microbatch, and the next piece.
fn in_order(
    exec: &Exec,
    microbatch: MicrobatchId,
    open: &mut Option<(pieces::Task, MicrobatchId, u32)>,
) -> Result<(), String> {
    let own = exec.piece.map(|piece| (pieces::task(exec), microbatch, piece.number));
    let follows = match (*open, own) {
        (None, None) => true,
        (None, Some((.., number))) => number == 0,
        (Some(expected), found) => found == Some(expected),
    };
    let next = exec.piece.filter(|piece| piece.number + 1 < piece.count);
    *open = next.map(|piece| (pieces::task(exec), microbatch, piece.number + 1));
    if follows { Ok(()) } else { Err("runs between, or before, other pieces of a task".to_owned()) }
}

/// By stage that is replicated, and step: the weight gradients that this device computes.
fn shares(program: &Program, step: &[Instruction], slot: &[usize], stages: &[Stage]) -> BTreeMap<(usize, u32), u32> {
    let mut shares: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for instruction in step {
        let Instruction::Run { exec, microbatch, .. } = instruction else { continue };
        let kind = program.exec(*exec).kind;
        let adds = matches!(kind, TaskKind::BackwardWeight | TaskKind::Backward) && begins(program.exec(*exec));
        if adds && stages[slot[exec.index()]].homes > 1 {
            *shares.entry((slot[exec.index()], program.step_of(*microbatch))).or_default() += 1;
        }
    }
    shares
}

/// On how many devices an update runs: all that hold its weights.
fn homes(program: &Program, holders: &Holders, exec: &Exec) -> u32 {
    let values = exec.operands.iter().map(|operand| operand.value);
    let is_shared = |kind: ValueKind| matches!(kind, ValueKind::Scratch | ValueKind::GradientNorm);
    let kept = values.filter(|value| !is_shared(program.value(*value).kind));
    let most = kept.map(|value| holders.of_value(value).len()).max().unwrap_or(0).max(1);
    u32::try_from(most).unwrap_or(u32::MAX)
}

fn stages(program: &Program) -> BTreeMap<StageId, usize> {
    let mut numbers = BTreeMap::new();
    for exec in &program.execs {
        let next = numbers.len();
        numbers.entry(exec.stage).or_insert(next);
    }
    numbers
}

/// Weight gradients are added up for one step at a time, and an update follows all those of its step.
/// `all` is how many those are on this device.
fn of_step(
    program: &Program,
    stage: &mut Stage,
    exec: &Exec,
    microbatch: MicrobatchId,
    all: u32,
) -> Result<(), String> {
    let kind = exec.kind;
    let step = program.step_of(microbatch);
    let updates = stage.execs[TaskKind::Update.index()].is_some();
    match kind {
        TaskKind::BackwardWeight | TaskKind::Backward => {
            if updates && program.n_steps > 1 && step != stage.step {
                let next = stage.step;
                return Err(format!("adds a gradient of step {step}, but the next update is that of step {next}"));
            }
            stage.gradients = stage.gradients.saturating_add(1);
        }
        TaskKind::Update if has_gradients(stage) => {
            let (gradients, ends) = (stage.gradients, program.ends_update(exec));
            stage.gradients = if ends { 0 } else { gradients };
            if program.n_steps > 1 && step != stage.step {
                return Err(format!("updates after step {step}, but the next update is that of step {}", stage.step));
            }
            stage.step += u32::from(ends);
            if gradients < all {
                return Err(format!("only {gradients} of {all} weight gradients of the stage come before it"));
            }
        }
        TaskKind::Update | TaskKind::Forward | TaskKind::Recompute | TaskKind::BackwardInput => {}
    }
    Ok(())
}

fn has_gradients(stage: &Stage) -> bool {
    [TaskKind::BackwardWeight, TaskKind::Backward].iter().any(|kind| stage.execs[kind.index()].is_some())
}

/// Finds tasks that run a second time: of one kind, or backward both fused and in halves. Whether there are none.
fn twice(program: &Program, slot: &[usize], stages: &[Stage], report: &mut Report) -> bool {
    // Runs are real instructions, so that tables of their size are no larger than the program, whatever it states.
    let mut starts = vec![0_usize];
    for stage in stages {
        let runs = stage.runs.iter().fold(0_u32, |sum, runs| sum.saturating_add(*runs));
        starts.push(starts[starts.len() - 1] + runs.min(program.n_microbatches) as usize);
    }
    // By stage and microbatch: a bit for each kind that ran, and where.
    let mut seen = vec![(0_u8, DeviceId(0)); starts[stages.len()]];
    let mut updates = BTreeSet::new();
    let mut sound = true;
    for (device, code) in devices(program) {
        for (index, instruction) in code.step.iter().enumerate() {
            let Instruction::Run { exec, microbatch, .. } = *instruction else { continue };
            let kind = program.exec(exec).kind;
            let stage = slot[exec.index()];
            if !begins(program.exec(exec)) {
                continue;
            }
            if kind == TaskKind::Update {
                if !updates.insert((device, exec, program.step_of(microbatch))) {
                    report.step(device, index, "runs a second time in this step");
                    sound = false;
                }
                continue;
            }
            let runs = &mut seen[starts[stage]..starts[stage + 1]];
            let Some((seen, home)) = runs.get_mut(microbatch.index()) else { continue };
            if *seen == 0 {
                *home = device;
            }
            let excluded = match kind {
                TaskKind::Backward => 1 << TaskKind::BackwardInput.index() | 1 << TaskKind::BackwardWeight.index(),
                TaskKind::BackwardInput | TaskKind::BackwardWeight => 1 << TaskKind::Backward.index(),
                TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => 0,
            };
            let own = 1 << kind.index();
            if *home != device {
                report.step(device, index, format!("other tasks of this microbatch and stage run on {home}"));
                sound = false;
            } else if *seen & own != 0 {
                report.step(device, index, "runs a second time in this step");
                sound = false;
            } else if *seen & excluded != 0 {
                report.step(device, index, "this microbatch's backward ran already, fused or in halves");
                sound = false;
            }
            *seen |= own;
        }
    }
    sound
}

/// Finds declared work that is not done for every microbatch, given that nothing runs twice.
fn missing(program: &Program, stage: &Stage, report: &mut Report) {
    for kind in TaskKind::ALL {
        let Some(index) = stage.execs[kind.index()] else { continue };
        let (runs, expected) = match kind {
            TaskKind::Update => (stage.of(kind), program.n_steps.saturating_mul(stage.updates)),
            // The rules about contents check that these are the same microbatches.
            TaskKind::Recompute if stage.repeats => (stage.of(kind), stage.repeated),
            TaskKind::Forward | TaskKind::Recompute => (stage.of(kind), program.n_microbatches),
            // Counted with its halves, where some microbatches take those.
            TaskKind::Backward if stage.execs[TaskKind::BackwardInput.index()].is_some() => continue,
            TaskKind::Backward => (stage.of(kind), program.n_microbatches),
            TaskKind::BackwardInput | TaskKind::BackwardWeight => {
                (stage.of(kind).saturating_add(stage.of(TaskKind::Backward)), program.n_microbatches)
            }
        };
        if runs != expected {
            let name = program.exec(ExecId(index)).name();
            report.error(Place::Exec(index), format!("`@{name}` runs {runs} times in a step, expected {expected}"));
        }
    }
}
