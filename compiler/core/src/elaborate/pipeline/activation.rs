//! `activation`: what activations count in units, where no model says what they are.

use super::number::{in_schedule, outside, ratio, ratio_at};
use super::rules::{Counts, counts, letters, quoted};
use pipe_ir::ids::StageId;
use pipe_schedule::policy::activation::{ActivationError, ActivationName, Entry, MOST_PARTS, Shares};
use pipe_schedule::ratio::Ratio;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::{Call, Name, TaskNumber};
use pipe_syntax::diagnostic::{Code, Diagnostic, Edit};
use pipe_syntax::expr::evaluate::Rule;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;

/// The numbers of a pipeline's line.
pub(super) type Line<'a> = &'a [TaskNumber];

/// What a pipeline's line says. Where there is no schedule, numbers that depend on the stage are left out.
pub(super) fn shares(
    line: Line<'_>,
    (known, schedule): (&Known<'_>, Option<&Schedule>),
    report: &mut Report,
) -> Option<Shares> {
    let mut entries: Vec<Entry> = Vec::new();
    for (index, written) in line.iter().enumerate() {
        let TaskNumber { name: Name { text, span }, variables, value, .. } = written;
        let subject = if variables.is_empty() { text.as_str() } else { letters(written) };
        let name: Result<ActivationName, ActivationError> = subject.parse();
        let Ok(name) = name.map_err(|reason| report.add(*outside(*span, format!("`{text}`: {reason}")))) else {
            continue;
        };
        let is_same = |other: &TaskNumber| match variables.is_empty() {
            // `W[2]` and `W[2..3]` are the same.
            true => other.variables.is_empty() && other.name.text.parse().as_ref() == Ok(&name),
            false => !other.variables.is_empty() && letters(other) == subject,
        };
        if line[..index].iter().any(is_same) {
            let shown = if variables.is_empty() { name.to_string() } else { text.clone() };
            let message = format!("`activation` sets `{shown}` twice");
            report.add(Diagnostic::error(Code::RepeatedItem, *span, "given again", message));
        }
        let mut add = |name: ActivationName, share: Ratio, report: &mut Report| {
            let entry = Entry { name, share, span: Some(*span) };
            report.extend(entry.excess().map(|message| *outside(value.span, message)));
            entries.push(entry);
        };
        if variables.is_empty() {
            add(name, report.take(ratio(value, known))?, report);
            continue;
        }
        for (stage, share) in (0..).zip(report.take(each(written, (known, schedule)))?) {
            add(name.of(stage), share, report);
        }
    }
    Some(Shares { entries })
}

/// `F[s] = 1 + s`: what it says of each stage.
fn each(number: &TaskNumber, (known, schedule): (&Known<'_>, Option<&Schedule>)) -> Result<Vec<Ratio>, Fault> {
    let Some(schedule) = schedule else { return Ok(Vec::new()) };
    let Counts { stages, .. } = counts(number, schedule)?;
    if let Some(second) = number.variables.get(1) {
        let message = format!(
            "`{}` has {} names, but an activation depends only on the stage",
            number.name.text,
            number.variables.len()
        );
        return Err(Box::new(Diagnostic::error(Code::OutOfRange, second.span, "one too many", message)));
    }
    let known = in_schedule(known, schedule);
    let mut rule = Rule::new(&number.value, &number.variables, &known)?;
    (0..stages).map(|stage| ratio_at(&mut rule, &number.value, &[i64::from(stage)])).collect()
}

/// What was asked for, and where: on a line of the pipeline, or by the caller.
pub(super) type PlacedShares<'a> = Option<(&'a Shares, Option<Span>)>;

/// Rule: a pipeline with a model, whose tensors say it all, has no such line.
pub(super) fn beside_model(asked: PlacedShares<'_>, model: Option<&Call>, report: &mut Report) {
    let (Some((_, place)), Some(call)) = (asked, model) else { return };
    let message = "what an activation is, and what of it waits for `W`, follows from the model".to_owned();
    let label = if place.is_some() { "given again" } else { "this model says it" };
    let error = Diagnostic::error(Code::RepeatedItem, place.unwrap_or(call.span), label, message);
    let error = if place.is_some() { error.label(call.span, "said by this model") } else { error };
    let error =
        error.help("leave `activation` out, and limit bytes instead of units: they are counted tensor by tensor");
    report.add(error.edit_with(place.map(|span| Edit { span, text: String::new() })));
}

/// Rule: there are the stages that numbers are about.
pub(super) fn check(asked: PlacedShares<'_>, schedule: &Schedule, report: &mut Report) {
    let (name, n_stages) = (&schedule.name, schedule.n_whole_stages());
    report.extend(asked.and_then(|(shares, _)| wrong_part(shares, schedule)));
    for entry in asked.into_iter().flat_map(|(shares, _)| &shares.entries) {
        let Some(last) = entry.name.last().filter(|last| last.index() >= n_stages) else { continue };
        let label = if entry.span.is_some() { format!("there is no {last}") } else { "this schedule".to_owned() };
        let message = format!(
            "`{}` includes {last}, but the last stage of `{name}` is s{}",
            entry.name,
            n_stages.saturating_sub(1)
        );
        report.add(Diagnostic::error(Code::OutOfRange, entry.span.unwrap_or(schedule.span), label, message));
    }
}

/// Rule: if `F` of a part is said, it is said of every part on compute, and of no other.
fn wrong_part(shares: &Shares, schedule: &Schedule) -> Option<Diagnostic> {
    let parts = &schedule.parts;
    let named = || shares.entries.iter().filter_map(|entry| Some((entry, entry.name.part()?)));
    let on_lane = |name: &str| {
        let rows = (0..parts.len()).map(StageId::from_index);
        rows.filter_map(|row| parts.part(row)).any(|part| &*part.name == name && part.lane.is_some())
    };
    let span = |entry: &Entry| entry.span.unwrap_or(schedule.span);
    if let Some((entry, name)) = named().find(|(_, name)| !parts.has(name)) {
        let message =
            format!("`activation` names `{}`, but no stage of `{}` has a part `{name}`", entry.name, schedule.name);
        let error = Diagnostic::error(Code::WrongPart, span(entry), "no such part", message);
        return Some(match parts.names().as_slice() {
            [] => error.help("name the parts of stages: `parts s = attention, experts`"),
            names => error.help(format!("its parts are {}", quoted(names))),
        });
    }
    if let Some((entry, name)) = named().find(|(_, name)| on_lane(name)) {
        let message = format!("`{name}` is on a lane, and what is on a lane holds no activations");
        let error = Diagnostic::error(Code::WrongPart, span(entry), "on a lane", message);
        return Some(error.help("give what it brings to the part that reads it"));
    }
    let (first, _) = named().find(|(entry, _)| entry.name.is_saved())?;
    let is_said = |name: &str| named().any(|(entry, other)| entry.name.is_saved() && other == name);
    let missing: Vec<&str> = parts.names().into_iter().filter(|name| !on_lane(name) && !is_said(name)).collect();
    (!missing.is_empty()).then(|| {
        let message = format!("`activation` says what `{}` holds, and not what other parts hold", first.name);
        let error = Diagnostic::error(Code::WrongPart, span(first), "one part of several", message);
        error.help(format!("name every part on compute: {} too", quoted(&missing)))
    })
}

/// Lets the activations of a schedule count what was said.
pub(super) fn apply(asked: PlacedShares<'_>, schedule: &mut Schedule, report: &mut Report) {
    let Some((shares, place)) = asked else { return };
    match shares.of(schedule.n_stages(), &schedule.parts).and_then(|activations| activations.sliced(&schedule.shares)) {
        Ok(activations) => schedule.activations = activations.without(&schedule.frozen, schedule.n_stages()),
        Err(parts) => {
            let message = format!(
                "an activation would have to be counted in {parts} parts, and at most {MOST_PARTS} are possible"
            );
            let label = if place.is_some() { "these numbers together" } else { "this schedule" };
            let error = Diagnostic::error(Code::OutOfRange, place.unwrap_or(schedule.span), label, message);
            report.add(error.help("round some of them, as `0.367` for `11/30`"));
        }
    }
}
