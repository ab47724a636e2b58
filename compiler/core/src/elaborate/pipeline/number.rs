//! Numbers of pipelines: exact ones for costs, activations and requirements, whole ones for settings.

use pipe_schedule::ratio::{Ratio, gcd};
use pipe_schedule::units::Ticks;
use pipe_syntax::ast::{Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::evaluate::{exact, explained, fraction};
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::MAX_COST;
use pipe_syntax::source::Span;

/// So many ticks are a unit: times have at most six digits after the decimal point.
const MILLION: i128 = 1_000_000;

/// The value of an expression as an exact time, in millionths of the unit.
pub(super) fn time(expr: &Expr, values: &Values) -> Result<Ticks, Fault> {
    let value = fraction(expr, values)?;
    let (above, below) = value.parts();
    let result = match expr.kind {
        ExprKind::Integer(_) | ExprKind::Decimal(_) => "the number".to_owned(),
        _ => format!("the result is {value}, which"),
    };
    let fail = |reason: &str, help: Option<String>| {
        let error = Diagnostic::error(Code::OutOfRange, expr.span, "this number", format!("{result} {reason}"));
        Err(explained(Diagnostic { help, ..error }, expr, values))
    };
    if above < 0 {
        return fail("is below 0", None);
    }
    let scaled = above * MILLION;
    if scaled % below != 0 {
        let by = below / gcd(below, MILLION);
        let help = format!("costs may have any unit: multiply all of them by {by}");
        return fail("has more than 6 digits after the decimal point", Some(help));
    }
    match u64::try_from(scaled / below) {
        Ok(value) => Ok(Ticks(value)),
        Err(_) => fail("is too large", None),
    }
}

/// The value of an expression as a ratio of two numbers.
pub(super) fn ratio(expr: &Expr, values: &Values) -> Result<Ratio, Fault> {
    let value = fraction(expr, values)?;
    let (above, below) = value.parts();
    let part = |number: i128| u64::try_from(number).ok().filter(|number| *number <= MAX_COST);
    part(above).zip(part(below)).and_then(|(above, below)| Ratio::new(above, below)).ok_or_else(|| {
        let reason = if above < 0 { "is below 0" } else { "is too large, or has too many digits" };
        explained(*outside(expr.span, format!("{value} {reason}")), expr, values)
    })
}

/// A whole number from `low` on.
pub(super) fn whole<T: TryFrom<i64>>(expr: &Expr, values: &Values, low: i64, what: &str) -> Result<T, Fault> {
    let value = exact(expr, values)?;
    match T::try_from(value) {
        Ok(number) if value >= low => Ok(number),
        _ => Err(outside(expr.span, format!("{what} is {value}; it must be {low} or more, and fit"))),
    }
}

pub(super) fn outside(span: Span, message: String) -> Fault {
    Box::new(Diagnostic::error(Code::OutOfRange, span, "out of range", message))
}
