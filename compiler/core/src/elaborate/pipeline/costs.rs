//! `cost`: how long tasks take, by kind, stage, microbatch and slice.

use super::number::{in_schedule, outside, scaled, time, time_at};
use super::rules::{Counts, counts, kind_and_part, letters, unnamed};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::parts::PartCost;
use pipe_schedule::timing::costs::{CostName, Entry, StageCosts};
use pipe_schedule::units::Ticks;
use pipe_syntax::ast::TaskNumber;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::edits;
use pipe_syntax::expr::evaluate::Rule;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::{MAX_COST, Report};
use pipe_syntax::source::Span;
use std::sync::Arc;

/// Durations from a pipeline's line: 1 for each kind, `BW` as `B` and `W` together, no latency, unless it says
/// otherwise. Where there is no schedule, those that depend on the stage or the microbatch are left out; `turn`
/// says whether it has only a turn of its microbatches.
pub(super) fn of_line(
    (durations, line): (&[TaskNumber], Span),
    (known, schedule, turn): (&Known<'_>, Option<&Schedule>, bool),
    report: &mut Report,
) -> Option<StageCosts> {
    let mut entries: Vec<Entry> = Vec::new();
    let written: Vec<Span> = durations.iter().map(|cost| Span { end: cost.value.span.end, ..cost.name.span }).collect();
    for (index, cost) in durations.iter().enumerate() {
        let TaskNumber { name, variables, value, .. } = cost;
        let cut = if written.len() == 1 { Some(line) } else { edits::one_of(&written, index) };
        let repeated = |subject: &dyn std::fmt::Display| {
            let message = format!("`cost` gives `{subject}` twice");
            Diagnostic::error(Code::RepeatedItem, name.span, "given again", message)
        };
        if !variables.is_empty() {
            let is_same = |other: &TaskNumber| !other.variables.is_empty() && letters(other) == letters(cost);
            if durations[..index].iter().any(is_same) {
                report.add(repeated(&name.text));
            }
            let found = schedule.map_or(Ok(Vec::new()), |schedule| each(cost, cut, (known, schedule, turn)));
            entries.extend(report.take(found.map_err(|fault| unnamed(fault, cost)))?);
            continue;
        }
        let time = time(value, known).map_err(|found| unnamed(Box::new(scaled(*found, durations, known)), cost));
        let time = report.take(time)?;
        if time.0 > MAX_COST {
            report.add(*too_long(cost, time));
        }
        let subject: CostName = match name.text.parse() {
            Ok(subject) => subject,
            Err(_) if name.text.contains('&') => {
                let message = format!("`{}` is not a forward and a backward", name.text);
                let error = Diagnostic::error(Code::WrongPair, name.span, "not a pair", message);
                report.add(error.help("costs of pairs are `F & BW`, and `F & B` where the backward is split"));
                continue;
            }
            Err(reason) => {
                report.add(*outside(name.span, format!("`{}`: {reason}", name.text)));
                continue;
            }
        };
        if entries.iter().any(|entry| entry.rule.is_none() && entry.name == subject) {
            report.add(repeated(&subject));
        }
        entries.push(Entry { span: Some(name.span), cut, ..Entry::new(subject, time) });
    }
    let costs = StageCosts::of(entries);
    if let Some((kind, message)) = costs.hasty_pair() {
        let is_pair = |cost: &&TaskNumber| cost.name.text.parse() == Ok(CostName::Pair(kind));
        let span = durations.iter().find(is_pair).map(|cost| cost.value.span)?;
        let error = Diagnostic::error(Code::OutOfRange, span, "too short", message);
        report.add(error.help("two tasks that share a device end together, so no earlier than either could alone"));
    }
    Some(costs)
}

fn too_long(cost: &TaskNumber, time: Ticks) -> Fault {
    let message = format!("`{}` takes {time}; at most {} units are possible", cost.name.text, Ticks(MAX_COST));
    outside(cost.value.span, message)
}

/// `F[s, m] = 1 + s`: what it says of each stage.
fn each(
    cost: &TaskNumber,
    cut: Option<Span>,
    (known, schedule, turn): (&Known<'_>, &Schedule, bool),
) -> Result<Vec<Entry>, Fault> {
    let Counts { kind, stages, microbatches, slices } = counts(cost, schedule)?;
    let known = in_schedule(known, schedule);
    let mut rule = Rule::new(&cost.value, &cost.variables, &known)?;
    let mut at = |values: &[i64]| {
        let time = time_at(&mut rule, &cost.value, values)?;
        if time.0 > MAX_COST { Err(too_long(cost, time)) } else { Ok(time) }
    };
    // Where a slice has no name, all of a microbatch take as long.
    let all_slices = schedule.slices.count() as usize;
    let text: Arc<str> = cost.name.text.as_str().into();
    let part: Option<Arc<str>> = kind_and_part(letters(cost)).1.map(Arc::from);
    let name = |stage: u32| match &part {
        None => CostName::Stages(kind, stage..stage + 1),
        Some(part) => CostName::Part(PartCost { kind, part: Arc::clone(part), stages: Some(stage..stage + 1) }),
    };
    let of_stage = |stage: u32| {
        let mut times = Vec::with_capacity(microbatches as usize * all_slices);
        for microbatch in 0..microbatches {
            for slice in 0..slices {
                let time = at(&[stage, microbatch, slice].map(i64::from))?;
                times.extend(std::iter::repeat_n(time, all_slices / slices as usize));
            }
        }
        let least = times.iter().min().copied().unwrap_or_default();
        // Where only a turn of all microbatches is written out, the others may differ.
        let varies = turn && cost.variables.len() > 1 || times.iter().any(|time| *time != least);
        Ok(Entry {
            span: Some(cost.name.span),
            cut,
            each: varies.then(|| times.into()),
            rule: Some(Arc::clone(&text)),
            ..Entry::new(name(stage), least)
        })
    };
    (0..stages).map(of_stage).collect()
}
