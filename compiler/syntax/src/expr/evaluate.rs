//! Evaluation: resolved expressions over the numbers of an [`Arithmetic`].

use super::arithmetic::{Arithmetic, Decimals};
use super::errors::{self, no_result, wrong_type};
use super::known::Known;
use super::number::{NoResult, Number};
use super::scope::{Fault, Node, Resolved, Scope, State, Type};
use crate::ast::{BinaryOp, Expr, ExprKind, Name, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use crate::fraction::Fraction;
use crate::source::Span;
use std::collections::BTreeMap;
use std::fmt;

/// Operations that one elaboration may take, so that it ends within seconds.
pub const MAX_OPERATIONS: u64 = 2_000_000_000;

/// Numbers by name.
pub type Values = BTreeMap<String, i64>;

/// The value of an expression of a schedule, over whole numbers.
///
/// Division rounds down, and `%` has the sign of its right side: `-1 / 4` is `-1`, `-1 % 4` is `3`.
/// Functions are `min`, `max` and `abs`, and those that files define.
///
/// # Errors
/// Everything else, unknown names, division by zero and overflow.
pub fn evaluate(expr: &Expr, known: &Known<'_>) -> Result<i64, Fault> {
    let mut scope = known.scope();
    let code = scope.number(expr)?;
    Machine::default().eval(&scope, &code)
}

/// The value of an expression that must be a whole number, though `/` is exact: of `param`s of files, lines of
/// pipelines, settings, and values for models.
///
/// # Errors
/// All that [`evaluate`] fails on, and a result that is not whole.
pub fn exact(expr: &Expr, known: &Known<'_>) -> Result<i64, Fault> {
    let mut scope = known.scope().exact(Decimals::Refused);
    let code = scope.number(expr)?;
    Machine::<Number>::default().whole(&scope, &code)
}

/// The value of an expression with decimals.
///
/// # Errors
/// A result that is not finite, and all that is no number.
pub fn decimal(expr: &Expr, known: &Known<'_>) -> Result<f64, Fault> {
    number(expr, known).map(Number::to_f64)
}

/// The value of an expression, exact unless a decimal is part of it: of arguments of models.
///
/// # Errors
/// A result that is not finite, and all that is no number.
pub fn number(expr: &Expr, known: &Known<'_>) -> Result<Number, Fault> {
    let mut scope = known.scope().exact(Decimals::Floating);
    let code = scope.number(expr)?;
    Machine::default().eval(&scope, &code)
}

/// The exact value of an expression, whose decimals are exact as well.
///
/// # Errors
/// All that [`evaluate`] fails on.
pub fn fraction(expr: &Expr, known: &Known<'_>) -> Result<Fraction, Fault> {
    Rule::new(expr, &[], known)?.at(&[])
}

/// An expression whose value follows from those of some variables, exactly.
#[derive(Debug)]
pub struct Rule<'a> {
    scope: Scope<'a>,
    code: Resolved<'a>,
    variables: Vec<usize>,
    machine: Machine<Number>,
}

impl<'a> Rule<'a> {
    /// A rule with these variables.
    ///
    /// # Errors
    /// Names that mean nothing, or that a variable cannot have.
    pub fn new(expr: &'a Expr, variables: &[Name], known: &'a Known<'_>) -> Result<Self, Fault> {
        Self::resolved(variables, known, |scope| scope.number(expr))
    }

    /// A condition with these variables: ask whether it [`holds`](Self::holds).
    ///
    /// # Errors
    /// Likewise.
    pub fn condition(expr: &'a Expr, variables: &[Name], known: &'a Known<'_>) -> Result<Self, Fault> {
        Self::resolved(variables, known, |scope| scope.condition(expr))
    }

