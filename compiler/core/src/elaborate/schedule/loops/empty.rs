//! Rule: a loop ends above its start, as far as numbers that are written out tell.

use super::super::items::variables_of;
use pipe_syntax::ast::{BinaryOp, Expr, ExprKind, Name, Statement, UnaryOp};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

/// What is wrong with a loop that never runs, whatever names stand for. Loops over microbatches or stages start at 0 or
/// above, so that none of them ends at 0. `open` is the bracket of the loop's body.
pub(in super::super) fn check(
    variable: &Name,
    [start, end]: [&Expr; 2],
    (open, body): (Span, &[Statement]),
) -> Option<Diagnostic> {
    let last = literal(end)?;
    if literal(start).map_or(last > 0, |first| first <= last) {
        return None;
    }
    let mut taken = vec![variable];
    variables_of(body, &mut taken);
    let is_free = |name: &&str| taken.iter().all(|taken| taken.text != *name);
    let (name, counter) = (&variable.text, ["k", "i", "j"].into_iter().find(is_free).unwrap_or("k2"));
    let from = written(start).unwrap_or_else(|| "its start".to_owned());
    let message = format!("the loop never runs: it counts up from {from}, but its end is {last}");
    let (count, first) = downwards(start, last);
    let (head, line) = (format!("{counter} in 0..{count}"), format!("let {name} = {first} - {counter}"));
    let is_known = count != "n";
    let turns = if is_known { "" } else { ", with n as the number of turns" };
    let span = Span { end: end.span.end, ..start.span };
    let found = Diagnostic::error(Code::OutOfRange, span, "counts up, not down", message)
        .help(format!("to count down, write `for {head} {{ {line} .. }}`{turns}"));
    Some(if is_known {
        let inside = Span { start: open.end, ..open };
        found.edit(Span { end: end.span.end, ..variable.span }, head).edit(inside, format!(" {line} "))
    } else {
        found
    })
}

/// How often a loop runs that counts down to `last`, or to 0 where that is below, and from where.
fn downwards(start: &Expr, last: i64) -> (String, String) {
    let last = last.max(0);
    if let Some(first) = literal(start) {
        return (first.saturating_sub(last).saturating_add(1).to_string(), first.to_string());
    }
    match (one_below(start), &start.kind) {
        // A count that is named: its last one is one below.
        (Some(count), _) if last == 0 => (count.clone(), format!("{count} - 1")),
        (None, ExprKind::Name(name)) if last == 0 => (name.clone(), format!("{name} - 1")),
        _ => ("n".to_owned(), "n - 1".to_owned()),
    }
}

/// What stands in `.. - 1`: a name, or the sum, difference or product of two names or numbers.
fn one_below(expr: &Expr) -> Option<String> {
    let ExprKind::Binary(BinaryOp::Subtract, left, right) = &expr.kind else { return None };
    let plain = |expr: &Expr| match &expr.kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Integer(number) => Some(number.to_string()),
        _ => None,
    };
    let text = match &left.kind {
        ExprKind::Binary(operator @ (BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply), one, other) => {
            Some(format!("{} {} {}", plain(one)?, operator.symbol(), plain(other)?))
        }
        _ => plain(left),
    };
    text.filter(|_| literal(right) == Some(1))
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
