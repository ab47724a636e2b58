//! Operators on numbers, conditions and tensors.

use super::evaluator::{Evaluator, symbol};
use super::value::{Operand, Value};
use crate::Tape;
use crate::graph::composed;
use crate::graph::tape::is_number;
use pipe_ir::graph::{Binary, Unary, broadcast};
use pipe_ir::ids::NodeId;
use pipe_syntax::ast::{BinaryOp, UnaryOp};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::errors::no_result;
use pipe_syntax::expr::number::{self, NoResult, Number, Outcome};
use pipe_syntax::source::Span;

/// A value with its place.
type Placed = (Value, Span);

/// `-x`, `not x`
pub(super) fn unary(evaluator: &mut Evaluator<'_>, operator: UnaryOp, (value, place): Placed, span: Span) -> Value {
    match (operator, value) {
        (_, Value::Unknown) => Value::Unknown,
        (UnaryOp::Not, Value::Condition(holds)) => Value::Condition(!holds),
        (UnaryOp::Negate, Value::Tensor(node)) => elementwise(evaluator, Unary::Neg, Operand { node, span: place }),
        (UnaryOp::Negate, Value::Number(number)) => match number.negated() {
            Ok(negated) => Value::Number(negated),
            Err(none) => evaluator.report(no_result(span, none.words(format_args!("-({number})")))),
        },
        _ => evaluator.report(no_sense(symbol(operator), &[(value, place)])),
    }
}

/// An element-wise function of one tensor of numbers.
pub(super) fn elementwise(evaluator: &mut Evaluator<'_>, function: Unary, x: Operand) -> Value {
    if let Some(diagnostic) = not_numbers(evaluator, x) {
        return evaluator.report(diagnostic);
    }
    Value::Tensor(evaluator.tape.unary(function, x.node))
}

/// The error where indices are used as numbers.
pub(super) fn not_numbers(evaluator: &Evaluator<'_>, x: Operand) -> Option<Diagnostic> {
    (!is_number(evaluator.tape.ty(x.node))).then(|| {
        x.error(evaluator.tape, Code::WrongType, "tensors of `i32` hold indices: there is no arithmetic on them")
    })
}

/// `x + y` and its like.
pub(super) fn binary(evaluator: &mut Evaluator<'_>, operator: BinaryOp, a: Placed, b: Placed, span: Span) -> Value {
    match (a.0, b.0) {
        (Value::Unknown, _) | (_, Value::Unknown) => Value::Unknown,
        (Value::Tensor(_), _) | (_, Value::Tensor(_)) => tensors(evaluator, operator, a, b, span),
        (Value::Number(left), Value::Number(right)) => match numbers(operator, left, right) {
            Some(Ok(Outcome::Number(number))) => Value::Number(number),
            Some(Ok(Outcome::Condition(holds))) => Value::Condition(holds),
            Some(Err(none)) => {
                let operation = format_args!("{left} {} {right}", operator.symbol());
                evaluator.report(no_result(span, none.words(operation)))
            }
            None => evaluator.report(no_sense(operator.symbol(), &[a, b])),
        },
        (Value::Condition(left), Value::Condition(right)) => match operator {
            BinaryOp::And => Value::Condition(left && right),
            BinaryOp::Or => Value::Condition(left || right),
            BinaryOp::Equal => Value::Condition(left == right),
            BinaryOp::NotEqual => Value::Condition(left != right),
            _ => evaluator.report(no_sense(operator.symbol(), &[a, b])),
        },
        _ => evaluator.report(no_sense(operator.symbol(), &[a, b])),
    }
}

/// An operator on numbers; none where it does not work on them. Whether two decimals are equal, and
/// what is left when one is divided by another, is chance.
pub(super) fn numbers(operator: BinaryOp, left: Number, right: Number) -> Option<Result<Outcome, NoResult>> {
    let whole = |number: Number| number.as_whole().is_some();
    let is_exact = |number: Number| matches!(number, Number::Exact(_));
    match operator {
        BinaryOp::Equal | BinaryOp::NotEqual | BinaryOp::Modulo if !is_exact(left) || !is_exact(right) => None,
        _ => match number::binary(operator, left, right) {
            // A fraction that needs more than 64 bits becomes a decimal: no whole number is lost.
            Some(Err(NoResult::Overflow)) if operator != BinaryOp::Modulo && (!whole(left) || !whole(right)) => {
                number::inexact(operator, left, right)
            }
            result => result,
        },
    }
}

fn tensors(evaluator: &mut Evaluator<'_>, operator: BinaryOp, a: Placed, b: Placed, span: Span) -> Value {
    let function: fn(&mut Tape, NodeId, NodeId) -> NodeId = match operator {
        BinaryOp::Add => |tape, a, b| tape.binary(Binary::Add, a, b),
        BinaryOp::Subtract => |tape, a, b| tape.binary(Binary::Sub, a, b),
        BinaryOp::Multiply => |tape, a, b| tape.binary(Binary::Mul, a, b),
        BinaryOp::Divide => |tape, a, b| tape.binary(Binary::Div, a, b),
        BinaryOp::Greater => composed::greater,
        BinaryOp::Less => |tape, a, b| composed::greater(tape, b, a),
        BinaryOp::GreaterEqual => |tape, a, b| composed::at_least(tape, a, b),
        BinaryOp::LessEqual => |tape, a, b| composed::at_least(tape, b, a),
        BinaryOp::Equal => composed::equal,
        BinaryOp::NotEqual => |tape, a, b| {
            let equal = composed::equal(tape, a, b);
            tape.complement(equal)
        },
        _ => return evaluator.report(no_sense(operator.symbol(), &[a, b])),
    };
    let (Ok(a), Ok(b)) = (evaluator.tensor(a), evaluator.tensor(b)) else { return Value::Unknown };
    if let Some(diagnostic) = not_numbers(evaluator, a).or_else(|| not_numbers(evaluator, b)) {
        return evaluator.report(diagnostic);
    }
    if let Some(diagnostic) = not_alike(evaluator, operator.symbol(), a, b) {
        return evaluator.report(diagnostic);
    }
    let node = function(evaluator.tape, a.node, b.node);
    evaluator.made(node, span).unwrap_or(Value::Unknown)
}

/// What is wrong with two tensors that do not broadcast against each other.
pub(super) fn not_alike(evaluator: &Evaluator<'_>, function: &str, a: Operand, b: Operand) -> Option<Diagnostic> {
    if broadcast(evaluator.tape.shape(a.node), evaluator.tape.shape(b.node)).is_some() {
        return None;
    }
    let (left, right) = (evaluator.tape.ty(a.node), evaluator.tape.ty(b.node));
    let message = format!("`{function}` cannot join {left} and {right}");
    let diagnostic = b.label(evaluator.tape, a.error(evaluator.tape, Code::ShapeMismatch, message));
    Some(diagnostic.help("shapes are compared from the right: sizes must be equal, or one of them 1 or missing"))
}

fn no_sense(symbol: &str, operands: &[Placed]) -> Diagnostic {
    let names: Vec<&str> = operands.iter().map(|(value, _)| value.describe()).collect();
    let message = format!("`{symbol}` does not work on {}", names.join(" and "));
    let mut operands = operands.iter();
    let (first, place) = operands.next().expect("an operator has operands");
    let diagnostic = Diagnostic::error(Code::WrongType, *place, format!("this is {}", first.describe()), message);
    operands.fold(diagnostic, |diagnostic, (value, place)| {
        diagnostic.label(*place, format!("this is {}", value.describe()))
    })
}