    fn resolved(
        variables: &[Name],
        known: &'a Known<'_>,
        resolve: impl FnOnce(&mut Scope<'a>) -> Result<Resolved<'a>, Fault>,
    ) -> Result<Self, Fault> {
        let mut scope = known.scope().exact(Decimals::Exact);
        let mut slots = Vec::with_capacity(variables.len());
        for name in variables {
            if let Some(error) = errors::fixed(name) {
                return Err(Box::new(error));
            }
            let slot = scope.variable(&name.text).expect("fewer variables than a scope has");
            scope.set_type(slot, Type::Number);
            slots.push(slot);
        }
        let code = resolve(&mut scope)?;
        Ok(Self { scope, code, variables: slots, machine: Machine::default() })
    }

    /// Whether a condition holds where the variables have these values.
    ///
    /// # Errors
    /// All that [`evaluate`] fails on.
    pub fn holds(&mut self, values: &[i64]) -> Result<bool, Fault> {
        Ok(self.at(values)?.parts().0 != 0)
    }

    /// The value where the variables have these.
    ///
    /// # Errors
    /// All that [`evaluate`] fails on.
    pub fn at(&mut self, values: &[i64]) -> Result<Fraction, Fault> {
        for (slot, value) in self.variables.iter().zip(values) {
            self.machine.set(*slot, Number::whole(*value));
        }
        self.machine.fraction(&self.scope, &self.code)
    }

    /// An error with the numbers that the names of the expression stand for.
    pub fn explained(&mut self, error: Diagnostic) -> Fault {
        self.machine.explained(&self.scope, self.code.expr, error)
    }
}

/// The error for a floating-point value that must be exact.
fn not_exact(value: f64, place: Span) -> Diagnostic {
    no_result(place, format!("the result is {value}"))
}

/// The numbers of a list, each a whole one, and where they were written.
///
/// # Errors
/// All that [`exact`] fails on, what is no list of numbers, and a list longer than `most`.
pub fn list(expr: &Expr, known: &Known<'_>, most: u32) -> Result<Vec<(i64, Span)>, Fault> {
    let mut scope = known.scope().exact(Decimals::Refused);
    let code = scope.numbers(expr)?;
    Machine::<Number>::default().numbers(&scope, &code, most)
}

/// An error with the numbers that the names of an expression stand for.
pub fn explained(error: Diagnostic, expr: &Expr, known: &Known<'_>) -> Fault {
    Machine::<i64>::default().explained(&known.scope(), expr, error)
}

/// The values of variables, and of `let`s since a variable last changed.
#[derive(Debug)]
pub struct Machine<N = i64> {
    values: Vec<N>,
    /// A bit for each variable that has a value.
    bound: u64,
    /// When each variable last changed.
    changed: Vec<u64>,
    /// Goes on with each change; 1 at first, so that 0 is before everything.
    clock: u64,
    /// By `let`: when it was evaluated, and its value.
    known: Vec<(u64, N)>,
    operations: u64,
}

impl<N> Default for Machine<N> {
    fn default() -> Self {
        Self { values: Vec::new(), bound: 0, changed: Vec::new(), clock: 0, known: Vec::new(), operations: 0 }
    }
}

impl Machine<Number> {
    fn fraction(&mut self, scope: &Scope<'_>, code: &Resolved<'_>) -> Result<Fraction, Fault> {
        match self.eval(scope, code)? {
            Number::Exact(value) => Ok(value),
            Number::Decimal(value) => Err(self.explained(scope, code.expr, not_exact(value, code.expr.span))),
        }
    }
}

impl<N: Arithmetic> Machine<N> {
    /// The value of an expression that must be a whole number.
    ///
    /// # Errors
    /// All that [`Machine::eval`] fails on, and a result that is not whole.
    pub fn whole(&mut self, scope: &Scope<'_>, code: &Resolved<'_>) -> Result<i64, Fault> {
        let value = self.eval(scope, code)?;
        value.to_whole().map_err(|other| {
            let error = match other {
                Number::Exact(value) => value.is_not_whole(code.expr.span),
                Number::Decimal(value) => not_exact(value, code.expr.span),
            };
            self.explained(scope, code.expr, error)
        })
    }

