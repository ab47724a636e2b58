//! What is wrong with an expression or a call, in one wording wherever either stands.

use crate::ast::{Call, Name};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;

/// A name that stands for nothing; `known` are the names that could be meant.
pub fn unknown_name<'n>(name: &str, span: Span, known: impl IntoIterator<Item = &'n str>) -> Diagnostic {
    let message = format!("unknown name `{name}`");
    Diagnostic::error(Code::UnknownName, span, "not known here", message).suggest(span, name, known)
}

/// A call of a function that there is not.
pub fn unknown_function<'n>(name: &Name, known: impl IntoIterator<Item = &'n str>) -> Diagnostic {
    let message = format!("unknown function `{}`", name.text);
    Diagnostic::error(Code::UnknownName, name.span, "not known", message).suggest(name.span, &name.text, known)
}

/// An argument with a name, of a function that has none.
pub fn named_argument(call: &Call, name: &Name) -> Diagnostic {
    let message = format!("`{}` takes its arguments by position", call.name.text);
    Diagnostic::error(Code::WrongArguments, name.span, "no name here", message)
}

/// A call with more or fewer arguments than the function `takes`, in words.
pub fn wrong_count(call: &Call, takes: &str) -> Diagnostic {
    let message = format!("`{}` takes {takes}, found {}", call.name.text, call.arguments.len());
    Diagnostic::error(Code::WrongArguments, call.span, "in this call", message)
}

/// A value of another type than the one that is needed; both with their articles.
pub fn wrong_type(span: Span, expected: &str, found: &str) -> Diagnostic {
    let message = format!("expected {expected}, found {found}");
    Diagnostic::error(Code::WrongType, span, format!("this is {found}"), message)
}

/// An operation without a result.
pub fn no_result(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Code::Arithmetic, span, "has no result", message)
}
