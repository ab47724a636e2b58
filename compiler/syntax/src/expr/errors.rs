//! What is wrong with an expression or a call, in one wording wherever either stands.

use super::functions::BUILT_IN;
use super::scope::Form;
use crate::ast::{Call, Function, Name};
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

/// Names that mean the same in every schedule.
pub const FIXED: [&str; 3] = ["D", "M", "S"];

/// Rule: nothing has a name that every schedule knows; a parameter of a file would be hidden there.
pub fn fixed(name: &Name) -> Option<Diagnostic> {
    FIXED.contains(&name.text.as_str()).then(|| {
        let message = format!("`{}` has a fixed meaning in schedules", name.text);
        let error = Diagnostic::error(Code::DuplicateName, name.span, "another name is needed", message);
        error.help("`D` is the number of devices, `M` of microbatches, `S` of stages")
    })
}

/// Rule: no function has the name of one of the language.
pub fn built_in(name: &Name, form: Form<'_>) -> Option<Diagnostic> {
    let is_taken = matches!(form, Form::Function(_)) && BUILT_IN.contains(&name.text.as_str());
    is_taken.then(|| {
        let message = format!("`{}` is a function of the language", name.text);
        Diagnostic::error(Code::DuplicateName, name.span, "another name is needed", message)
    })
}

/// A definition that needs itself.
pub fn cyclic(name: &str, span: Span) -> Diagnostic {
    let message = format!("`{name}` uses itself, directly or through others");
    Diagnostic::error(Code::CyclicDefinition, span, "used here again", message)
}

/// A call of what is no function.
pub fn not_a_function(name: &Name) -> Diagnostic {
    let message = format!("`{}` is not a function", name.text);
    Diagnostic::error(Code::WrongType, name.span, "takes no arguments", message)
}

/// A function where a value stands.
pub fn without_arguments(function: &Function, span: Span) -> Diagnostic {
    let name = &function.name.text;
    let parameters: Vec<&str> = function.parameters.iter().map(|parameter| parameter.name.text.as_str()).collect();
    let message = format!("`{name}` is a function, and stands here without its arguments");
    let error = Diagnostic::error(Code::WrongArguments, span, "a function", message);
    let error = error.label(function.name.span, "declared here");
    error.help(format!("write `{name}({})` with a value for each", parameters.join(", ")))
}

/// A function for statements where a value stands.
pub fn stands_for_statements(function: &Function, call: &Call) -> Diagnostic {
    let message = format!("`{}` stands for statements, and has no value", call.name.text);
    let error = Diagnostic::error(Code::WrongType, call.span, "a value is needed here", message);
    error.label(function.name.span, "declared here").help("a function for a value is `let f(x) = x + 1`")
}

/// A function for a value where a statement stands.
pub fn stands_for_a_value(function: &Function, call: &Call) -> Diagnostic {
    let message = format!("`{}` stands for a value, and is no statement", call.name.text);
    let error = Diagnostic::error(Code::WrongType, call.span, "a statement is needed here", message);
    error.label(function.name.span, "declared here").help("a function for statements is `let f(n) { repeat n { .. } }`")
}

/// Two parameters of one function with the same name.
pub fn second_parameter(name: &Name) -> Diagnostic {
    let message = format!("there are two parameters with the name `{}`", name.text);
    Diagnostic::error(Code::DuplicateName, name.span, "declared again", message)
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