    /// Gives a variable its value.
    pub fn set(&mut self, slot: usize, value: N) {
        if self.values.len() <= slot {
            self.values.resize(slot + 1, N::whole(0));
            self.changed.resize(slot + 1, 0);
        }
        self.clock += 1;
        self.values[slot] = value;
        self.changed[slot] = self.clock;
        self.bound |= 1 << slot;
    }

    /// The value of a variable, to be restored later.
    pub fn get(&self, slot: usize) -> Option<N> {
        (self.bound >> slot & 1 == 1).then(|| self.values[slot])
    }

    /// Puts a variable back to what [`Machine::get`] returned.
    pub fn restore(&mut self, slot: usize, value: Option<N>) {
        match value {
            Some(value) => self.set(slot, value),
            None => self.bound &= !(1 << slot),
        }
    }

    /// Counts work that is not an operation; fails when there was too much of either.
    pub fn spend(&mut self, operations: u64, expr: &Expr) -> Result<(), Fault> {
        self.operations += operations;
        if self.operations <= MAX_OPERATIONS {
            return Ok(());
        }
        let message = format!("the schedule takes more than {MAX_OPERATIONS} operations to write out");
        Err(Box::new(Diagnostic::error(Code::TooLarge, expr.span, "given up here", message)))
    }

    /// Computes a resolved expression.
    pub fn eval<'a>(&mut self, scope: &Scope<'a>, code: &Resolved<'a>) -> Result<N, Fault> {
        self.operations += 1;
        let decimals = scope.decimals();
        match &code.node {
            Node::Constant(value) => Ok(N::whole(*value)),
            Node::Decimal(value) => {
                N::decimal(*value, decimals).or_else(|none| self.fail(scope, code, none, "the number"))
            }
            Node::Variable(slot) => self.get(*slot).ok_or_else(|| unbound(code.expr)),
            Node::Let(slot) => self.definition(scope, *slot, code),
            Node::Unary(op, operand) => {
                let operand = self.eval(scope, operand)?;
                let result = operand.unary(*op, decimals);
                result.or_else(|none| self.fail(scope, code, none, format_args!("-({operand})")))
            }
            Node::Binary(op, left, right) => {
                let left = self.eval(scope, left)?;
                if *op == BinaryOp::And && !left.holds() || *op == BinaryOp::Or && left.holds() {
                    return Ok(left);
                }
                let right = self.eval(scope, right)?;
                let result = left.binary(*op, right, decimals);
                result.or_else(|none| self.fail(scope, code, none, format_args!("{left} {} {right}", op.symbol())))
            }
            Node::If(parts) => {
                let branch = self.branch(scope, parts)?;
                self.eval(scope, branch)
            }
            Node::Min(parts) => self.best(scope, parts, N::is_less),
            Node::Max(parts) => self.best(scope, parts, |value, best| best.is_less(value)),
            Node::Abs(operand) => {
                let operand = self.eval(scope, operand)?;
                let is_below = operand.is_less(N::whole(0));
                let result = if is_below { operand.unary(UnaryOp::Negate, decimals) } else { Ok(operand) };
                result.or_else(|none| self.fail(scope, code, none, format_args!("abs({operand})")))
            }
            Node::Call(slot, arguments) => {
                self.within(scope, (*slot, arguments), code.expr, |machine, value| machine.eval(scope, value))
            }
            Node::Index(parts) => {
                let [list, position] = &**parts;
                let value = self.eval(scope, position)?;
                self.read(scope, list, &[(value, position)])
            }
            Node::List(_) => Err(Box::new(wrong_type(code.expr.span, "a number", "a list"))),
        }
    }

