//! `order`: what each device does, one task after the other. Statements are resolved once; [`super::run`] runs them.

use super::loops::empty;
use super::swap::{self, Movement};
use super::{Writer, WrittenOrders, run};
use pipe_ir::task::TaskKind;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_schedule::swaps::SwapKind;
use pipe_syntax::ast::{self, Expr, ExprKind, FunctionBody, Statement};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::errors::cyclic;
use pipe_syntax::expr::functions::Called;
use pipe_syntax::expr::scope::{Fault, Form, Resolved, Type};
use pipe_syntax::source::Span;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A resolved statement.
pub(super) enum Step<'a> {
    Let { variable: usize, value: Resolved<'a> },
    Repeat { count: Resolved<'a>, body: Body<'a> },
    For { variable: usize, name: &'a str, start: Resolved<'a>, end: Resolved<'a>, body: Body<'a> },
    If { branches: Vec<(Resolved<'a>, Body<'a>)>, otherwise: Body<'a> },
    Task(Line<'a>),
    Move(Movement<'a>),
    Once(Once<'a>),
    Call { called: Called<'a>, body: Rc<Body<'a>> },
    Pair { body: Body<'a>, span: Span },
}

/// A task's statement.
pub(super) struct Line<'a> {
    pub(super) kind: TaskKind,
    pub(super) part: Option<&'a ast::Name>,
    pub(super) stage: Resolved<'a>,
    pub(super) microbatch: Option<Resolved<'a>>,
    pub(super) slice: Option<Resolved<'a>>,
    pub(super) origin: u16,
    pub(super) span: Span,
}

/// `reduce`, `update` or `gather`.
pub(super) struct Once<'a> {
    pub(super) kind: StepTaskKind,
    pub(super) stage: Resolved<'a>,
    pub(super) origin: u16,
    pub(super) span: Span,
}

/// Statements, and the variables that live as long as they are run.
pub(super) struct Body<'a> {
    pub(super) steps: Vec<Step<'a>>,
    pub(super) own: Vec<usize>,
}

/// Writes the orders of all devices; `place` is the line that says where stages live.
pub(super) fn write<'a>(writer: &mut Writer<'a>, order: &'a ast::Order, place: Span) -> Result<WrittenOrders, Fault> {
    let device = writer.variable(&order.device)?;
    let body = resolve(writer, &order.body)?;
    resolve_uncalled(writer);
    if !writer.report.is_empty() {
        return Ok(WrittenOrders::default());
    }
    Ok(run::run(writer, (order, device, &body), place))
}

impl Body<'_> {
    /// The kinds of the tasks that it may run.
    pub(super) fn kinds(&self, found: &mut BTreeSet<TaskKind>) {
        for step in &self.steps {
            match step {
                Step::Let { .. } | Step::Move(_) | Step::Once(_) => {}
                Step::Repeat { body, .. } | Step::For { body, .. } | Step::Pair { body, .. } => body.kinds(found),
                Step::If { branches, otherwise } => {
                    branches.iter().for_each(|(_, body)| body.kinds(found));
                    otherwise.kinds(found);
                }
                Step::Task(line) => drop(found.insert(line.kind)),
                Step::Call { body, .. } => body.kinds(found),
            }
        }
    }
}

/// Resolves statements, and reports what is wrong with them.
pub(super) fn resolve<'a>(writer: &mut Writer<'a>, statements: &'a [Statement]) -> Result<Body<'a>, Fault> {
    if let Some(Statement::Let(last)) = statements.last() {
        counts_up(last)?;
    }
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
            Statement::For { variable, start, end, open, body } => {
                let ends = writer.scope.number(start).and_then(|start| Ok((start, writer.scope.number(end)?)));
                let ends = writer.report.take(ends);
                let found = empty::check(variable, [start, end], (*open, body));
                found.into_iter().for_each(|found| writer.report.add(found));
                not_a_parameter(writer, variable)?;
                let name = variable.text.as_str();
                let variable = writer.variable(variable)?;
                let body = resolve(writer, body)?;
                Ok(ends.map(|(start, end)| Step::For { variable, name, start, end, body }))
            }
            Statement::If { branches, otherwise } => branch_step(writer, branches, otherwise),
            Statement::Call(call) => call_step(writer, call).map(Some),
            Statement::Pair { halves, span } => pair_step(writer, halves, *span),
            Statement::Movement { kind, stage, microbatch, slice, span } => {
                movement_step(writer, *kind, [Some(stage), microbatch.as_ref(), slice.as_ref()], *span)
            }
            Statement::StepTask { kind, stage, span } => {
                let (kind, span, origin) = (*kind, *span, writer.origin(*span)?);
                let stage = writer.scope.number(stage);
                stage.map(|stage| Some(Step::Once(Once { kind, stage, origin, span })))
            }
            Statement::Task { kind, part, stage, microbatch, slice, span } => {
                let origin = writer.origin(*span)?;
                task_step(writer, [Some(stage), microbatch.as_ref(), slice.as_ref()]).map(|numbers| {
                    let [stage, microbatch, slice] = numbers;
                    let part = part.as_ref();
                    let line = |stage| Line { kind: *kind, part, stage, microbatch, slice, origin, span: *span };
                    stage.map(|stage| Step::Task(line(stage)))
                })
            }
        };
        body.steps.extend(writer.report.take(step).flatten());
    }
    Ok(body)
}

