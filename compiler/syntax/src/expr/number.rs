//! Numbers where `/` is exact: fractions, and floating-point numbers where a decimal is on either side.
#![expect(clippy::float_arithmetic, reason = "decimals are floating-point numbers")]

use crate::ast::BinaryOp;
use crate::fraction::Fraction;
use std::cmp::Ordering;
use std::fmt;

/// A number, exact as long as no floating-point number is part of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A fraction.
    Exact(Fraction),
    /// What no fraction holds: a square root, or a decimal that is too long.
    Decimal(f64),
}

/// What an operator on numbers gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    /// A number.
    Number(Number),
    /// Whether a comparison holds.
    Condition(bool),
}

/// Why an operation on numbers has no result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NoResult {
    /// The divisor is 0.
    DivisionByZero,
    /// The result is exact, and needs more than 64 bits.
    Overflow,
    /// The result is a decimal that is not finite.
    NotFinite(f64),
}

impl NoResult {
    /// The error of an operation, which is written out with its numbers.
    pub fn words(self, operation: impl fmt::Display) -> String {
        match self {
            Self::DivisionByZero => format!("division by zero: {operation}"),
            Self::Overflow => format!("{operation} does not fit in 64 bits"),
            Self::NotFinite(value) => format!("the result is {value}, which is not finite"),
        }
    }
}

/// An operation on exact numbers; none where it has no result.
type OfFractions = fn(Fraction, Fraction) -> Option<Fraction>;
/// The same on decimals.
type OfDecimals = fn(f64, f64) -> f64;

impl Number {
    /// A whole number.
    pub const fn whole(value: i64) -> Self {
        Self::Exact(Fraction::whole(value))
    }

    /// The whole number that this is, if it is one, and exact.
    pub fn as_whole(self) -> Option<i64> {
        match self {
            Self::Exact(value) => value.as_whole(),
            Self::Decimal(_) => None,
        }
    }

    /// The nearest floating-point number.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Exact(value) => value.to_f64(),
            Self::Decimal(value) => value,
        }
    }

    /// A decimal, if it is finite.
    ///
    /// # Errors
    /// Infinities, and what is no number.
    pub const fn decimal(value: f64) -> Result<Self, NoResult> {
        if value.is_finite() { Ok(Self::Decimal(value)) } else { Err(NoResult::NotFinite(value)) }
    }

    /// Which of two numbers is larger; none beside what is no number.
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) => Some(one.cmp(&other)),
            _ => self.to_f64().partial_cmp(&other.to_f64()),
        }
    }

    /// `-self`
    ///
    /// # Errors
    /// The smallest number of 64 bits.
    pub fn negated(self) -> Result<Self, NoResult> {
        match self {
            Self::Exact(value) => Fraction::whole(0).minus(value).map(Self::Exact).ok_or(NoResult::Overflow),
            Self::Decimal(value) => Ok(Self::Decimal(-value)),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(value) => value.fmt(f),
            Self::Decimal(value) => value.fmt(f),
        }
    }
}

/// An operator on two numbers; none for `and` and `or`, which are not about numbers.
pub fn binary(op: BinaryOp, left: Number, right: Number) -> Option<Result<Outcome, NoResult>> {
    let order = || left.compare(right);
    let (exact, decimal): (OfFractions, OfDecimals) = match op {
        BinaryOp::Add => (Fraction::plus, |a, b| a + b),
        BinaryOp::Subtract => (Fraction::minus, |a, b| a - b),
        BinaryOp::Multiply => (Fraction::times, |a, b| a * b),
        BinaryOp::Divide => (Fraction::over, |a, b| a / b),
        BinaryOp::Modulo => (Fraction::modulo, |a, b| a - (a / b).floor() * b),
        BinaryOp::Equal => return condition(order() == Some(Ordering::Equal)),
        BinaryOp::NotEqual => return condition(order() != Some(Ordering::Equal)),
        BinaryOp::Less => return condition(order() == Some(Ordering::Less)),
        BinaryOp::LessEqual => return condition(order().is_some_and(Ordering::is_le)),
        BinaryOp::Greater => return condition(order() == Some(Ordering::Greater)),
        BinaryOp::GreaterEqual => return condition(order().is_some_and(Ordering::is_ge)),
        BinaryOp::And | BinaryOp::Or => return None,
    };
    let divides = matches!(op, BinaryOp::Divide | BinaryOp::Modulo);
    if divides && right.compare(Number::whole(0)) == Some(Ordering::Equal) {
        return Some(Err(NoResult::DivisionByZero));
    }
    let result = match (left, right) {
        (Number::Exact(a), Number::Exact(b)) => exact(a, b).map(Number::Exact).ok_or(NoResult::Overflow),
        _ => Number::decimal(decimal(left.to_f64(), right.to_f64())),
    };
    Some(result.map(Outcome::Number))
}

