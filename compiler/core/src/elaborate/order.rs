//! `order`: what each device does, one task after the other. Statements are resolved once and run for every device.

use super::limits::{MAX_TASKS, tasks};
use super::schedule::{Writer, Written};
use super::scope::{Fault, Resolved, Type};
use crate::diagnostic::{Code, Diagnostic};
use crate::schedule::ScheduledTask;
use crate::source::Span;
use crate::syntax::ast::{self, Expr, Statement};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeSet;

/// A resolved statement.
enum Step<'a> {
    Let { variable: usize, value: Resolved<'a> },
    Repeat { count: Resolved<'a>, body: Body<'a> },
    For { variable: usize, start: Resolved<'a>, end: Resolved<'a>, body: Body<'a> },
    If { branches: Vec<(Resolved<'a>, Body<'a>)>, otherwise: Body<'a> },
    Task(Line<'a>),
}

/// A task's statement.
struct Line<'a> {
    kind: TaskKind,
    stage: Resolved<'a>,
    microbatch: Option<Resolved<'a>>,
    origin: u16,
    span: Span,
}

/// Statements, and the variables that live as long as they are run.
pub(super) struct Body<'a> {
    steps: Vec<Step<'a>>,
    own: Vec<usize>,
}

/// What one turn of a loop costs, in operations.
const TURN: u64 = 16;
/// What it costs to refuse a task. Nothing comes of the schedule any more, so there need not be many.
const REFUSAL: u64 = 20_000;

/// Writes the orders of all devices.
pub(super) fn write<'a>(writer: &mut Writer<'a>, order: &'a ast::Order) -> Result<Written, Fault> {
    let device = writer.variable(&order.device)?;
    let body = resolve(writer, &order.body)?;
    let mut orders = Vec::with_capacity(writer.n_devices as usize);
    if writer.report.is_empty() {
        let n_stages = writer.placement.n_stages();
        let next = TaskKind::ALL.map(|_| vec![0; n_stages]);
        let mut run = Run { writer, device: DeviceId(0), next, fused: BTreeSet::new(), order: Vec::new(), n_tasks: 0 };
        for index in 0..run.writer.n_devices {
            run.writer.machine.set(device, i64::from(index));
            run.device = DeviceId(index);
            if run.writer.placement.is_replicated() {
                // Each replica counts its own microbatches.
                run.next.iter_mut().for_each(|next| next.fill(0));
            }
            if let Err(fault) = run.body(&body) {
                let hopeless = fault.code == Code::TooLarge;
                run.writer.report.add(*fault);
                if hopeless {
                    break;
                }
            }
            orders.push(std::mem::take(&mut run.order));
        }
    }
    Ok(Written { orders, block: None, window: None })
}

/// Resolves statements, and reports what is wrong with them.
pub(super) fn resolve<'a>(writer: &mut Writer<'a>, statements: &'a [Statement]) -> Result<Body<'a>, Fault> {
    let mut body = Body { steps: Vec::new(), own: Vec::new() };
    for statement in statements {
        let step = match statement {
            Statement::Let(binding) => binding_step(writer, binding, &mut body.own),
            Statement::Repeat { count, body } => {
                let count = writer.scope.number(count);
                let count = writer.report.take(count);
                let body = resolve(writer, body)?;
                Ok(count.map(|count| Step::Repeat { count, body }))
            }
            Statement::For { variable, start, end, body } => {
                let ends = writer.scope.number(start).and_then(|start| Ok((start, writer.scope.number(end)?)));
                let ends = writer.report.take(ends);
                let variable = writer.variable(variable)?;
                let body = resolve(writer, body)?;
                Ok(ends.map(|(start, end)| Step::For { variable, start, end, body }))
            }
            Statement::If { branches, otherwise } => branch_step(writer, branches, otherwise),
            Statement::Task { kind, stage, microbatch, span } => {
                let origin = writer.origin(*span)?;
                task_step(writer, (stage, microbatch.as_ref())).map(|(stage, microbatch)| {
                    Some(Step::Task(Line { kind: *kind, stage, microbatch, origin, span: *span }))
                })
            }
        };
        body.steps.extend(writer.report.take(step).flatten());
    }
    Ok(body)
}

