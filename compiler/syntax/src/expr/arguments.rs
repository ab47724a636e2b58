//! Arguments: values for the parameters of a schedule, layer or model.

use super::evaluate::evaluate;
use super::exact::exact;
use super::scope::Fault;
use crate::ast::{Call, Expr, Name, Parameter};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::limits::Report;
use crate::suggest;
use std::collections::BTreeMap;

/// Numbers by name.
pub type Values = BTreeMap<String, i64>;

/// Gives every parameter of a schedule a value: from the call, by position or name, or its default.
///
/// Arguments may use the names of `caller`; defaults those of `outside`, and parameters further left.
pub fn bind(
    (declared, parameters): (&Name, &[Parameter]),
    call: Option<&Call>,
    caller: &Values,
    outside: &Values,
) -> Result<Values, Diagnostics> {
    bind_with(Callee { declared, parameters, settings: &[], division: Division::RoundsDown }, call, caller, outside)
}

/// What is called, and values that go before those of the call.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a> {
    /// Its name, where it is declared.
    pub declared: &'a Name,
    /// Its parameters.
    pub parameters: &'a [Parameter],
    /// Values that the caller of the compiler sets, instead of the call's.
    pub settings: &'a [(String, i64)],
    /// Whether `/` rounds down in its arguments.
    pub division: Division,
}

/// What `/` does in the values that parameters are given, and in their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// In schedules.
    RoundsDown,
    /// In all else: what is not whole in the end is an error.
    Exact,
}

impl Division {
    fn evaluate(self, expr: &Expr, values: &Values) -> Result<i64, Fault> {
        match self {
            Self::RoundsDown => evaluate(expr, values),
            Self::Exact => exact(expr, values),
        }
        .map_err(Box::new)
    }
}

/// Binds the arguments of a call to the parameters of its callee.
pub fn bind_with(
    callee: Callee<'_>,
    call: Option<&Call>,
    caller: &Values,
    outside: &Values,
) -> Result<Values, Diagnostics> {
    let mut report = Report::default();
    let mut bound = Values::new();
    for (position, argument) in call.into_iter().flat_map(|call| &call.arguments).enumerate() {
        let parameter = match &argument.name {
            Some(name) => callee.parameters.iter().find(|parameter| parameter.name.text == name.text),
            None => callee.parameters.get(position),
        };
        let Some(parameter) = parameter else {
            report.add(superfluous(callee, argument.name.as_ref(), argument.value.span));
            continue;
        };
        let Some(value) = report.take(callee.division.evaluate(&argument.value, caller)) else { continue };
        if bound.insert(parameter.name.text.clone(), value).is_some() {
            let message = format!("`{}` of `{}` is given twice", parameter.name.text, callee.declared.text);
            report.add(Diagnostic::error(Code::WrongArguments, argument.value.span, "given again", message));
        }
    }
    for (name, value) in callee.settings {
        if callee.parameters.iter().any(|parameter| parameter.name.text == *name) {
            bound.insert(name.clone(), *value);
        }
    }
    if report.is_empty() {
        defaults(callee, call, outside, &mut bound, &mut report);
    }
    report.finish(bound)
}

fn defaults(callee: Callee<'_>, call: Option<&Call>, outside: &Values, bound: &mut Values, report: &mut Report) {
    let mut visible = outside.clone();
    for parameter in callee.parameters {
        let name = &parameter.name.text;
        let value = match (bound.get(name), &parameter.default) {
            (Some(value), _) => Some(*value),
            (None, Some(default)) => report.take(callee.division.evaluate(default, &visible)),
            (None, None) => {
                let message = format!("`{}` needs a value for `{name}`", callee.declared.text);
                let span = call.map_or(callee.declared.span, |call| call.span);
                let error = Diagnostic::error(Code::WrongArguments, span, format!("no value for `{name}`"), message);
                report.add(error.label(parameter.name.span, "declared without a default"));
                None
            }
        };
        // Where a value is missing, 1 stands in, so that later defaults cause no errors of their own.
        visible.insert(name.clone(), value.unwrap_or(1));
        bound.insert(name.clone(), value.unwrap_or(1));
    }
}

fn superfluous(callee: Callee<'_>, name: Option<&Name>, value: crate::source::Span) -> Diagnostic {
    let n_parameters = callee.parameters.len();
    let declared = &callee.declared.text;
    let error = match name {
        Some(name) => {
            let message = format!("`{declared}` has no parameter `{}`", name.text);
            Diagnostic::error(Code::WrongArguments, name.span, "no such parameter", message)
        }
        None => {
            let message = format!("`{declared}` has {n_parameters} parameters, and more values are given");
            Diagnostic::error(Code::WrongArguments, value, "one too many", message)
        }
    };
    let known = callee.parameters.iter().map(|parameter| parameter.name.text.as_str());
    let help = name.and_then(|name| suggest::help(&name.text, known));
    Diagnostic { help, ..error.label(callee.declared.span, "declared here") }
}