/// Two tasks that share the device: a forward and a backward.
fn pair_step<'a>(writer: &mut Writer<'a>, halves: &'a [Statement], span: Span) -> Result<Option<Step<'a>>, Fault> {
    let kinds: Vec<TaskKind> = halves
        .iter()
        .filter_map(|half| if let Statement::Task { kind, .. } = half { Some(*kind) } else { None })
        .collect();
    let is_backward = |kind: &TaskKind| matches!(kind, TaskKind::BackwardInput | TaskKind::Backward);
    if !kinds.contains(&TaskKind::Forward) || !kinds.iter().any(is_backward) {
        let letters: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.letters())).collect();
        let message = format!("{} cannot share a device", letters.join(" and "));
        let error = Diagnostic::error(Code::WrongPair, span, "not a forward and a backward", message);
        return Err(Box::new(error.help("join `F` with `BW` or `B`, or write one after the other without `&`")));
    }
    Ok(Some(Step::Pair { body: resolve(writer, halves)?, span }))
}

/// A call of a function for statements.
fn call_step<'a>(writer: &mut Writer<'a>, call: &'a ast::Call) -> Result<Step<'a>, Fault> {
    let called = writer.scope.statements(call)?;
    match statements_of(writer, called.slot)? {
        Some(body) => Ok(Step::Call { called, body }),
        None => Err(Box::new(cyclic(&call.name.text, call.name.span))),
    }
}

/// The statements of a function, which are resolved once; none while they are being resolved.
fn statements_of<'a>(writer: &mut Writer<'a>, slot: usize) -> Result<Option<Rc<Body<'a>>>, Fault> {
    if let Some(known) = writer.functions.get(&slot) {
        return Ok(known.clone());
    }
    let Form::Function(ast::Function { body: FunctionBody::Statements(statements), .. }) = writer.scope.lets[slot].form
    else {
        return Ok(None);
    };
    writer.functions.insert(slot, None);
    let outside = writer.scope.enter_function(slot);
    let body = resolve(writer, statements).map(Rc::new);
    writer.scope.leave(outside);
    writer.functions.remove(&slot);
    let body = body?;
    writer.functions.insert(slot, Some(Rc::clone(&body)));
    Ok(Some(body))
}

/// Resolves the functions for statements that nothing calls, and reports what is wrong with them.
fn resolve_uncalled(writer: &mut Writer<'_>) {
    for slot in 0..writer.scope.lets.len() {
        if !matches!(writer.scope.lets[slot].form, Form::Function(function) if function.has_statements()) {
            continue;
        }
        let resolved = match writer.scope.definition(slot, 0) {
            Ok(_) => statements_of(writer, slot).map(drop),
            Err(fault) => fault.map_or(Ok(()), Err),
        };
        writer.report.take(resolved);
    }
}

/// Rule: inside of a function, no other number has the name of one of its parameters.
fn not_a_parameter(writer: &Writer<'_>, name: &ast::Name) -> Result<(), Fault> {
    if !writer.scope.is_local(&name.text) {
        return Ok(());
    }
    let message = format!("`{}` is a parameter of this function, and would have two meanings", name.text);
    Err(Box::new(Diagnostic::error(Code::DuplicateName, name.span, "another name is needed", message)))
}

/// Refuses `let i = i + 1` at the end of a body: it names another number, which ends there.
fn counts_up(last: &ast::Let) -> Result<(), Fault> {
    let name = &last.name.text;
    let mut names_itself = false;
    last.value.walk(&mut |part| names_itself |= matches!(&part.kind, ExprKind::Name(own) if own == name));
    if !names_itself {
        return Ok(());
    }
    let message = format!("`{name}` keeps its value: this `let` names another number, which ends with its braces");
    let error = Diagnostic::error(Code::RepeatedItem, last.name.span, "nothing reads this", message);
    Err(Box::new(error.help(format!("let a loop count: `for {name} in 0..M {{ .. }}`"))))
}

fn binding_step<'a>(
    writer: &mut Writer<'a>,
    binding: &'a ast::Let,
    own: &mut Vec<usize>,
) -> Result<Option<Step<'a>>, Fault> {
    not_a_parameter(writer, &binding.name)?;
    let value = writer.scope.either(&binding.value)?;
    if let Type::List(_) = value.ty {
        writer.scope.variable(&binding.name.text).into_iter().for_each(|slot| writer.scope.forget_type(slot));
        return Err(Box::new(list_in_order(binding)));
    }
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

fn task_step<'a>(writer: &mut Writer<'a>, written: [Option<&'a Expr>; 3]) -> Result<[Option<Resolved<'a>>; 3], Fault> {
    let [stage, microbatch, slice] = written.map(|number| number.map(|number| writer.scope.number(number)).transpose());
    Ok([stage?, microbatch?, slice?])
}

fn movement_step<'a>(
    writer: &mut Writer<'a>,
    kind: SwapKind,
    written: [Option<&'a Expr>; 3],
    span: Span,
) -> Result<Option<Step<'a>>, Fault> {
    let [stage, microbatch, slice] = task_step(writer, written)?;
    if !writer.may_swap {
        return Err(Box::new(swap::without_line(kind, span)));
    }
    let origin = writer.origin(span)?;
    Ok(stage.map(|stage| Step::Move(Movement { kind, stage, microbatch, slice, origin, span })))
}

fn list_in_order(binding: &ast::Let) -> Diagnostic {
    let name = &binding.name.text;
    let message = format!("`{name}` is a list, and a `let` between tasks names a number");
    let error = Diagnostic::error(Code::WrongType, binding.value.span, "this is a list", message);
    error.help(format!("write `let {name} = ..` outside of the `order`: its numbers are computed where they are read"))
}
