//! Evaluation of resolved expressions over checked 64-bit integers.

use super::errors::no_result;
use super::number::NoResult;
use super::scope::{Fault, Node, Resolved, Scope, State};
use crate::ast::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use std::collections::BTreeMap;

/// Operations that one elaboration may take, so that it ends within seconds.
pub const MAX_OPERATIONS: u64 = 2_000_000_000;

/// The value of an expression of a schedule, over whole numbers, whose names are those of `values`.
///
/// Division rounds down, and `%` has the sign of its right side: `-1 / 4` is `-1`, `-1 % 4` is `3`.
/// Functions are `min`, `max` and `abs`. Fails on everything else, on unknown names, division by
/// zero and overflow.
pub fn evaluate(expr: &Expr, values: &BTreeMap<String, i64>) -> Result<i64, Diagnostic> {
    let mut scope = Scope::new(values.clone());
    let resolved = scope.number(expr).map_err(|fault| *fault)?;
    Machine::default().eval(&scope, &resolved).map_err(|fault| *fault)
}

/// The values of variables, and of `let`s since a variable last changed.
#[derive(Debug, Default)]
pub struct Machine {
    values: Vec<i64>,
    /// A bit for each variable that has a value.
    bound: u64,
    /// When each variable last changed.
    changed: Vec<u64>,
    /// Goes on with each change; 1 at first, so that 0 is before everything.
    clock: u64,
    /// By `let`: when it was evaluated, and its value.
    known: Vec<(u64, i64)>,
    operations: u64,
}

impl Machine {
    /// Gives a variable its value.
    pub fn set(&mut self, slot: usize, value: i64) {
        if self.values.len() <= slot {
            self.values.resize(slot + 1, 0);
            self.changed.resize(slot + 1, 0);
        }
        self.clock += 1;
        self.values[slot] = value;
        self.changed[slot] = self.clock;
        self.bound |= 1 << slot;
    }

    /// The value of a variable, to be restored later.
    pub fn get(&self, slot: usize) -> Option<i64> {
        (self.bound >> slot & 1 == 1).then(|| self.values[slot])
    }

