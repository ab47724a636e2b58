//! `recompute`: the stages or microbatches that run their forward again, if the schedule does not say it.

use super::number::in_schedule;
use super::rules::{Counts, counts, kind_and_part, letters, quoted};
use crate::elaborate::schedule::reads::all_alike;
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::policy::recompute::{Recomputation, added, insert};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::{Expr, ExprKind, Name, Recomputed, TaskNumber};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::evaluate::{Rule, evaluate};
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::{Report, tasks};
use pipe_syntax::source::Span;

/// The entries of a pipeline's line, and its place. None means `all`.
pub(super) type Line<'a> = (&'a Option<Vec<Recomputed>>, Span);

/// What a pipeline's line asks for, where `D`, `M` and `S` are known.
pub(super) fn recomputation(
    (written, _): Line<'_>,
    schedule: &Schedule,
    parameters: &Known<'_>,
    report: &mut Report,
) -> Option<Recomputation> {
    let Some(written) = written else { return Some(Recomputation::All) };
    let known = in_schedule(parameters, schedule);
    let (mut stages, mut each) = (Vec::new(), Vec::new());
    for recomputed in written {
        match recomputed {
            Recomputed::Stages(first, end) => {
                let first = report.take(number(first, &known))?;
                let end = match end {
                    Some(end) => report.take(number(end, &known))?,
                    None => first.saturating_add(1),
                };
                stages.push(first..end.max(first));
            }
            Recomputed::Tasks(tasks) => {
                let (kind, part) = kind_and_part(letters(tasks));
                report.take(forward(kind, &tasks.name))?;
                let rows = report.take(rows(part, tasks.name.span, schedule))?;
                each.push((rows, report.take(microbatches(tasks, schedule, &known))?));
            }
            Recomputed::Part(name) => {
                let (kind, part) = kind_and_part(&name.text);
                report.take(forward(kind, name))?;
                each.push((report.take(rows(part, name.span, schedule))?, Recomputation::All));
            }
        }
    }
    let named = Recomputation::Stages(stages);
    if each.is_empty() || named.beyond(schedule.n_whole_stages()).is_some() {
        return Some(named);
    }
    let asked = |row, microbatch| {
        let (row, microbatch) = (StageId::from_index(row), MicrobatchId(microbatch));
        let stage = schedule.parts.stage_of(row);
        let is_one = |(rows, one): &(Vec<bool>, Recomputation)| rows[row.index()] && one.has(stage, microbatch);
        schedule.parts.lane(row).is_none() && named.has(stage, microbatch) || each.iter().any(is_one)
    };
    let of_stage = |stage| (0..schedule.microbatches_of_step()).map(|microbatch| asked(stage, microbatch)).collect();
    Some(Recomputation::Microbatches((0..schedule.n_stages()).map(of_stage).collect()))
}

/// Rule: only forwards are recomputed.
fn forward(kind: &str, name: &Name) -> Result<(), Fault> {
    if kind == TaskKind::Forward.letters() {
        return Ok(());
    }
    let message = format!("`{kind}` cannot be recomputed; only `F` can");
    let error = Diagnostic::error(Code::OutOfRange, name.span, "not a forward", message);
    Err(Box::new(error.help("name the forwards, as in `recompute F[s, m] if m % 2 == 0`")))
}

/// By stage or part: whether it computes and has this name, if a part is named.
fn rows(part: Option<&str>, span: Span, schedule: &Schedule) -> Result<Vec<bool>, Fault> {
    let parts = &schedule.parts;
    let all = (0..schedule.n_stages()).map(StageId::from_index);
    let Some(name) = part else { return Ok(all.map(|row| parts.lane(row).is_none()).collect()) };
    if !parts.has(name) {
        let message = format!("no stage of `{}` has a part `{name}`", schedule.name);
        let error = Diagnostic::error(Code::WrongPart, span, "no such part", message);
        return Err(Box::new(match parts.names().as_slice() {
            [] => error.help("name the parts of stages: `parts s = attention, experts`"),
            names => error.help(format!("its parts are {}", quoted(names))),
        }));
    }
    let is_named = |row: StageId| parts.part(row).is_some_and(|own| &*own.name == name);
    let own: Vec<bool> = all.clone().map(is_named).collect();
    if all.into_iter().any(|row| own[row.index()] && parts.lane(row).is_some()) {
        let message = format!("`{name}` is on a lane, and a part on a lane has no `R`");
        let error = Diagnostic::error(Code::WrongPart, span, "on a lane", message);
        return Err(Box::new(error.help("recompute parts on compute: what is on a lane keeps nothing")));
    }
    Ok(own)
}

