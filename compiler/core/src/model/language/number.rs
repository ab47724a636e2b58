//! Arithmetic on numbers. Integers stay exact: `/` rounds down, `%` takes the sign of the divisor, and what leaves 64
//! bits is an error. With a decimal on either side the result is a decimal.
#![expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "decimals in a layer are constants of tensors, which are floating-point numbers"
)]

use super::value::Value;
use crate::syntax::ast::BinaryOp;

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
        Value::Decimal(value) => Some(value),
        Value::Condition(_) | Value::Tensor(_) | Value::Layer(_) | Value::Unknown => None,
    }
}

/// `-x`
pub(super) fn negate(value: Value) -> Result<Value, Fault> {
    match value {
        Value::Integer(value) => value.checked_neg().map(Value::Integer).ok_or(OVERFLOW),
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
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => integers(operator, a, b),
        (Value::Condition(a), Value::Condition(b)) => conditions(operator, a, b),
        _ => match (to_f64(a), to_f64(b)) {
            (Some(a), Some(b)) => decimals(operator, a, b),
            _ => Err(Fault::Type),
        },
    }
}

fn integers(operator: BinaryOp, a: i64, b: i64) -> Result<Value, Fault> {
    let divisible = || if b == 0 { Err(Fault::Arithmetic("the divisor is 0")) } else { Ok(()) };
    let number = |result: Option<i64>| result.map(Value::Integer).ok_or(OVERFLOW);
    match operator {
        BinaryOp::Add => number(a.checked_add(b)),
        BinaryOp::Subtract => number(a.checked_sub(b)),
        BinaryOp::Multiply => number(a.checked_mul(b)),
        BinaryOp::Divide => {
            divisible()?;
            number(a.checked_div(b).map(|quotient| quotient - i64::from(a % b != 0 && (a < 0) != (b < 0))))
        }
        BinaryOp::Modulo => {
            divisible()?;
            let rest = a.checked_rem(b).unwrap_or(0);
            number(Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }))
        }
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
    use crate::model::language::value::Value::{Decimal, Integer};
    use crate::syntax::ast::BinaryOp;

    #[test]
    fn integers_round_down_and_remainders_follow_the_divisor() {
        assert_eq!(binary(BinaryOp::Divide, Integer(-1), Integer(2)), Ok(Integer(-1)));
        assert_eq!(binary(BinaryOp::Modulo, Integer(-1), Integer(4)), Ok(Integer(3)));
        assert_eq!(binary(BinaryOp::Modulo, Integer(1), Integer(-4)), Ok(Integer(-3)));
        assert!(binary(BinaryOp::Divide, Integer(i64::MIN), Integer(-1)).is_err());
        assert!(binary(BinaryOp::Modulo, Integer(1), Integer(0)).is_err());
    }

    #[test]
    fn a_decimal_makes_the_result_decimal() {
        assert_eq!(binary(BinaryOp::Divide, Integer(1), Decimal(4.0)), Ok(Decimal(0.25)));
        assert_eq!(extreme(Integer(1), Decimal(2.0), true), Ok(Decimal(2.0)));
    }
}
