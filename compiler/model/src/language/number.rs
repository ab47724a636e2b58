//! Arithmetic on numbers. Integers and fractions stay exact: `1 / 256` is no decimal, `%` takes the
//! sign of the divisor, and a whole number that leaves 64 bits is an error. With a decimal on
//! either side the result is a decimal.
#![expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "decimals in a layer are constants of tensors, which are floating-point numbers"
)]

use super::value::Value;
use pipe_syntax::ast::BinaryOp;
use pipe_syntax::fraction::Fraction;

/// Why an operation on numbers has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Division by zero, or a result outside 64 bits; in words.
    Arithmetic(&'static str),
    /// The operands are of the wrong type.
    Type,
}

/// A number as a floating-point one.
pub(super) fn to_f64(value: Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(value as f64),
        Value::Fraction(value) => Some(value.to_f64()),
        Value::Decimal(value) => Some(value),
        Value::Condition(_) | Value::Tensor(_) | Value::Layer(_) | Value::Unknown => None,
    }
}

/// A number that is exact.
fn exact(value: Value) -> Option<Fraction> {
    match value {
        Value::Integer(value) => Some(Fraction::whole(value)),
        Value::Fraction(value) => Some(value),
        Value::Decimal(_) | Value::Condition(_) | Value::Tensor(_) | Value::Layer(_) | Value::Unknown => None,
    }
}

fn of(value: Fraction) -> Value {
    value.as_whole().map_or(Value::Fraction(value), Value::Integer)
}

/// `-x`
pub(super) fn negate(value: Value) -> Result<Value, Fault> {
    match value {
        Value::Integer(value) => value.checked_neg().map(Value::Integer).ok_or(OVERFLOW),
        Value::Fraction(value) => Fraction::whole(0).minus(value).map(of).ok_or(OVERFLOW),
        Value::Decimal(value) => Ok(Value::Decimal(-value)),
        _ => Err(Fault::Type),
    }
}

/// The square root.
pub(super) fn sqrt(value: Value) -> Result<Value, Fault> {
    match to_f64(value) {
        Some(value) if value >= 0.0 => Ok(Value::Decimal(value.sqrt())),
        Some(_) => Err(Fault::Arithmetic("a negative number has no square root")),
        None => Err(Fault::Type),
    }
}

/// The smaller or the larger of two numbers.
pub(super) fn extreme(a: Value, b: Value, largest: bool) -> Result<Value, Fault> {
    let Value::Condition(is_less) = binary(BinaryOp::Less, a, b)? else { return Err(Fault::Type) };
    Ok(if is_less == largest { b } else { a })
}

const OVERFLOW: Fault = Fault::Arithmetic("the result does not fit in 64 bits");

/// An operator on two numbers or conditions.
pub(super) fn binary(operator: BinaryOp, a: Value, b: Value) -> Result<Value, Fault> {
    if let (Value::Condition(a), Value::Condition(b)) = (a, b) {
        return conditions(operator, a, b);
    }
    let (Some(left), Some(right)) = (to_f64(a), to_f64(b)) else { return Err(Fault::Type) };
    match (exact(a), exact(b)) {
        (Some(a), Some(b)) => match fractions(operator, a, b) {
            // A fraction of so many digits is not whole, whatever is done with it.
            Err(OVERFLOW) if a.as_whole().is_none() || b.as_whole().is_none() => decimals(operator, left, right),
            result => result,
        },
        _ => decimals(operator, left, right),
    }
}

fn fractions(operator: BinaryOp, a: Fraction, b: Fraction) -> Result<Value, Fault> {
    let number = |result: Option<Fraction>| result.map(of).ok_or(OVERFLOW);
    match operator {
        BinaryOp::Add => number(a.plus(b)),
        BinaryOp::Subtract => number(a.minus(b)),
        BinaryOp::Multiply => number(a.times(b)),
        BinaryOp::Divide | BinaryOp::Modulo if b == Fraction::whole(0) => Err(Fault::Arithmetic("the divisor is 0")),
        BinaryOp::Divide => number(a.over(b)),
        BinaryOp::Modulo => number(a.modulo(b)),
        BinaryOp::Equal => Ok(Value::Condition(a == b)),
        BinaryOp::NotEqual => Ok(Value::Condition(a != b)),
        BinaryOp::Less => Ok(Value::Condition(a < b)),
        BinaryOp::LessEqual => Ok(Value::Condition(a <= b)),
        BinaryOp::Greater => Ok(Value::Condition(a > b)),
        BinaryOp::GreaterEqual => Ok(Value::Condition(a >= b)),
        BinaryOp::And | BinaryOp::Or => Err(Fault::Type),
    }
}