    /// The one of two values that a condition chooses.
    pub(super) fn branch<'r, 'a>(
        &mut self,
        scope: &Scope<'a>,
        [condition, then, otherwise]: &'r [Resolved<'a>; 3],
    ) -> Result<&'r Resolved<'a>, Fault> {
        Ok(if self.eval(scope, condition)?.holds() { then } else { otherwise })
    }

    /// The first number than which no other one is better.
    fn best(&mut self, scope: &Scope<'_>, parts: &[Resolved<'_>], is_better: fn(N, N) -> bool) -> Result<N, Fault> {
        let (first, others) = parts.split_first().expect("resolved functions have arguments");
        let first = self.eval(scope, first)?;
        others.iter().try_fold(first, |best, part| {
            let value = self.eval(scope, part)?;
            Ok(if is_better(value, best) { value } else { best })
        })
    }

    fn definition(&mut self, scope: &Scope<'_>, slot: usize, used: &Resolved<'_>) -> Result<N, Fault> {
        if self.known.len() <= slot {
            self.known.resize(scope.lets.len().max(slot + 1), (0, N::whole(0)));
            self.clock = self.clock.max(1);
        }
        let (moment, value) = self.known[slot];
        if moment > 0 && self.unchanged_since(moment, used.depends) {
            return Ok(value);
        }
        let Some(State::Done(resolved)) = scope.lets.get(slot).map(|definition| &definition.state) else {
            return Err(unbound(used.expr));
        };
        self.spend(1, used.expr)?;
        match self.eval(scope, resolved) {
            Ok(value) => {
                self.known[slot] = (self.clock, value);
                Ok(value)
            }
            Err(fault) if fault.labels.len() < 4 => Err(Box::new(fault.label(used.expr.span, "used here"))),
            Err(fault) => Err(fault),
        }
    }

    /// Whether all these variables have a value that is not younger.
    fn unchanged_since(&self, moment: u64, mut variables: u64) -> bool {
        while variables != 0 {
            let slot = variables.trailing_zeros() as usize;
            if self.bound >> slot & 1 == 0 || self.changed[slot] > moment {
                return false;
            }
            variables &= variables - 1;
        }
        true
    }

    /// Fails with an operation that has no result.
    fn fail(
        &mut self,
        scope: &Scope<'_>,
        code: &Resolved<'_>,
        none: NoResult,
        operation: impl fmt::Display,
    ) -> Result<N, Fault> {
        Err(self.explained(scope, code.expr, no_result(code.expr.span, none.words(operation))))
    }

    /// An error with the numbers that the names of an expression stand for.
    pub(super) fn explained(&mut self, scope: &Scope<'_>, expr: &Expr, error: Diagnostic) -> Fault {
        Box::new(self.values_of(scope, expr).into_iter().fold(error, Diagnostic::note))
    }

    /// `M = 8, d = 2`: the names of an expression with what they stand for.
    pub fn values_of(&mut self, scope: &Scope<'_>, expr: &Expr) -> Option<String> {
        let mut names = Vec::new();
        expr.walk(&mut |part| {
            if let ExprKind::Name(name) = &part.kind
                && !names.contains(&name)
                && names.len() < 8
            {
                names.push(name);
            }
        });
        let mut shown = Vec::new();
        for name in names {
            // Of a function or list that is being computed, its own variables are meant.
            let local = scope.local(name).and_then(|slot| self.get(slot));
            let value = match scope.meaning(name) {
                _ if local.is_some() => local,
                Some(Node::Constant(value)) => Some(N::whole(value)),
                Some(Node::Variable(slot)) => self.get(slot),
                Some(Node::Let(slot)) => {
                    self.known.get(slot).filter(|(moment, _)| *moment > 0).map(|(_, value)| *value)
                }
                _ => None,
            };
            shown.extend(value.map(|value| format!("{name} = {value}")));
        }
        (!shown.is_empty()).then(|| shown.join(", "))
    }
}

/// The error of a name that has no value at its place.
fn unbound(expr: &Expr) -> Fault {
    let name = if let ExprKind::Name(name) = &expr.kind { name.as_str() } else { "this" };
    let message = format!("`{name}` has no value here");
    let help = "`s` is known in `place` and in a slot, `d` inside `order d`, a loop's number inside the loop, and what \
                `let` names behind its line";
    Box::new(Diagnostic::error(Code::UnknownName, expr.span, "not known at this place", message).help(help))
}
