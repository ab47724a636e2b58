//! Rules about what is run: every microbatch goes through every stage exactly once, and each stage lives on one device.

use super::report::Report;
use super::{Place, devices};
use crate::ids::{DeviceId, ExecId, MicrobatchId, StageId};
use crate::instruction::Instruction;
use crate::program::Program;
use crate::task::TaskKind;
use std::collections::BTreeMap;

const N_KINDS: usize = TaskKind::ALL.len();

/// One stage as it was found so far.
#[derive(Clone, Default)]
struct Stage {
    device: Option<DeviceId>,
    /// Runs so far, by kind.
    runs: [u32; N_KINDS],
    /// The step whose weight gradients are added up, and how many there are of it.
    step: u32,
    gradients: u32,
    /// Executables, by kind.
    execs: [Option<u32>; N_KINDS],
}

impl Stage {
    fn of(&self, kind: TaskKind) -> u32 {
        self.runs[kind.index()]
    }
}

/// Checks the whole program.
pub(super) fn check(program: &Program, report: &mut Report) {
    let numbers = stages(program);
    let slot: Vec<usize> = program.execs.iter().map(|exec| numbers[&exec.stage]).collect();
    let mut stages = vec![Stage::default(); numbers.len()];
    for (index, exec) in program.execs.iter().enumerate() {
        stages[slot[index]].execs[exec.kind.index()] = Some(u32::try_from(index).unwrap_or(u32::MAX));
    }
    let mut sound = true;
    for (device, code) in devices(program) {
        for (index, instruction) in code.step.iter().enumerate() {
            let Instruction::Run { exec, microbatch, .. } = instruction else { continue };
            let (kind, stage) = (program.exec(*exec).kind, &mut stages[slot[exec.index()]]);
            if *stage.device.get_or_insert(device) != device {
                let home = stage.device.unwrap_or(device);
                report.step(device, index, format!("other tasks of the stage run on {home}"));
                sound = false;
            }
            stage.runs[kind.index()] = stage.of(kind).saturating_add(1);
            if let Err(message) = of_step(program, stage, kind, *microbatch) {
                report.step(device, index, message);
                sound = false;
            }
        }
    }
    if sound && twice(program, &slot, &stages, report) {
        for stage in &stages {
            missing(program, stage, report);
        }
    }
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
fn of_step(program: &Program, stage: &mut Stage, kind: TaskKind, microbatch: MicrobatchId) -> Result<(), String> {
    let (step, per_step) = (program.step_of(microbatch), program.microbatches_of_step());
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
            let gradients = std::mem::take(&mut stage.gradients);
            if program.n_steps > 1 && step != stage.step {
                return Err(format!("updates after step {step}, but the next update is that of step {}", stage.step));
            }
            stage.step += 1;
            if gradients < per_step {
                return Err(format!("only {gradients} of {per_step} weight gradients of the stage come before it"));
            }
        }
        TaskKind::Update | TaskKind::Forward | TaskKind::BackwardInput => {}
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
    let mut seen = vec![0_u8; starts[stages.len()]];
    let mut sound = true;
    for (device, code) in devices(program) {
        for (index, instruction) in code.step.iter().enumerate() {
            let Instruction::Run { exec, microbatch, .. } = *instruction else { continue };
            let kind = program.exec(exec).kind;
            let stage = slot[exec.index()];
            let Some(seen) = seen[starts[stage]..starts[stage + 1]].get_mut(microbatch.index()) else { continue };
            let excluded = match kind {
                TaskKind::Backward => 1 << TaskKind::BackwardInput.index() | 1 << TaskKind::BackwardWeight.index(),
                TaskKind::BackwardInput | TaskKind::BackwardWeight => 1 << TaskKind::Backward.index(),
                TaskKind::Forward | TaskKind::Update => 0,
            };
            let own = 1 << kind.index();
            if *seen & own != 0 {
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
            TaskKind::Update => (stage.of(kind), program.n_steps),
            TaskKind::Forward => (stage.of(kind), program.n_microbatches),
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
