//! Evaluation of expressions to numbers and tensors.
//!
//! An expression that is wrong is reported and becomes [`Value::Unknown`]; whatever uses it becomes unknown in silence.

use super::dropout::Keys;
use super::environment::Environment;
use super::value::{Operand, Value};
use super::{functions, operators};
use crate::Tape;
use pipe_ir::graph::DType;
use pipe_ir::ids::NodeId;
use pipe_syntax::ast::{self, BinaryOp, Expr, ExprKind, UnaryOp};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Signature;
use pipe_syntax::expr::errors::unknown_name;
use pipe_syntax::expr::number::Number;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// What helps where a number has no place in `f32`.
pub(super) const TOO_LARGE: &str = "write `precision f64` in the pipeline for numbers up to 1.8e308";

/// Evaluates with some names in scope, adding nodes to a tape.
pub(super) struct Evaluator<'a> {
    /// What names stand for.
    pub names: &'a Environment,
    /// The layer's tape.
    pub tape: &'a mut Tape,
    /// What is wrong so far.
    pub found: &'a mut Diagnostics,
    /// Of the layer's dropouts.
    pub keys: &'a mut Keys,
}

/// The expression cannot be evaluated; why has been reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// The most elements that a tensor may have: 4 TiB of them.
const MAX_ELEMENTS: u64 = 1 << 40;

impl Evaluator<'_> {
    /// What an expression stands for.
    pub(super) fn value(&mut self, expression: &Expr) -> Value {
        match &expression.kind {
            ExprKind::Integer(value) => Value::whole(*value),
            ExprKind::Decimal(decimal) => Value::Number(Number::Decimal(decimal.to_f64())),
            ExprKind::Name(name) => self.names.get(name).unwrap_or_else(|| self.unknown(name, expression.span)),
            ExprKind::Unary(operator, operand) => {
                let value = self.value(operand);
                operators::unary(self, *operator, (value, operand.span), expression.span)
            }
            ExprKind::Binary(operator, left, right) => self.binary(*operator, left, right, expression.span),
            ExprKind::If { condition, then, otherwise } => match self.value(condition) {
                Value::Condition(true) => self.value(then),
                Value::Condition(false) => self.value(otherwise),
                Value::Unknown => Value::Unknown,
                other => self.report(other.is_not(condition.span, "a condition")),
            },
            ExprKind::Call(call) => functions::call(self, call),
            ExprKind::Index(list, _) => self.indexed(list, expression.span),
            ExprKind::List(_) | ExprKind::Each { .. } | ExprKind::Range(..) | ExprKind::Behind(..) => {
                let message = "a list is only wanted as a shape";
                self.report(Diagnostic::error(Code::WrongType, expression.span, "this is a list", message))
            }
        }
    }

    /// Reports a name that stands for nothing.
    fn unknown(&mut self, name: &str, span: Span) -> Value {
        let Some(line) = self.names.line_without(name) else {
            return self.report(unknown_name(name, span, self.names.names()));
        };
        let message = format!("the layer has no `{name}` here: the condition of its line is false");
        let error = Diagnostic::error(Code::UnknownName, span, "used here", message);
        let help = format!("use it under the same condition: `if .. then .. {name} .. else ..`");
        self.report(error.label(line, "declared here").help(help))
    }

    /// Reports `x[0]`: a part of a tensor has a function, and lists are read in schedules.
    fn indexed(&mut self, list: &Expr, span: Span) -> Value {
        match (self.value(list), &list.kind) {
            (Value::Unknown, _) => Value::Unknown,
            (Value::Tensor(_), ExprKind::Name(name)) => {
                let message = format!("`{name}` is not indexed by `[..]`");
                let error = Diagnostic::error(Code::WrongType, span, "a part of a tensor", message);
                self.report(error.help(format!("write `slice({name}, axis, start, size)`")))
            }
            _ => {
                let message = "lists are read by position in schedules, and not in layers and models";
                self.report(Diagnostic::error(Code::WrongType, span, "a position", message))
            }
        }
    }

    fn binary(&mut self, operator: BinaryOp, left: &Expr, right: &Expr, span: Span) -> Value {
        let first = self.value(left);
        match (operator, first) {
            (BinaryOp::And, Value::Condition(false)) | (BinaryOp::Or, Value::Condition(true)) => first,
            _ => {
                let second = self.value(right);
                operators::binary(self, operator, (first, left.span), (second, right.span), span)
            }
        }
    }

    /// Reports an error in place of a value.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> Value {
        self.found.push(diagnostic);
        Value::Unknown
    }

    /// Reports an error where there can be no result.
    pub(super) fn fail<T>(&mut self, diagnostic: Diagnostic) -> Result<T, Reported> {
        self.found.push(diagnostic);
        Err(Reported)
    }

    /// A tensor; a number becomes a constant.
    pub(super) fn tensor(&mut self, (value, span): (Value, Span)) -> Result<Operand, Reported> {
        if let Value::Tensor(node) = value {
            return Ok(Operand { node, span });
        }
        match value.to_f64() {
            Some(number) if self.tape.precision().nearest(number).is_finite() => {
                Ok(Operand { node: self.tape.constant(number, &[]), span })
            }
            Some(number) => {
                let message = format!("{number:e} is too large for a number of type {}", self.tape.precision());
                let error = Diagnostic::error(Code::OutOfRange, span, "in a tensor", message);
                self.fail(error.help(TOO_LARGE))
            }
            None if value == Value::Unknown => Err(Reported),
            None => self.fail(value.is_not(span, "a tensor")),
        }
    }

    /// An integer.
    pub(super) fn integer(&mut self, (value, span): (Value, Span)) -> Result<i64, Reported> {
        match value {
            Value::Unknown => Err(Reported),
            other => match other.as_whole() {
                Some(whole) => Ok(whole),
                None => self.fail(other.is_not_whole(span)),
            },
        }
    }

    /// A size of a tensor: at least 1.
    pub(super) fn size(&mut self, (value, span): (Value, Span)) -> Result<u64, Reported> {
        let value = self.integer((value, span))?;
        match u64::try_from(value) {
            Ok(size) if size > 0 => Ok(size),
            _ => {
                let message = format!("sizes are at least 1, and this one is {value}");
                self.fail(Diagnostic::error(Code::OutOfRange, span, format!("this is {value}"), message))
            }
        }
    }

    /// A shape: a list of sizes that is not absurdly large. Reports every size that is wrong.
    pub(super) fn shape(&mut self, sizes: &[Expr], span: Span) -> Result<Vec<u64>, Reported> {
        let sizes: Vec<_> = sizes
            .iter()
            .map(|size| {
                let value = self.value(size);
                self.size((value, size.span))
            })
            .collect();
        let shape = sizes.into_iter().collect::<Result<Vec<u64>, Reported>>()?;
        self.check_elements(&shape, span)?;
        Ok(shape)
    }

    /// Refuses tensors that are absurdly large.
    pub(super) fn check_elements(&mut self, shape: &[u64], span: Span) -> Result<(), Reported> {
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        if elements.is_some_and(|elements| elements <= MAX_ELEMENTS) {
            return Ok(());
        }
        let message = format!("a tensor of shape {shape:?} has more than {MAX_ELEMENTS} elements");
        self.fail(Diagnostic::error(Code::TooLarge, span, "this tensor", message))
    }

    /// The tensor that a node makes, unless it is absurdly large.
    pub(super) fn made(&mut self, node: NodeId, span: Span) -> Result<Value, Reported> {
        let shape = self.tape.shape(node).to_vec();
        self.check_elements(&shape, span)?;
        Ok(Value::Tensor(node))
    }
}