fn binding_step<'a>(
    writer: &mut Writer<'a>,
    binding: &'a ast::Let,
    own: &mut Vec<usize>,
) -> Result<Option<Step<'a>>, Fault> {
    let value = writer.scope.either(&binding.value)?;
    let Some(variable) = writer.scope.variable(&binding.name.text) else { return Ok(None) };
    if !writer.scope.set_type(variable, value.ty) {
        let (name, span) = (&binding.name.text, binding.value.span);
        let kind = if value.ty == Type::Number { "a condition" } else { "a number" };
        let message = format!("`{name}` is {kind} elsewhere in this schedule");
        return Err(Box::new(Diagnostic::error(Code::WrongType, span, "this is not", message)));
    }
    if !own.contains(&variable) {
        own.push(variable);
    }
    Ok(Some(Step::Let { variable, value }))
}

fn branch_step<'a>(
    writer: &mut Writer<'a>,
    branches: &'a [(Expr, Vec<Statement>)],
    otherwise: &'a [Statement],
) -> Result<Option<Step<'a>>, Fault> {
    let mut resolved = Vec::with_capacity(branches.len());
    for (condition, body) in branches {
        let condition = writer.scope.condition(condition);
        let condition = writer.report.take(condition);
        let body = resolve(writer, body)?;
        resolved.extend(condition.map(|condition| (condition, body)));
    }
    Ok(Some(Step::If { branches: resolved, otherwise: resolve(writer, otherwise)? }))
}

fn task_step<'a>(
    writer: &mut Writer<'a>,
    (stage, microbatch): (&'a Expr, Option<&'a Expr>),
) -> Result<(Resolved<'a>, Option<Resolved<'a>>), Fault> {
    let microbatch = microbatch.map(|microbatch| writer.scope.number(microbatch)).transpose();
    let stage = writer.scope.number(stage)?;
    Ok((stage, microbatch?))
}

/// The state of a run through the statements.
struct Run<'w, 'a> {
    writer: &'w mut Writer<'a>,
    /// The device at hand.
    device: DeviceId,
    /// By kind and stage: one past the last microbatch that was taken.
    next: [Vec<u32>; TaskKind::ALL.len()],
    /// Stages and microbatches that ran `BW`, and that `W` has not passed over yet.
    fused: BTreeSet<(usize, u32)>,
    /// Its order.
    order: Vec<ScheduledTask>,
    n_tasks: u64,
}

