//! `recompute`: stages that run their forward once more, in schedules that do not say it themselves.

use super::number::in_schedule;
use pipe_schedule::policy::recompute::{Recomputation, added, insert};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::Expr;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::evaluate::evaluate;
use pipe_syntax::expr::known::Known;
use pipe_syntax::limits::{Report, tasks};
use pipe_syntax::source::Span;

/// The stages of a pipeline's line: all, or ranges of them, each with its place.
pub(super) type Line<'a> = (&'a Option<Vec<(Expr, Option<Expr>)>>, Span);

/// What a pipeline's line asks for, where `D`, `M` and `S` are known.
pub(super) fn recomputation(
    (ranges, _): Line<'_>,
    schedule: &Schedule,
    parameters: &Known<'_>,
    report: &mut Report,
) -> Option<Recomputation> {
    let Some(ranges) = ranges else { return Some(Recomputation::All) };
    let known = in_schedule(parameters, schedule);
    let mut stages = Vec::new();
    for (first, end) in ranges {
        let first = report.take(number(first, &known))?;
        let end = match end {
            Some(end) => report.take(number(end, &known))?,
            None => first.saturating_add(1),
        };
        stages.push(first..end.max(first));
    }
    Some(Recomputation::Stages(stages))
}

fn number(expr: &Expr, values: &Known<'_>) -> Result<u32, pipe_syntax::expr::scope::Fault> {
    let value = evaluate(expr, values)?;
    u32::try_from(value).map_err(|_| {
        let message = format!("there is no stage {value}");
        Box::new(Diagnostic::error(Code::OutOfRange, expr.span, format!("this is {value}"), message))
    })
}

/// Lets stages of a schedule recompute, as was asked for at some place, or by the caller.
pub(super) fn apply(asked: &Recomputation, place: Option<Span>, schedule: &mut Schedule, report: &mut Report) {
    let span = place.unwrap_or(schedule.span);
    if let Some(stage) = asked.beyond(schedule.n_stages()) {
        let (name, last) = (&schedule.name, schedule.n_stages().saturating_sub(1));
        let message = format!("{stage} is to recompute, but the last stage of `{name}` is s{last}");
        let label = if place.is_some() { format!("there is no {stage}") } else { "this schedule".to_owned() };
        report.add(Diagnostic::error(Code::OutOfRange, span, label, message));
        return;
    }
    let n_tasks = schedule.n_tasks() + added(schedule, |stage| asked.has(stage));
    if report.take(tasks(n_tasks as u128, span)).is_some() {
        insert(schedule, |stage| asked.has(stage));
    }
}
