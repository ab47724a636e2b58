//! Programs from schedules without a model, and what is asked of every program.

use crate::schedules::time;
use pipe_ir::forms::json;
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand, Program};
use pipe_ir::task::TaskKind;
use pipe_ir::text;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_lower::{Options, lower};
use pipe_model::stage_set::{StageSet, WeightGroup};
use pipe_model::{Kinds, abstract_of};
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::schedule::Schedule;

/// The program of a schedule whose stages have plain bytes for values.
#[must_use]
pub fn program(schedule: &Schedule) -> Program {
    program_of(schedule, &abstract_of(&Kinds::of_schedule(schedule), schedule))
}

/// The program of a schedule with these stages, whose replicas divide the state of their weights,
/// and if it can be, in so many bytes.
#[must_use]
pub fn divided(schedule: &Schedule, set: &StageSet, (zero, budget): (Zero, Option<Bytes>)) -> Program {
    lower(
        schedule,
        &time(schedule),
        set,
        &Options { name: schedule.name.clone(), zero, budget: budget.map(Into::into), ..Options::default() },
    )
}

/// The program of a schedule with these stages.
#[must_use]
pub fn program_of(schedule: &Schedule, set: &StageSet) -> Program {
    lower(schedule, &time(schedule), set, &Options { name: schedule.name.clone(), ..Options::default() })
}

/// Stages that have weights, data and a loss, and whose every value has another size.
#[must_use]
pub fn stages_with_weights(schedule: &Schedule) -> StageSet {
    let mut set = abstract_of(&Kinds::of_schedule(schedule), schedule);
    for (index, value) in set.values.iter_mut().enumerate() {
        value.bytes = Bytes(value.bytes.0 / 64 + 100 * index as u64);
    }
    let last = schedule.n_stages() - 1;
    let tokens = add(&mut set, "data.tokens", ValueKind::Data, 0, 256);
    let loss = add(&mut set, "loss", ValueKind::Loss, last, 4);
    for stage in 0..=last {
        let parameters = add(&mut set, &format!("parameters.s{stage}"), ValueKind::Parameters, stage, 5000);
        let gradients = add(&mut set, &format!("gradients.s{stage}"), ValueKind::ParameterGradients, stage, 5000);
        let stages = vec![StageId::from_index(stage)];
        set.weights.push(WeightGroup { parameters, gradients: Some(gradients), update: None, stages });
        for exec in set.execs.iter_mut().filter(|exec| exec.stage.index() == stage) {
            let mut push = |value, access| exec.operands.push(Operand::new(value, access));
            push(parameters, Access::Read);
            match exec.kind {
                TaskKind::BackwardWeight | TaskKind::Backward => push(gradients, Access::Update),
                TaskKind::Forward if stage == last => push(loss, Access::Write),
                _ => {}
            }
            if stage == 0 && exec.kind != TaskKind::BackwardInput || stage == last && exec.kind == TaskKind::Forward {
                exec.operands.push(Operand::new(tokens, Access::Read));
            }
        }
    }
    set
}

/// The same, and their weights are updated, with a state twice as large.
#[must_use]
pub fn stages_with_updates(schedule: &Schedule) -> StageSet {
    let mut set = stages_with_weights(schedule);
    for index in 0..set.weights.len() {
        let state = add(&mut set, &format!("state.s{index}"), ValueKind::OptimizerState, index, 10_000);
        let group = &mut set.weights[index];
        let mut operands = vec![Operand::new(group.parameters, Access::Update)];
        operands.extend(group.gradients.map(|gradients| Operand::new(gradients, Access::Read)));
        operands.push(Operand::new(state, Access::Update));
        let stage = StageId::from_index(index);
        group.update = Some(ExecId::from_index(set.execs.len()));
        set.execs.push(Exec::new(TaskKind::Update, stage, operands, Body::Abstract, 1_000));
    }
    set
}

fn add(set: &mut StageSet, name: &str, kind: ValueKind, stage: usize, bytes: u64) -> ValueId {
    let stage = StageId::from_index(stage);
    set.values.push(Value::plain(name.to_owned(), kind, stage, Bytes(bytes)));
    ValueId::from_index(set.values.len() - 1)
}

/// Writes a program in both of its forms and reads them: nothing may be lost.
///
/// # Panics
/// If anything is.
pub fn assert_read_back(program: &Program) {
    assert_eq!(text::check(&text::print(program)).map(|verified| verified.program().clone()).as_ref(), Ok(program));
    let mut written = Vec::new();
    json::write(program, &mut written).expect("memory");
    let read = json::parse(std::str::from_utf8(&written).expect("a text"));
    assert_eq!(read.as_ref().ok(), Some(program), "{:?}", read.as_ref().err());
}