impl<'a> Run<'_, 'a> {
    fn body(&mut self, body: &Body<'a>) -> Result<(), Fault> {
        if body.own.is_empty() {
            return body.steps.iter().try_for_each(|step| self.step(step));
        }
        let before: Vec<_> = body.own.iter().map(|slot| (*slot, self.writer.machine.get(*slot))).collect();
        let result = body.steps.iter().try_for_each(|step| self.step(step));
        before.into_iter().for_each(|(slot, value)| self.writer.machine.restore(slot, value));
        result
    }

    fn step(&mut self, step: &Step<'a>) -> Result<(), Fault> {
        match step {
            Step::Let { variable, value } => {
                let value = self.writer.eval(value)?;
                self.writer.machine.set(*variable, value);
                Ok(())
            }
            Step::Repeat { count, body } => {
                let turns = self.writer.eval(count)?;
                turns_allowed(turns, count)?;
                for _ in 0..turns {
                    self.writer.machine.spend(TURN, count.expr)?;
                    self.body(body)?;
                }
                Ok(())
            }
            Step::For { variable, start, end, body } => {
                let (first, last) = (self.writer.eval(start)?, self.writer.eval(end)?);
                turns_allowed(last.saturating_sub(first), end)?;
                let before = self.writer.machine.get(*variable);
                for number in first..last {
                    self.writer.machine.set(*variable, number);
                    self.writer.machine.spend(TURN, end.expr)?;
                    self.body(body)?;
                }
                self.writer.machine.restore(*variable, before);
                Ok(())
            }
            Step::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if self.writer.eval(condition)? == 1 {
                        return self.body(body);
                    }
                }
                self.body(otherwise)
            }
            Step::Task(line) => self.task(line),
        }
    }

    fn task(&mut self, line: &Line<'a>) -> Result<(), Fault> {
        let stage = self.writer.eval(&line.stage)?;
        let n_stages = self.writer.placement.n_stages();
        let index = match usize::try_from(stage) {
            Ok(index) if index < n_stages => index,
            _ => {
                self.writer.machine.spend(REFUSAL, line.stage.expr)?;
                self.writer.report.add(no_such_stage(stage, n_stages, line));
                return Ok(());
            }
        };
        let named = line.microbatch.as_ref().map(|code| self.writer.eval(code)).transpose()?;
        let n_microbatches = self.writer.n_microbatches;
        let microbatch = match named {
            Some(microbatch) => microbatch,
            None => i64::from(self.next(line, index)?),
        };
        let Some(number) = u32::try_from(microbatch).ok().filter(|number| *number < n_microbatches) else {
            self.writer.machine.spend(REFUSAL, line.stage.expr)?;
            self.writer.report.add(no_such_microbatch(line, index, microbatch, n_microbatches));
            return Ok(());
        };
        self.took(line, index, number)?;
        self.n_tasks += 1;
        if self.n_tasks > MAX_TASKS {
            return tasks(u128::from(self.n_tasks), line.span);
        }
        let task = Task { kind: line.kind, stage: StageId::from_index(index), microbatch: MicrobatchId(number) };
        self.order.push(ScheduledTask { task, origin: line.origin });
        Ok(())
    }

    /// The next microbatch of a kind and stage; of those that live on this device, where some do. The number of
    /// microbatches where none is left.
    fn next(&mut self, line: &Line<'a>, stage: usize) -> Result<u32, Fault> {
        self.own(line, stage, self.next[line.kind.index()][stage])
    }

    /// The first microbatch from `next` on that lives on this device, where some do.
    fn own(&mut self, line: &Line<'a>, stage: usize, next: u32) -> Result<u32, Fault> {
        let (placement, stage) = (&self.writer.placement, StageId::from_index(stage));
        if !placement.is_replicated() || !placement.is_home(stage, self.device) {
            return Ok(next);
        }
        // Within one period there is one, or none is left.
        let ends = next.saturating_add(placement.period()).min(self.writer.n_microbatches);
        let is_own = |microbatch: &u32| placement.device(stage, MicrobatchId(*microbatch)) == self.device;
        let found = (next..ends).find(is_own);
        let looked = found.unwrap_or(ends).saturating_sub(next);
        self.writer.machine.spend(u64::from(looked), line.stage.expr)?;
        Ok(found.unwrap_or(self.writer.n_microbatches))
    }

    /// Counts a task: `B` and `BW` take microbatches in turn, and `W` passes over those that ran `BW`.
    fn took(&mut self, line: &Line<'a>, stage: usize, number: u32) -> Result<(), Fault> {
        let [input, weight, both] =
            [TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward].map(TaskKind::index);
        self.next[line.kind.index()][stage] = number + 1;
        match line.kind {
            TaskKind::BackwardInput => self.next[both][stage] = number + 1,
            TaskKind::Backward => {
                self.next[input][stage] = number + 1;
                self.fused.insert((stage, number));
            }
            TaskKind::BackwardWeight => {}
            TaskKind::Forward | TaskKind::Update => return Ok(()),
        }
        let mut next = self.own(line, stage, self.next[weight][stage])?;
        while self.fused.remove(&(stage, next)) {
            self.next[weight][stage] = next + 1;
            next = self.own(line, stage, next + 1)?;
        }
        Ok(())
    }
}

/// A loop with more turns than a schedule may have tasks is a mistake, and would take too long.
fn turns_allowed(turns: i64, code: &Resolved<'_>) -> Result<(), Fault> {
    if u64::try_from(turns).is_ok_and(|turns| turns > MAX_TASKS) {
        let message = format!("the loop has {turns} turns; at most {MAX_TASKS} are accepted");
        return Err(Box::new(Diagnostic::error(Code::TooLarge, code.expr.span, "too many turns", message)));
    }
    Ok(())
}

fn no_such_stage(stage: i64, n_stages: usize, line: &Line<'_>) -> Diagnostic {
    let last = n_stages - 1;
    let message = format!("{} of stage {stage}, and stages are s0 to s{last}", line.kind.letters());
    Diagnostic::error(Code::TaskOutside, line.stage.expr.span, format!("this is {stage}"), message)
}

fn no_such_microbatch(line: &Line<'_>, stage: usize, microbatch: i64, n_microbatches: u32) -> Diagnostic {
    let (kind, last) = (line.kind.letters(), n_microbatches - 1);
    let message = format!("{kind} of s{stage} on microbatch {microbatch}, and microbatches are m0 to m{last}");
    match &line.microbatch {
        Some(code) => Diagnostic::error(Code::TaskOutside, code.expr.span, format!("this is {microbatch}"), message),
        None => {
            let label = format!("number {} of its kind for s{stage}", microbatch + 1);
            Diagnostic::error(Code::TaskOutside, line.span, label, message)
                .help("without a microbatch, a task takes the one after the last of its kind and stage")
        }
    }
}