/// The same on the floating-point numbers that are nearest to these.
pub fn inexact(op: BinaryOp, left: Number, right: Number) -> Option<Result<Outcome, NoResult>> {
    binary(op, Number::Decimal(left.to_f64()), Number::Decimal(right.to_f64()))
}

const fn condition(holds: bool) -> Option<Result<Outcome, NoResult>> {
    Some(Ok(Outcome::Condition(holds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(op: BinaryOp, left: Number, right: Number) -> Result<Number, NoResult> {
        match binary(op, left, right) {
            Some(Ok(Outcome::Number(number))) => Ok(number),
            Some(Err(none)) => Err(none),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn division_is_exact_and_remainders_follow_the_divisor() {
        let whole = Number::whole;
        let half = number(BinaryOp::Divide, whole(-1), whole(2)).expect("a number");
        assert_eq!(half.as_whole(), None);
        assert_eq!(number(BinaryOp::Multiply, half, whole(-4)), Ok(whole(2)));
        assert_eq!(binary(BinaryOp::Less, half, whole(0)), Some(Ok(Outcome::Condition(true))));
        assert_eq!(number(BinaryOp::Divide, whole(6), whole(3)), Ok(whole(2)));
        assert_eq!(number(BinaryOp::Multiply, Number::Decimal(1.0), half), Ok(Number::Decimal(-0.5)));
        assert_eq!(number(BinaryOp::Modulo, whole(-1), whole(4)), Ok(whole(3)));
        assert_eq!(number(BinaryOp::Modulo, whole(1), whole(-4)), Ok(whole(-3)));
        assert_eq!(number(BinaryOp::Divide, whole(1), Number::Decimal(4.0)), Ok(Number::Decimal(0.25)));
    }

    #[test]
    fn what_has_no_result_says_why() {
        let whole = Number::whole;
        assert_eq!(number(BinaryOp::Divide, whole(i64::MIN), whole(-1)), Err(NoResult::Overflow));
        assert_eq!(whole(i64::MIN).negated(), Err(NoResult::Overflow));
        for zero in [whole(0), Number::Decimal(0.0)] {
            for op in [BinaryOp::Divide, BinaryOp::Modulo] {
                assert_eq!(number(op, whole(1), zero), Err(NoResult::DivisionByZero));
            }
        }
        let large = Number::Decimal(1e308);
        assert_eq!(number(BinaryOp::Add, large, large), Err(NoResult::NotFinite(f64::INFINITY)));
        assert_eq!(NoResult::DivisionByZero.words("1 / 0"), "division by zero: 1 / 0");
    }

    #[test]
    fn a_fraction_with_too_many_digits_becomes_a_decimal() {
        let tiny = number(BinaryOp::Divide, Number::whole(1), Number::whole(i64::MAX)).expect("a number");
        assert_eq!(number(BinaryOp::Multiply, tiny, tiny), Err(NoResult::Overflow));
        let Some(Ok(Outcome::Number(Number::Decimal(product)))) = inexact(BinaryOp::Multiply, tiny, tiny) else {
            panic!("a decimal");
        };
        assert!(product > 0.0 && product < 1.2e-38);
    }
}