/// Evaluates `F[s, m] if m % 2 == 0` for each stage and microbatch.
fn microbatches(tasks: &TaskNumber, schedule: &Schedule, known: &Known<'_>) -> Result<Recomputation, Fault> {
    let Counts { stages, microbatches, slices, .. } = counts(tasks, schedule)?;
    if tasks.variables.is_empty() {
        let message = format!("`{}` has numbers, but a condition needs names", tasks.name.text);
        let error = Diagnostic::error(Code::OutOfRange, tasks.name.span, "expected names, as in `F[s, m]`", message);
        return Err(Box::new(
            error.help("write stages alone, as in `recompute 0..2`, or names: `F[s, m] if m % 2 == 0`"),
        ));
    }
    let mut rule = Rule::condition(&tasks.value, &tasks.variables, known)?;
    let (all, all_slices) = (schedule.microbatches_of_step() / schedule.slices.count(), schedule.slices.count());
    let mut by_stage = Vec::with_capacity(schedule.n_whole_stages());
    for stage in 0..stages {
        let mut own = Vec::with_capacity(schedule.microbatches_of_step() as usize);
        for microbatch in 0..microbatches {
            for slice in 0..slices {
                let values = [stage, microbatch, slice].map(i64::from);
                let holds = rule.holds(&values[..tasks.variables.len()])?;
                own.extend(std::iter::repeat_n(holds, (all_slices / slices) as usize));
            }
        }
        // If the rule has no name for the microbatch, all are alike.
        by_stage.push(own.repeat((all / microbatches) as usize));
    }
    Ok(Recomputation::Microbatches(by_stage))
}

fn number(expr: &Expr, values: &Known<'_>) -> Result<u32, Fault> {
    let mut named = None;
    expr.walk(&mut |part| {
        named = named.or(matches!(&part.kind, ExprKind::Name(name) if name == "F").then_some(part.span));
    });
    if let Some(span) = named {
        let message = "`F` is not a stage";
        let error = Diagnostic::error(Code::UnknownName, span, "expected a number", message);
        return Err(Box::new(error.help("write `recompute 3` for a stage, or `recompute F[s, m] if m % 2 == 0`")));
    }
    let value = evaluate(expr, values)?;
    u32::try_from(value).map_err(|_| {
        let message = format!("there is no stage {value}");
        Box::new(Diagnostic::error(Code::OutOfRange, expr.span, format!("this is {value}"), message))
    })
}

/// Lets stages of a schedule recompute, as was asked for at some place, or by the caller.
pub(super) fn apply(asked: &Recomputation, place: Option<Span>, schedule: &mut Schedule, report: &mut Report) {
    let span = place.unwrap_or(schedule.span);
    if let Some(stage) = asked.beyond(schedule.n_whole_stages()) {
        let (name, last) = (&schedule.name, schedule.n_whole_stages().saturating_sub(1));
        let message = format!("{stage} is to recompute, but the last stage of `{name}` is s{last}");
        let label = if place.is_some() { format!("there is no {stage}") } else { "this schedule".to_owned() };
        report.add(Diagnostic::error(Code::OutOfRange, span, label, message));
        return;
    }
    let parts = schedule.parts.clone();
    let is_asked = |row, microbatch| match asked {
        Recomputation::Microbatches(_) => asked.has(row, microbatch),
        _ => parts.lane(row).is_none() && asked.has(parts.stage_of(row), microbatch),
    };
    let n_tasks = schedule.n_tasks() + added(schedule, is_asked);
    if report.take(tasks(n_tasks as u128, span)).is_none() {
        return;
    }
    if asked.is_varied() {
        if let Some(error) = repeated(schedule, span) {
            report.add(error);
            return;
        }
        // All microbatches of a block are alike.
        schedule.block = None;
    }
    insert(schedule, is_asked);
}

/// The error for a schedule whose microbatches must recompute alike.
fn repeated(schedule: &Schedule, span: Span) -> Option<Diagnostic> {
    let Some(window) = &schedule.window else { return all_alike(schedule, span) };
    let message =
        format!("`weights {}` repeats a block, so all microbatches must recompute alike", window.weights.word());
    let error = Diagnostic::error(Code::OutOfRange, span, "recomputes only some", message);
    let help = "recompute all microbatches of a stage, or none";
    Some(error.label(window.span, "repeats a block").help(help))
}
