//! Evaluation where `/` is exact: `param`s of files, lines of pipelines, settings, and values for models.
//! What has to be a whole number, or one of a few digits, must be one in the end.

use super::arguments::Values;
use super::errors::no_result;
use super::evaluate::{MAX_OPERATIONS, Machine, unbound};
use super::number::{self, NoResult, Number, Outcome};
use super::scope::{Decimals, Fault, Node, Resolved, Scope, State};
use crate::ast::{BinaryOp, Expr, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use crate::fraction::Fraction;
use std::cmp::Ordering;

/// The value of an expression that must be a whole number.
///
/// # Errors
/// All that [`super::evaluate`] fails on, and a result that is not whole.
pub fn exact(expr: &Expr, values: &Values) -> Result<i64, Diagnostic> {
    let mut scope = Scope::new(values.clone()).exact(Decimals::Refused);
    let value = scope.number(expr).and_then(|code| Exact::default().whole(&scope, &code));
    value.map_err(|fault| *fault)
}

/// The value of an expression with decimals.
///
/// # Errors
/// A result that is not finite, and all that is no number.
pub fn decimal(expr: &Expr, values: &Values) -> Result<f64, Diagnostic> {
    let mut scope = Scope::new(values.clone()).exact(Decimals::Floating);
    let value = scope.number(expr).and_then(|code| Exact::default().eval(&scope, &code));
    value.map(Number::to_f64).map_err(|fault| *fault)
}

/// The exact value of an expression, whose decimals are exact as well.
///
/// # Errors
/// All that [`super::evaluate`] fails on.
pub fn fraction(expr: &Expr, values: &Values) -> Result<Fraction, Fault> {
    let mut scope = Scope::new(values.clone()).exact(Decimals::Exact);
    let code = scope.number(expr)?;
    match Exact::default().eval(&scope, &code)? {
        Number::Exact(value) => Ok(value),
        Number::Decimal(value) => Err(without_value(&scope, &code, &format!("the result is {value}"))),
    }
}

/// An error with the numbers that the names of an expression stand for.
pub fn explained(error: Diagnostic, expr: &Expr, values: &Values) -> Fault {
    let mut scope = Scope::new(values.clone()).exact(Decimals::Exact);
    match scope.number(expr) {
        Ok(code) => with_values(&scope, &code, error),
        Err(_) => Box::new(error),
    }
}

/// Conditions are 1 or 0.
const fn condition(holds: bool) -> Number {
    Number::whole(holds as i64)
}

fn holds(value: Number) -> bool {
    value.as_whole() != Some(0)
}

/// Values of `let`s, each evaluated once.
#[derive(Debug, Default)]
pub struct Exact {
    known: Vec<Option<Number>>,
    operations: u64,
}

impl Exact {
    /// The value of an expression that must be a whole number.
    pub fn whole(&mut self, scope: &Scope<'_>, code: &Resolved<'_>) -> Result<i64, Fault> {
        match self.eval(scope, code)? {
            Number::Exact(value) => {
                value.as_whole().ok_or_else(|| with_values(scope, code, value.is_not_whole(code.expr.span)))
            }
            Number::Decimal(value) => Err(without_value(scope, code, &format!("the result is {value}"))),
        }
    }

    fn eval(&mut self, scope: &Scope<'_>, code: &Resolved<'_>) -> Result<Number, Fault> {
        self.operations += 1;
        if self.operations > MAX_OPERATIONS {
            let message = format!("this takes more than {MAX_OPERATIONS} operations");
            return Err(Box::new(Diagnostic::error(Code::TooLarge, code.expr.span, "given up here", message)));
        }
        match &code.node {
            Node::Constant(value) => Ok(Number::whole(*value)),
            Node::Decimal(value) if scope.decimals() == Decimals::Exact => {
                let exact = Fraction::decimal(*value);
                exact.map(Number::Exact).ok_or_else(|| without_value(scope, code, "the number does not fit in 64 bits"))
            }
            Node::Decimal(value) => Ok(Number::Decimal(value.to_f64())),
            Node::Variable(_) => Err(unbound(code.expr)),
            Node::Let(slot) => self.definition(scope, *slot, code),
            Node::Unary(UnaryOp::Not, operand) => Ok(condition(!holds(self.eval(scope, operand)?))),
            Node::Unary(UnaryOp::Negate, operand) => negated(scope, code, self.eval(scope, operand)?),
            Node::Binary(op, left, right) => {
                let left = self.eval(scope, left)?;
                if matches!((op, holds(left)), (BinaryOp::And, false) | (BinaryOp::Or, true)) {
                    return Ok(left);
                }
                let right = self.eval(scope, right)?;
                binary(scope, code, *op, (left, right))
            }
            Node::If(parts) => {
                let [condition, then, otherwise] = &**parts;
                let branch = if holds(self.eval(scope, condition)?) { then } else { otherwise };
                self.eval(scope, branch)
            }
            Node::Min(parts) => self.extreme(scope, code, parts, Ordering::Less),
            Node::Max(parts) => self.extreme(scope, code, parts, Ordering::Greater),
            Node::Abs(operand) => {
                let value = self.eval(scope, operand)?;
                match value.compare(Number::whole(0)) {
                    Some(Ordering::Less) => negated(scope, code, value),
                    _ => Ok(value),
                }
            }
        }
    }

    fn extreme(
        &mut self,
        scope: &Scope<'_>,
        code: &Resolved<'_>,
        parts: &[Resolved<'_>],
        wanted: Ordering,
    ) -> Result<Number, Fault> {
        let mut best: Option<Number> = None;
        for part in parts {
            let value = self.eval(scope, part)?;
            let is_better = best.is_none_or(|best| value.compare(best) == Some(wanted));
            best = if is_better { Some(value) } else { best };
        }
        best.ok_or_else(|| without_value(scope, code, "of no numbers"))
    }

    fn definition(&mut self, scope: &Scope<'_>, slot: usize, used: &Resolved<'_>) -> Result<Number, Fault> {
        if let Some(Some(value)) = self.known.get(slot) {
            return Ok(*value);
        }
        let Some(State::Done(resolved)) = scope.lets.get(slot).map(|definition| &definition.state) else {
            return Err(unbound(used.expr));
        };
        let value = self.eval(scope, resolved).map_err(|fault| match fault.labels.len() {
            0..4 => Box::new(fault.label(used.expr.span, "used here")),
            _ => fault,
        })?;
        self.known.resize(scope.lets.len().max(slot + 1), None);
        self.known[slot] = Some(value);
        Ok(value)
    }
}

/// An operation that has no result.
fn without_value(scope: &Scope<'_>, code: &Resolved<'_>, message: &str) -> Fault {
    with_values(scope, code, no_result(code.expr.span, message))
}

/// An error with the numbers that the names of an expression stand for.
fn with_values(scope: &Scope<'_>, code: &Resolved<'_>, error: Diagnostic) -> Fault {
    Box::new(match Machine::default().values_of(scope, code.expr) {
        Some(note) => error.note(note),
        None => error,
    })
}

fn negated(scope: &Scope<'_>, code: &Resolved<'_>, value: Number) -> Result<Number, Fault> {
    match value.negated() {
        Err(NoResult::Overflow) if scope.decimals() == Decimals::Floating => Ok(Number::Decimal(-value.to_f64())),
        result => result.map_err(|none| without_value(scope, code, &none.words(format_args!("-({value})")))),
    }
}

/// An operator on two numbers. Where decimals are floating-point numbers, what is too large for an exact number is one.
fn binary(
    scope: &Scope<'_>,
    code: &Resolved<'_>,
    op: BinaryOp,
    (left, right): (Number, Number),
) -> Result<Number, Fault> {
    let mut result = number::binary(op, left, right);
    if result == Some(Err(NoResult::Overflow)) && scope.decimals() == Decimals::Floating {
        result = number::inexact(op, left, right);
    }
    match result {
        Some(Ok(Outcome::Number(number))) => Ok(number),
        Some(Ok(Outcome::Condition(holds))) => Ok(condition(holds)),
        Some(Err(none)) => {
            let operation = format_args!("{left} {} {right}", op.symbol());
            Err(without_value(scope, code, &none.words(operation)))
        }
        // `and` and `or`, whose left side did not decide.
        None => Ok(right),
    }
}
