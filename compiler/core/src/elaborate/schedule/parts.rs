//! `lane` and `parts`: the parts of each stage's tasks, and the queues beside compute that some of them run on.

use super::Writer;
use super::items::Items;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::parts::{Named, StageParts};
use pipe_schedule::step_tasks::{Carried, CarriedLanes};
use pipe_syntax::ast::{self, Expr, PartItem, PartList};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::evaluate::Rule;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::{MAX_STAGES, within};
use pipe_syntax::source::Span;
use pipe_syntax::suggest;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most lanes of a device.
const MOST_LANES: usize = 16;
/// The most parts of a stage.
const MOST_PARTS: usize = 1 << 10;

/// The lanes and parts that a pipeline names for its schedule.
#[derive(Clone, Copy)]
pub(in crate::elaborate) struct PipelineParts<'a> {
    pub(in crate::elaborate) lanes: &'a [&'a ast::Lane],
    pub(in crate::elaborate) parts: Option<&'a ast::StageParts>,
    /// What its numbers may name.
    pub(in crate::elaborate) known: &'a Known<'a>,
}

/// Evaluates a number or a condition of a list of parts for a stage.
type Evaluate<'e, 'a> = dyn FnMut(&'a Expr, Asked) -> Result<i64, Fault> + 'e;

/// What an expression is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Condition,
    Number,
}

/// The lanes that the schedule and its pipeline declare.
fn declared<'a>(items: &Items<'a>, outside: Option<PipelineParts<'a>>) -> Vec<&'a ast::Lane> {
    let of_pipeline = outside.map_or(&[][..], |outside| outside.lanes);
    items.lanes.iter().chain(of_pipeline).copied().collect()
}

/// What takes turns on lanes beside parts.
///
/// # Errors
/// If two lanes have one name, or carry the same.
pub(super) fn carried<'a>(items: &Items<'a>, outside: Option<PipelineParts<'a>>) -> Result<CarriedLanes, Fault> {
    let lanes = declared(items, outside);
    check_lanes(&lanes)?;
    let mut of = [None; Carried::ALL.len()];
    let mut said: [Option<Span>; Carried::ALL.len()] = of.map(|_: Option<usize>| None);
    for (place, lane) in lanes.iter().enumerate() {
        for (carried, span) in &lane.carries {
            if let Some(first) = said[*carried as usize].replace(*span) {
                let word = carried.word();
                let is_same = of[*carried as usize] == Some(place);
                let why = if is_same { "stands twice" } else { "is on two lanes, and takes turns on one" };
                let message = format!("`{word}` {why}");
                let error = Diagnostic::error(Code::RepeatedItem, *span, "named again", message);
                return Err(Box::new(error.label(first, "named here")));
            }
            of[*carried as usize] = Some(place);
        }
    }
    Ok(CarriedLanes::new(lanes.iter().map(|lane| Arc::from(lane.name.text.as_str())).collect(), of))
}

/// The parts of all stages, as the schedule or its pipeline names them. Empty if neither does.
pub(super) fn parts<'a>(
    writer: &mut Writer<'a>,
    items: &Items<'a>,
    outside: Option<PipelineParts<'a>>,
    n_stages: u32,
) -> Result<StageParts, Fault> {
    let lanes = declared(items, outside);
    let line = match (items.parts, outside.and_then(|outside| outside.parts)) {
        (None, None) => return Ok(StageParts::default()),
        (Some(own), Some(other)) => {
            let message = "the schedule already names the parts of its stages";
            let error = Diagnostic::error(Code::RepeatedItem, other.span, "named again", message);
            let help = "leave `parts` and `lane` of the pipeline out";
            return Err(Box::new(error.label(own.span, "named here").help(help)));
        }
        (Some(line), _) | (None, Some(line)) => line,
    };
    if let Some((weights, span)) = writer.weights {
        let message = format!("`weights {}` runs whole stages, and this schedule names parts of them", weights.word());
        let error = Diagnostic::error(Code::RepeatedItem, line.span, "names parts", message);
        return Err(Box::new(error.label(span, "given here").help("choose `weights flush`, or leave `parts` out")));
    }
    let mut all = Vec::with_capacity(n_stages as usize);
    let mut n_parts = 0;
    let known = outside.map(|outside| outside.known.and([("S", i64::from(n_stages))]));
    let slot = if items.parts.is_some() { Some(writer.variable(&line.stage)?) } else { None };
    for stage in 0..n_stages {
        let mut named = Vec::new();
        match (slot, &known) {
            (None, Some(known)) => {
                let variable = std::slice::from_ref(&line.stage);
                let mut evaluate = |expr: &'a Expr, asked| match asked {
                    Asked::Condition => {
                        Ok(i64::from(Rule::condition(expr, variable, known)?.holds(&[i64::from(stage)])?))
                    }
                    Asked::Number => whole(expr, &mut Rule::new(expr, variable, known)?, stage),
                };
                list(&line.list, &lanes, &mut evaluate, &mut named)?;
            }
            _ => {
                slot.into_iter().for_each(|slot| writer.machine.set(slot, i64::from(stage)));
                let mut evaluate = |expr: &'a Expr, asked| {
                    writer.machine.spend(1, expr)?;
                    let code = match asked {
                        Asked::Condition => writer.scope.condition(expr)?,
                        Asked::Number => writer.scope.number(expr)?,
                    };
                    writer.eval(&code)
                };
                list(&line.list, &lanes, &mut evaluate, &mut named)?;
            }
        }
        if named.iter().all(|(_, lane)| lane.is_some()) {
            let (what, label) = match named.len() {
                0 => ("no parts", format!("nothing for s{stage}")),
                _ => ("no part on compute", format!("only lanes for s{stage}")),
            };
            let message = format!("s{stage} has {what}, and a stage computes something");
            let error = Diagnostic::error(Code::WrongPart, line.span, label, message);
            return Err(Box::new(error.help("name a part without `on`")));
        }
        n_parts += named.len();
        within("parts", i64::try_from(n_parts).unwrap_or(i64::MAX), 1..=MAX_STAGES, line.span)?;
        all.push(named);
    }
    slot.into_iter().for_each(|slot| writer.machine.restore(slot, None));
    let lanes = lanes.iter().map(|lane| Arc::from(lane.name.text.as_str())).collect();
    Ok(StageParts::new(lanes, &all, &writer.placement))
}

