//! What operators do in schedules, over whole numbers where `/` rounds down, and elsewhere, over [`Number`]s.

use super::number::{self, NoResult, Number, Outcome};
use crate::ast::{BinaryOp, Decimal, UnaryOp};
use crate::fraction::Fraction;
use std::cmp::Ordering;
use std::fmt;

/// What decimals are in an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Decimals {
    /// Refused.
    #[default]
    Refused,
    /// Floating-point numbers, as the result is one.
    Floating,
    /// Exact, as the result must be.
    Exact,
}

/// Numbers that an expression is computed over. Conditions are 1 or 0.
pub trait Arithmetic: Copy + fmt::Display {
    /// A whole number.
    fn whole(value: i64) -> Self;

    /// A decimal, where there are any.
    ///
    /// # Errors
    /// One that cannot be exact, but must be.
    fn decimal(value: Decimal, decimals: Decimals) -> Result<Self, NoResult>;

    /// Whether this is a condition that holds.
    fn holds(self) -> bool;

    /// The whole number that this is, if it is one.
    fn as_whole(self) -> Option<i64>;

    /// This value as a whole number.
    ///
    /// # Errors
    /// The value itself, if it is not whole.
    fn to_whole(self) -> Result<i64, Number>;

    /// `self < other`
    fn is_less(self, other: Self) -> bool;

    /// An operator before its operand.
    ///
    /// # Errors
    /// A result that does not fit.
    fn unary(self, op: UnaryOp, decimals: Decimals) -> Result<Self, NoResult>;

    /// An operator between two operands.
    ///
    /// # Errors
    /// A result that does not fit, and division by zero.
    fn binary(self, op: BinaryOp, right: Self, decimals: Decimals) -> Result<Self, NoResult>;
}

impl Arithmetic for i64 {
    fn whole(value: i64) -> Self {
        value
    }

    fn decimal(_: Decimal, _: Decimals) -> Result<Self, NoResult> {
        Err(NoResult::Overflow)
    }

    fn holds(self) -> bool {
        self != 0
    }

    fn as_whole(self) -> Option<i64> {
        Some(self)
    }

    fn to_whole(self) -> Result<i64, Number> {
        Ok(self)
    }

    fn is_less(self, other: Self) -> bool {
        self < other
    }

    fn unary(self, op: UnaryOp, _: Decimals) -> Result<Self, NoResult> {
        match op {
            UnaryOp::Negate => self.checked_neg().ok_or(NoResult::Overflow),
            UnaryOp::Not => Ok(Self::from(self == 0)),
        }
    }

    fn binary(self, op: BinaryOp, right: Self, _: Decimals) -> Result<Self, NoResult> {
        let result = match op {
            BinaryOp::Add => self.checked_add(right),
            BinaryOp::Subtract => self.checked_sub(right),
            BinaryOp::Multiply => self.checked_mul(right),
            // Rust rounds towards zero, the language down.
            BinaryOp::Divide => self.checked_div(right).map(|quotient| {
                let rounded_up = self % right != 0 && (self < 0) != (right < 0);
                quotient - Self::from(rounded_up)
            }),
            BinaryOp::Modulo => {
                let rest = self.checked_rem(right);
                rest.map(|rest| if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest })
            }
            BinaryOp::Equal => Some(Self::from(self == right)),
            BinaryOp::NotEqual => Some(Self::from(self != right)),
            BinaryOp::Less => Some(Self::from(self < right)),
            BinaryOp::LessEqual => Some(Self::from(self <= right)),
            BinaryOp::Greater => Some(Self::from(self > right)),
            BinaryOp::GreaterEqual => Some(Self::from(self >= right)),
            BinaryOp::And => Some(self & right),
            BinaryOp::Or => Some(self | right),
        };
        // Only where 0 divides does a right side of 0 have no result.
        result.ok_or(if right == 0 { NoResult::DivisionByZero } else { NoResult::Overflow })
    }
}

/// Where decimals are floating-point numbers, what is too large for an exact number is one.
impl Arithmetic for Number {
    fn whole(value: i64) -> Self {
        Self::Exact(Fraction::whole(value))
    }

    fn decimal(value: Decimal, decimals: Decimals) -> Result<Self, NoResult> {
        match decimals {
            Decimals::Exact => Fraction::decimal(value).map(Self::Exact).ok_or(NoResult::Overflow),
            Decimals::Refused | Decimals::Floating => Ok(Self::Decimal(value.to_f64())),
        }
    }

    fn holds(self) -> bool {
        self.as_whole() != Some(0)
    }

    fn as_whole(self) -> Option<i64> {
        Self::as_whole(self)
    }

    fn to_whole(self) -> Result<i64, Number> {
        Self::as_whole(self).ok_or(self)
    }

    fn is_less(self, other: Self) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }

    fn unary(self, op: UnaryOp, decimals: Decimals) -> Result<Self, NoResult> {
        match (op, self.negated()) {
            (UnaryOp::Not, _) => Ok(Self::whole(i64::from(!self.holds()))),
            (UnaryOp::Negate, Err(NoResult::Overflow)) if decimals == Decimals::Floating => {
                Self::Decimal(self.to_f64()).negated()
            }
            (UnaryOp::Negate, negated) => negated,
        }
    }

    fn binary(self, op: BinaryOp, right: Self, decimals: Decimals) -> Result<Self, NoResult> {
        let result = match number::binary(op, self, right) {
            Some(Err(NoResult::Overflow)) if decimals == Decimals::Floating => number::inexact(op, self, right),
            result => result,
        };
        match result {
            Some(Ok(Outcome::Number(number))) => Ok(number),
            Some(Ok(Outcome::Condition(holds))) => Ok(Self::whole(i64::from(holds))),
            Some(Err(none)) => Err(none),
            // `and` and `or`, whose left side did not decide.
            None => Ok(right),
        }
    }
}
