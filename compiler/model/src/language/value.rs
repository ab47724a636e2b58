//! Values of expressions in layers and models.

use crate::Tape;
use pipe_ir::ids::NodeId;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::errors::wrong_type;
use pipe_syntax::expr::number::Number;
use pipe_syntax::source::Span;

/// What an expression stands for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    /// A number.
    Number(Number),
    /// Whether something holds.
    Condition(bool),
    /// A node of the layer's tape.
    Tensor(NodeId),
    /// A layer of the model, by its number.
    Layer(usize),
    /// The error that keeps it from being known has been reported.
    Unknown,
}

impl Value {
    /// A whole number.
    pub(super) const fn whole(value: i64) -> Self {
        Self::Number(Number::whole(value))
    }

    /// The whole number that this is, if it is one.
    pub(super) fn as_whole(self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_whole() } else { None }
    }

    /// A number as a floating-point one.
    pub(super) fn to_f64(self) -> Option<f64> {
        if let Self::Number(number) = self { Some(number.to_f64()) } else { None }
    }

    /// In words, with its article.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Number(Number::Exact(value)) if value.as_whole().is_none() => "a fraction",
            Self::Number(Number::Exact(_)) => "a whole number",
            Self::Number(Number::Decimal(_)) => "a decimal",
            Self::Condition(_) => "a condition",
            Self::Tensor(_) => "a tensor",
            Self::Layer(_) => "a layer",
            Self::Unknown => "unknown",
        }
    }

    /// The error where a whole number is wanted.
    pub(super) fn is_not_whole(self, span: Span) -> Diagnostic {
        match self {
            Self::Number(Number::Exact(value)) => value.is_not_whole(span),
            other => other.is_not(span, "a whole number"),
        }
    }

    /// The error where something else is wanted.
    pub(super) fn is_not(self, span: Span, wanted: &str) -> Diagnostic {
        wrong_type(span, wanted, self.describe())
    }
}

/// A tensor with the place in the source where it is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    /// The node.
    pub node: NodeId,
    /// The expression.
    pub span: Span,
}

impl Operand {
    /// Labels an error with the type of this tensor.
    pub(super) fn label(self, tape: &Tape, diagnostic: Diagnostic) -> Diagnostic {
        diagnostic.label(self.span, format!("this is {}", tape.ty(self.node)))
    }

    /// An error about the type of this tensor.
    pub(super) fn error(self, tape: &Tape, code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.span, format!("this is {}", tape.ty(self.node)), message)
    }
}
