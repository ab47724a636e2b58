//! Numbers of pipelines: exact ones for costs, activations and requirements, whole ones for settings.

use pipe_schedule::ratio::{Ratio, gcd};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;
use pipe_syntax::ast::{BinaryOp, Expr, ExprKind, TaskNumber};
use pipe_syntax::diagnostic::{Code, Diagnostic, Edit};
use pipe_syntax::expr::evaluate::{Rule, exact, fraction};
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::fraction::Fraction;
use pipe_syntax::limits::MAX_COST;
use pipe_syntax::source::Span;

/// So many ticks are a unit: times have at most six digits after the decimal point.
const MILLION: i128 = 1_000_000;

/// The value of an expression as an exact time, in millionths of the unit.
pub(super) fn time(expr: &Expr, known: &Known<'_>) -> Result<Ticks, Fault> {
    time_at(&mut Rule::new(expr, &[], known)?, expr, &[])
}

/// The same of an expression with variables, where these have such values.
pub(super) fn time_at(rule: &mut Rule<'_>, expr: &Expr, values: &[i64]) -> Result<Ticks, Fault> {
    let value = rule.at(values)?;
    let (above, below) = value.parts();
    let mut fail = |reason: &str, help: Option<String>| {
        let result = match expr.kind {
            ExprKind::Integer(_) | ExprKind::Decimal(_) => "the number".to_owned(),
            _ => format!("the result is {value}, which"),
        };
        let error = Diagnostic::error(Code::OutOfRange, expr.span, "this number", format!("{result} {reason}"));
        Err(rule.explained(Diagnostic { help, ..error }))
    };
    if above < 0 {
        return fail("is below 0", None);
    }
    let millionths = above * MILLION;
    if millionths % below != 0 {
        return fail("has more than 6 digits after the decimal point", Some(help(finer(below))));
    }
    match u64::try_from(millionths / below) {
        Ok(value) => Ok(Ticks(value)),
        Err(_) => fail("is too large", None),
    }
}

fn help(by: i128) -> String {
    format!("costs may have any unit: multiply all of them by {by}")
}

/// By how much a time that is a fraction with this denominator has to be multiplied to have six digits.
fn finer(below: i128) -> i128 {
    below / gcd(below, MILLION)
}

/// A finding of [`time`] about a cost with the edits that multiply all costs of its line, so that each has six digits.
pub(super) fn scaled(found: Diagnostic, costs: &[TaskNumber], known: &Known<'_>) -> Diagnostic {
    match multiplied(costs, known).filter(|_| found.help.is_some()) {
        Some((by, edits)) => {
            edits.into_iter().fold(found.help(help(by)), |found, edit| found.edit(edit.span, edit.text))
        }
        None => found,
    }
}

/// A number, and the edits that multiply all costs of a line by it. None where a cost is not known, or where they would
/// be too large.
fn multiplied(costs: &[TaskNumber], known: &Known<'_>) -> Option<(i128, Vec<Edit>)> {
    let each: Vec<(&Expr, Fraction)> =
        costs.iter().map(|cost| Some((&cost.value, fraction(&cost.value, known).ok()?))).collect::<Option<_>>()?;
    let by = each.iter().try_fold(1_i128, |all, (_, value)| {
        let own = finer(value.parts().1);
        all.checked_mul(own / gcd(all, own)).filter(|all| *all <= MILLION)
    })?;
    let edit = |(expr, value): &(&Expr, Fraction)| {
        let (above, below) = value.parts();
        let before = Span { end: expr.span.start, ..expr.span };
        let insert = |span: Span, text: String| vec![Edit { span, text }];
        match &expr.kind {
            ExprKind::Integer(_) if below == 1 => insert(expr.span, (above * by).to_string()),
            ExprKind::Integer(_)
            | ExprKind::Decimal(_)
            | ExprKind::Name(_)
            | ExprKind::Call(_)
            | ExprKind::Binary(BinaryOp::Multiply | BinaryOp::Divide, ..) => insert(before, format!("{by} * ")),
            _ => {
                let behind = Span { start: expr.span.end, ..expr.span };
                vec![Edit { span: before, text: format!("{by} * (") }, Edit { span: behind, text: ")".to_owned() }]
            }
        }
    };
    Some((by, each.iter().flat_map(edit).collect()))
}

/// The value of an expression as a ratio of two numbers.
pub(super) fn ratio(expr: &Expr, known: &Known<'_>) -> Result<Ratio, Fault> {
    ratio_at(&mut Rule::new(expr, &[], known)?, expr, &[])
}

/// The same of an expression with variables, where these have such values.
pub(super) fn ratio_at(rule: &mut Rule<'_>, expr: &Expr, values: &[i64]) -> Result<Ratio, Fault> {
    let value = rule.at(values)?;
    let (above, below) = value.parts();
    let part = |number: i128| u64::try_from(number).ok().filter(|number| *number <= MAX_COST);
    part(above).zip(part(below)).and_then(|(above, below)| Ratio::new(above, below)).ok_or_else(|| {
        let reason = if above < 0 { "is below 0" } else { "is too large, or has too many digits" };
        rule.explained(*outside(expr.span, format!("{value} {reason}")))
    })
}

/// What is known where a schedule is: also how many devices, microbatches and stages it has.
pub(super) fn in_schedule<'a>(known: &Known<'a>, schedule: &Schedule) -> Known<'a> {
    let slices = schedule.slices.count();
    let counts = [
        ("D", schedule.n_devices()),
        ("M", (schedule.microbatches_of_step() / slices) as usize),
        ("S", schedule.n_whole_stages()),
        ("Q", slices as usize),
    ];
    let n_known = if slices > 1 { counts.len() } else { counts.len() - 1 };
    let counts = counts.into_iter().take(n_known);
    known.and(counts.map(|(name, count)| (name, i64::try_from(count).unwrap_or(i64::MAX))))
}

/// A whole number from `low` on.
pub(super) fn whole<T: TryFrom<i64>>(expr: &Expr, known: &Known<'_>, low: i64, what: &str) -> Result<T, Fault> {
    let value = exact(expr, known)?;
    match T::try_from(value) {
        Ok(number) if value >= low => Ok(number),
        _ => Err(outside(expr.span, format!("{what} is {value}; it must be {low} or more, and fit"))),
    }
}

/// The value of a rule for all devices, stages or the like where its variables have these values: a whole number from 1
/// on.
pub(super) fn whole_at(rule: &mut Rule<'_>, expr: &Expr, values: &[i64], what: &str) -> Result<u64, Fault> {
    let value = rule.at(values)?;
    let (above, below) = value.parts();
    let number = u64::try_from(above).ok().filter(|number| below == 1 && *number > 0);
    number.ok_or_else(|| {
        let message = format!("{what} is {value}; it must be a whole number, 1 or more, and fit");
        rule.explained(*outside(expr.span, message))
    })
}

pub(super) fn outside(span: Span, message: String) -> Fault {
    Box::new(Diagnostic::error(Code::OutOfRange, span, "out of range", message))
}