fn whole(expr: &Expr, rule: &mut Rule<'_>, stage: u32) -> Result<i64, Fault> {
    let value = rule.at(&[i64::from(stage)])?;
    let (above, below) = value.parts();
    i64::try_from(above).ok().filter(|_| below == 1).ok_or_else(|| {
        let message = format!("parts are repeated {value} times; it must be a whole number");
        Box::new(Diagnostic::error(Code::OutOfRange, expr.span, format!("this is {value}"), message))
    })
}

/// Adds the parts of a list.
fn list<'a>(
    written: &'a PartList,
    lanes: &[&ast::Lane],
    evaluate: &mut Evaluate<'_, 'a>,
    named: &mut Named,
) -> Result<(), Fault> {
    for (condition, then) in &written.branches {
        if evaluate(condition, Asked::Condition)? == 1 {
            return list(then, lanes, evaluate, named);
        }
    }
    for item in &written.otherwise {
        match item {
            PartItem::Part { name, lane } => {
                let lane = lane.as_ref().map(|lane| lane_of(lane, lanes)).transpose()?;
                named.push((Arc::from(name.text.as_str()), lane));
                if named.len() > MOST_PARTS {
                    let message = format!("a stage has more than {MOST_PARTS} parts");
                    return Err(Box::new(Diagnostic::error(Code::TooLarge, name.span, "one too many", message)));
                }
            }
            PartItem::Repeat { count, body } => {
                let most = i64::try_from(MOST_PARTS).unwrap_or(i64::MAX);
                let turns = evaluate(count, Asked::Number)?;
                let turns: i64 = if turns > most { within_turns(turns, count.span)? } else { turns };
                for _ in 0..turns {
                    let before = named.len();
                    list(body, lanes, evaluate, named)?;
                    // All turns name the same.
                    if named.len() == before {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

fn within_turns(turns: i64, span: Span) -> Result<i64, Fault> {
    let message = format!("parts are repeated {turns} times, and a stage has at most {MOST_PARTS} parts");
    Err(Box::new(Diagnostic::error(Code::OutOfRange, span, format!("this is {turns}"), message)))
}

/// The position of a lane among those that are declared.
fn lane_of(name: &ast::Name, lanes: &[&ast::Lane]) -> Result<usize, Fault> {
    lanes.iter().position(|lane| lane.name.text == name.text).ok_or_else(|| {
        let message = format!("unknown lane `{}`", name.text);
        let error = Diagnostic::error(Code::UnknownName, name.span, "not declared", message);
        let known = || lanes.iter().map(|lane| lane.name.text.as_str());
        let error = error.suggest(name.span, &name.text, known());
        Box::new(if suggest::question(&name.text, known()).is_some() {
            error
        } else {
            error.help(format!("declare it: `lane {}`", name.text))
        })
    })
}

/// Rule: lanes have different names, and there are not too many.
fn check_lanes(lanes: &[&ast::Lane]) -> Result<(), Fault> {
    for (index, lane) in lanes.iter().enumerate() {
        let name = &lane.name.text;
        if let Some(first) = lanes[..index].iter().find(|first| first.name.text == *name) {
            let message = format!("lane `{name}` is declared twice");
            let error = Diagnostic::error(Code::RepeatedItem, lane.span, "declared again", message);
            return Err(Box::new(error.label(first.span, "declared here")));
        }
        if index == MOST_LANES {
            let message = format!("a device has more than {MOST_LANES} lanes");
            return Err(Box::new(Diagnostic::error(Code::TooLarge, lane.span, "one too many", message)));
        }
    }
    Ok(())
}

/// The error for a name that no stage, or not this one, has as a part. `stage` is the stage at hand, if it is one.
pub(super) fn unknown(parts: &StageParts, name: &ast::Name, stage: Option<usize>) -> Diagnostic {
    let names = parts.names();
    let Some(own) = stage.filter(|_| !parts.is_empty()) else {
        let message = format!("no stage has a part `{}`", name.text);
        let error = Diagnostic::error(Code::WrongPart, name.span, "no such part", message);
        if names.is_empty() {
            return error.help("name the parts of stages: `parts s = attention, experts`");
        }
        return error.suggest(name.span, &name.text, names.iter().copied());
    };
    let rows = parts.rows(StageId::from_index(own)).map(StageId::from_index);
    let own_names: BTreeSet<&str> = rows.filter_map(|row| Some(&*parts.part(row)?.name)).collect();
    let message = format!("s{own} has no part `{}`", name.text);
    let error = Diagnostic::error(Code::WrongPart, name.span, format!("not a part of s{own}"), message);
    error.suggest(name.span, &name.text, own_names)
}

/// The error for `W` or `R` of a part on a lane.
pub(super) fn no_weights(kind: TaskKind, name: &ast::Name) -> Diagnostic {
    let (kind, name_text) = (kind.letters(), &name.text);
    let message = format!("`{name_text}` is on a lane, and a part on a lane has no `{kind}`");
    let error = Diagnostic::error(Code::WrongPart, name.span, "on a lane", message);
    error.help("parts on lanes move data: they run `F`, and `B` or `BW`")
}