fn decimals(operator: BinaryOp, a: f64, b: f64) -> Result<Value, Fault> {
    let number = |result: f64| {
        if result.is_finite() {
            Ok(Value::Decimal(result))
        } else {
            Err(Fault::Arithmetic("the result is not a finite number"))
        }
    };
    match operator {
        BinaryOp::Add => number(a + b),
        BinaryOp::Subtract => number(a - b),
        BinaryOp::Multiply => number(a * b),
        BinaryOp::Divide if b == 0.0 => Err(Fault::Arithmetic("the divisor is 0")),
        BinaryOp::Divide => number(a / b),
        BinaryOp::Less => Ok(Value::Condition(a < b)),
        BinaryOp::LessEqual => Ok(Value::Condition(a <= b)),
        BinaryOp::Greater => Ok(Value::Condition(a > b)),
        BinaryOp::GreaterEqual => Ok(Value::Condition(a >= b)),
        BinaryOp::Modulo | BinaryOp::Equal | BinaryOp::NotEqual | BinaryOp::And | BinaryOp::Or => Err(Fault::Type),
    }
}

fn conditions(operator: BinaryOp, a: bool, b: bool) -> Result<Value, Fault> {
    match operator {
        BinaryOp::And => Ok(Value::Condition(a && b)),
        BinaryOp::Or => Ok(Value::Condition(a || b)),
        BinaryOp::Equal => Ok(Value::Condition(a == b)),
        BinaryOp::NotEqual => Ok(Value::Condition(a != b)),
        _ => Err(Fault::Type),
    }
}

#[cfg(test)]
mod tests {
    use super::{binary, extreme};
    use crate::language::value::Value::{Condition, Decimal, Integer};
    use pipe_syntax::ast::BinaryOp;

    #[test]
    fn division_is_exact_and_remainders_follow_the_divisor() {
        let half = binary(BinaryOp::Divide, Integer(-1), Integer(2)).expect("a number");
        assert_eq!(binary(BinaryOp::Multiply, half, Integer(-4)), Ok(Integer(2)));
        assert_eq!(binary(BinaryOp::Less, half, Integer(0)), Ok(Condition(true)));
        assert_eq!(binary(BinaryOp::Divide, Integer(6), Integer(3)), Ok(Integer(2)));
        assert_eq!(binary(BinaryOp::Multiply, Decimal(1.0), half), Ok(Decimal(-0.5)));
        assert_eq!(binary(BinaryOp::Modulo, Integer(-1), Integer(4)), Ok(Integer(3)));
        assert_eq!(binary(BinaryOp::Modulo, Integer(1), Integer(-4)), Ok(Integer(-3)));
        assert!(binary(BinaryOp::Divide, Integer(i64::MIN), Integer(-1)).is_err());
        assert!(binary(BinaryOp::Modulo, Integer(1), Integer(0)).is_err());
    }

    #[test]
    fn a_fraction_with_too_many_digits_becomes_a_decimal() {
        let tiny = binary(BinaryOp::Divide, Integer(1), Integer(i64::MAX)).expect("a number");
        assert!(matches!(binary(BinaryOp::Multiply, tiny, tiny), Ok(Decimal(_))));
    }

    #[test]
    fn a_decimal_makes_the_result_decimal() {
        assert_eq!(binary(BinaryOp::Divide, Integer(1), Decimal(4.0)), Ok(Decimal(0.25)));
        assert_eq!(extreme(Integer(1), Decimal(2.0), true), Ok(Decimal(2.0)));
    }
}