    /// Puts a variable back to what [`Machine::get`] returned.
    pub fn restore(&mut self, slot: usize, value: Option<i64>) {
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
    pub fn eval(&mut self, scope: &Scope<'_>, code: &Resolved<'_>) -> Result<i64, Fault> {
        self.operations += 1;
        match &code.node {
            Node::Constant(value) => Ok(*value),
            Node::Decimal(_) => Err(unbound(code.expr)),
            Node::Variable(slot) => self.get(*slot).ok_or_else(|| unbound(code.expr)),
            Node::Let(slot) => self.definition(scope, *slot, code),
            Node::Unary(op, operand) => {
                let operand = self.eval(scope, operand)?;
                unary(*op, operand).ok_or_else(|| self.overflow(scope, code, &format!("-({operand})")))
            }
            Node::Binary(op, left, right) => {
                let left = self.eval(scope, left)?;
                if matches!((op, left), (BinaryOp::And, 0) | (BinaryOp::Or, 1)) {
                    return Ok(left);
                }
                let right = self.eval(scope, right)?;
                binary(*op, left, right)
                    .ok_or_else(|| self.overflow(scope, code, &format!("{left} {} {right}", op.symbol())))
            }
            Node::If(parts) => {
                let [condition, then, otherwise] = &**parts;
                let branch = if self.eval(scope, condition)? == 1 { then } else { otherwise };
                self.eval(scope, branch)
            }
            Node::Min(parts) => self.fold(scope, parts, i64::MAX, i64::min),
            Node::Max(parts) => self.fold(scope, parts, i64::MIN, i64::max),
            Node::Abs(operand) => {
                let operand = self.eval(scope, operand)?;
                operand.checked_abs().ok_or_else(|| self.overflow(scope, code, &format!("abs({operand})")))
            }
        }
    }

    fn fold(
        &mut self,
        scope: &Scope<'_>,
        parts: &[Resolved<'_>],
        start: i64,
        combine: fn(i64, i64) -> i64,
    ) -> Result<i64, Fault> {
        parts.iter().try_fold(start, |best, part| Ok(combine(best, self.eval(scope, part)?)))
    }

    fn definition(&mut self, scope: &Scope<'_>, slot: usize, used: &Resolved<'_>) -> Result<i64, Fault> {
        if self.known.len() <= slot {
            self.known.resize(scope.lets.len().max(slot + 1), (0, 0));
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

    /// An operation that has no result, with the numbers that its names stand for.
    fn overflow(&mut self, scope: &Scope<'_>, code: &Resolved<'_>, operation: &str) -> Fault {
        let reason = match &code.node {
            Node::Binary(BinaryOp::Divide | BinaryOp::Modulo, _, _) if operation.ends_with(" 0") => {
                NoResult::DivisionByZero
            }
            _ => NoResult::Overflow,
        };
        let error = no_result(code.expr.span, reason.words(operation));
        Box::new(match self.values_of(scope, code.expr) {
            Some(note) => error.note(note),
            None => error,
        })
    }

    /// `M = 8, d = 2`: the names of an expression with what they stand for.
    pub fn values_of(&mut self, scope: &Scope<'_>, expr: &Expr) -> Option<String> {
        let mut names = Vec::new();
        names_of(expr, &mut names);
        let mut shown = Vec::new();
        for name in names {
            let value = match scope.meaning(name) {
                Some(Node::Constant(value)) => Some(value),
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

/// Names in the order of their first use.
fn names_of<'e>(expr: &'e Expr, names: &mut Vec<&'e str>) {
    match &expr.kind {
        ExprKind::Integer(_) | ExprKind::Decimal(_) => {}
        ExprKind::Name(name) => {
            if !names.contains(&name.as_str()) && names.len() < 8 {
                names.push(name);
            }
        }
        ExprKind::Unary(_, operand) => names_of(operand, names),
        ExprKind::Binary(_, left, right) | ExprKind::Range(left, right) => {
            [left, right].into_iter().for_each(|part| names_of(part, names));
        }
        ExprKind::If { condition, then, otherwise } => {
            [condition, then, otherwise].into_iter().for_each(|part| names_of(part, names));
        }
        ExprKind::Call(call) => call.arguments.iter().for_each(|argument| names_of(&argument.value, names)),
        ExprKind::List(items) => items.iter().for_each(|item| names_of(item, names)),
    }
}

/// The error of a name that has no value at its place.
pub fn unbound(expr: &Expr) -> Fault {
    let name = if let ExprKind::Name(name) = &expr.kind { name.as_str() } else { "this" };
    let message = format!("`{name}` has no value here");
    let help = "`s` is known in `place` and in a slot, `d` inside `order d`, a loop's number inside the loop";
    Box::new(Diagnostic::error(Code::UnknownName, expr.span, "not known at this place", message).help(help))
}

/// None on overflow.
pub fn unary(op: UnaryOp, operand: i64) -> Option<i64> {
    match op {
        UnaryOp::Negate => operand.checked_neg(),
        UnaryOp::Not => Some(i64::from(operand == 0)),
    }
}

/// None on overflow and division by zero.
pub fn binary(op: BinaryOp, left: i64, right: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => left.checked_add(right),
        BinaryOp::Subtract => left.checked_sub(right),
        BinaryOp::Multiply => left.checked_mul(right),
        BinaryOp::Divide => {
            let quotient = left.checked_div(right)?;
            // Rust rounds towards zero, the language down.
            let rounded_up = left.checked_rem(right)? != 0 && (left < 0) != (right < 0);
            Some(quotient - i64::from(rounded_up))
        }
        BinaryOp::Modulo => {
            let rest = left.checked_rem(right)?;
            Some(if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest })
        }
        BinaryOp::Equal => Some(i64::from(left == right)),
        BinaryOp::NotEqual => Some(i64::from(left != right)),
        BinaryOp::Less => Some(i64::from(left < right)),
        BinaryOp::LessEqual => Some(i64::from(left <= right)),
        BinaryOp::Greater => Some(i64::from(left > right)),
        BinaryOp::GreaterEqual => Some(i64::from(left >= right)),
        BinaryOp::And => Some(left & right),
        BinaryOp::Or => Some(left | right),
    }
}
