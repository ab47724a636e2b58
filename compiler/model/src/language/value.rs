//! Values of expressions in layers and models.

use crate::Tape;
use pipe_ir::ids::NodeId;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::fraction::Fraction;
use pipe_syntax::source::Span;

/// What an expression stands for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    /// A whole number.
    Integer(i64),
    /// A number that is exact and not whole.
    Fraction(Fraction),
    /// Any other number.
    Decimal(f64),
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
    /// In words, with its article.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::Fraction(_) => "a fraction",
            Self::Decimal(_) => "a decimal number",
            Self::Condition(_) => "a condition",
            Self::Tensor(_) => "a tensor",
            Self::Layer(_) => "a layer",
            Self::Unknown => "unknown",
        }
    }

    /// The error where a whole number is wanted.
    pub(super) fn is_not_whole(self, span: Span) -> Diagnostic {
        match self {
            Self::Fraction(value) => value.is_not_whole(span),
            other => other.is_not(span, "an integer"),
        }
    }

    /// The error where something else is wanted.
    pub(super) fn is_not(self, span: Span, wanted: &str) -> Diagnostic {
        let found = self.describe();
        Diagnostic::error(
            Code::WrongType,
            span,
            format!("this is {found}"),
            format!("{wanted} is wanted here, not {found}"),
        )
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