impl Environment {
    /// The value of an expression without tensors.
    pub(super) fn number(&self, expression: &ast::Expr, found: &mut Diagnostics) -> Value {
        let (tape, keys) = (&mut Tape::new(DType::F32), &mut Keys::default());
        Evaluator { names: self, tape, found, keys }.value(expression)
    }

    /// The values that a call gives to parameters, in their order. Defaults may name the parameters before them.
    pub(super) fn arguments(
        &self,
        call: &ast::Call,
        parameters: &[ast::Parameter],
        of_files: &BTreeMap<String, i64>,
        found: &mut Diagnostics,
    ) -> Self {
        let declared: Vec<&str> = parameters.iter().map(|parameter| parameter.name.text.as_str()).collect();
        let signature = Signature::undeclared(&call.name.text, declared, "parameter");
        let given = signature.arguments(call, found);
        let mut names = Self::new(of_files);
        for (parameter, argument) in parameters.iter().zip(given) {
            let value = match (argument, &parameter.default) {
                (Some(argument), _) => match self.number(&argument.value, found) {
                    layer @ Value::Layer(_) => {
                        let help = "write `from` behind the call to say what flows in";
                        found.push(layer.is_not(argument.value.span, "a number").help(help));
                        Value::Unknown
                    }
                    number => number,
                },
                (None, Some(default)) => names.number(default, found),
                (None, None) => {
                    let error = signature.missing(&parameter.name.text, call.span);
                    found.push(error.label(parameter.name.span, "declared without a default"));
                    Value::Unknown
                }
            };
            names.define(&parameter.name, value, found);
        }
        names
    }
}

/// `-x`, `not x`, for messages.
pub(super) const fn symbol(operator: UnaryOp) -> &'static str {
    match operator {
        UnaryOp::Negate => "-",
        UnaryOp::Not => "not",
    }
}
