//! Numbers that are written out: exact ones for costs and requirements, whole ones for settings.

use super::arguments::Values;
use super::exact::exact;
use super::limits::MAX_COST;
use super::scope::Fault;
use crate::activation::Ratio;
use crate::diagnostic::{Code, Diagnostic};
use crate::pipeline::Share;
use crate::source::Span;
use crate::syntax::ast::{Expr, ExprKind};

/// A literal as an exact number of millionths.
pub(super) fn millionths(expr: &Expr) -> Result<Share, Fault> {
    let fail = |reason: &str| {
        let message = format!("the number {reason}");
        Err(Box::new(Diagnostic::error(Code::OutOfRange, expr.span, "this number", message)))
    };
    let value = match &expr.kind {
        ExprKind::Integer(value) => i128::from(*value) * 1_000_000,
        ExprKind::Decimal(decimal) => {
            let scaled = i128::from(decimal.digits) * 1_000_000;
            let divisor = 10i128.pow(decimal.scale.min(18));
            if scaled % divisor != 0 {
                return fail("has more than 6 digits behind the point");
            }
            scaled / divisor
        }
        _ => return fail("is not written out"),
    };
    match u64::try_from(value) {
        Ok(value) => Ok(Share(value)),
        Err(_) => fail("is too large"),
    }
}

/// A literal, or one divided by another, as an exact number.
pub(super) fn ratio(above: &Expr, below: Option<&Expr>) -> Result<Ratio, Fault> {
    let Share(number) = millionths(above)?;
    let Share(divisor) = below.map_or(Ok(Share::ONE), millionths)?;
    let span = below.map_or(above.span, |below| below.span);
    let by_zero = || Box::new(Diagnostic::error(Code::Arithmetic, span, "this is 0", "division by zero".to_owned()));
    let most = MAX_COST.max(number).max(divisor);
    if most > MAX_COST {
        return Err(outside(
            above.span,
            format!("{} is too large; at most {} is possible", Share(most), Share(MAX_COST)),
        ));
    }
    Ratio::new(number, divisor).ok_or_else(by_zero)
}

/// A whole number from `low` on.
pub(super) fn whole<T: TryFrom<i64>>(expr: &Expr, values: &Values, low: i64, what: &str) -> Result<T, Fault> {
    let value = exact(expr, values).map_err(Box::new)?;
    match T::try_from(value) {
        Ok(number) if value >= low => Ok(number),
        _ => Err(outside(expr.span, format!("{what} is {value}; it must be {low} or more, and fit"))),
    }
}

pub(super) fn outside(span: Span, message: String) -> Fault {
    Box::new(Diagnostic::error(Code::OutOfRange, span, "out of range", message))
}
