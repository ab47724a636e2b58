//! Rule: a loop ends above its start, as far as numbers that are written out tell.

use pipe_syntax::ast::{BinaryOp, Expr, ExprKind, Name, UnaryOp};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

/// What is wrong with a loop that never runs, whatever names stand for. Loops over microbatches or stages start at 0 or
/// above, so that none of them ends at 0.
pub(super) fn check(variable: &Name, start: &Expr, end: &Expr) -> Option<Diagnostic> {
    let last = literal(end)?;
    if literal(start).map_or(last > 0, |first| first <= last) {
        return None;
    }
    let (name, counter) = (&variable.text, if variable.text == "k" { "i" } else { "k" });
    let from = written(start).unwrap_or_else(|| "its start".to_owned());
    let message = format!("the loop never runs: it counts up from {from}, but its end is {last}");
    let (count, first) = downwards(start, last);
    let help = format!(
        "to count down, write `for {counter} in 0..{count} {{ let {name} = {first} - {counter} .. }}`{}",
        if count == "n" { ", with n as the number of turns" } else { "" }
    );
    let span = Span { end: end.span.end, ..start.span };
    Some(Diagnostic::error(Code::OutOfRange, span, "counts up, not down", message).help(help))
}

/// How often a loop runs that counts down to `last`, or to 0 where that is below, and from where.
fn downwards(start: &Expr, last: i64) -> (String, String) {
    let last = last.max(0);
    if let Some(first) = literal(start) {
        return (first.saturating_sub(last).saturating_add(1).to_string(), first.to_string());
    }
    match (one_below(start), &start.kind) {
        // A count that is named: its last one is one below.
        (Some(name), _) | (None, ExprKind::Name(name)) if last == 0 => (name.clone(), format!("{name} - 1")),
        _ => ("n".to_owned(), "n - 1".to_owned()),
    }
}

/// The name in `name - 1`.
fn one_below(expr: &Expr) -> Option<&String> {
    match &expr.kind {
        ExprKind::Binary(BinaryOp::Subtract, left, right) if literal(right) == Some(1) => match &left.kind {
            ExprKind::Name(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// A number or a name, perhaps less 1, as it is written.
fn written(expr: &Expr) -> Option<String> {
    let name = |expr: &Expr| if let ExprKind::Name(name) = &expr.kind { Some(format!("`{name}`")) } else { None };
    let below = || one_below(expr).map(|name| format!("`{name} - 1`"));
    literal(expr).map(|number| number.to_string()).or_else(|| name(expr)).or_else(below)
}

/// A number that is written out, perhaps with a sign.
fn literal(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Integer(number) => Some(*number),
        ExprKind::Unary(UnaryOp::Negate, operand) => literal(operand).map(i64::saturating_neg),
        _ => None,
    }
}
