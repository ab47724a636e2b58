//! Arguments: which of them gives which parameter its value, and the values of the parameters of
//! schedules and models.

pub use super::evaluate::Values;

use super::known::Known;
use super::number::Number;
use super::scope::Fault;
use crate::ast::{Argument, Call, Expr, Name, Parameter};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::limits::Report;
use crate::source::Span;
use crate::suggest;
use std::collections::BTreeMap;

/// What a call may give.
#[derive(Clone, Debug)]
pub struct Signature<'a> {
    /// What is called.
    pub name: &'a str,
    /// Where that is declared, if it is.
    pub declared: Option<Span>,
    /// The names of its parameters, in their order.
    pub parameters: Vec<&'a str>,
    /// What they are called: `parameter` or `setting`.
    pub noun: &'static str,
    /// Whether an argument without a name is for the parameter at its position.
    pub has_positions: bool,
}

impl<'a> Signature<'a> {
    /// What is declared with parameters.
    pub fn of(declared: &'a Name, parameters: &'a [Parameter]) -> Self {
        let names = parameters.iter().map(|parameter| parameter.name.text.as_str());
        Self { declared: Some(declared.span), ..Self::undeclared(&declared.text, names.collect(), "parameter") }
    }

    /// The same without the place of a declaration.
    pub const fn undeclared(name: &'a str, parameters: Vec<&'a str>, noun: &'static str) -> Self {
        Self { name, declared: None, parameters, noun, has_positions: true }
    }

    /// The argument of each parameter, by position or name.
    pub fn arguments<'c>(&self, call: &'c Call, found: &mut Diagnostics) -> Vec<Option<&'c Argument>> {
        let mut given: Vec<Option<&Argument>> = vec![None; self.parameters.len()];
        for (position, argument) in call.arguments.iter().enumerate() {
            let parameter = match &argument.name {
                Some(name) => self.parameters.iter().position(|parameter| *parameter == name.text),
                None => Some(position).filter(|position| self.has_positions && *position < given.len()),
            };
            match parameter {
                // Of arguments without a name that are too many, the first one says it.
                None if self.has_positions && argument.name.is_none() && position > given.len() => {}
                None => {
                    found.push(self.superfluous(call, argument));
                    // Its value is there, so that it is not missing as well.
                    if let Some(free) = self.meant(argument).and_then(|meant| given.get_mut(meant)) {
                        free.get_or_insert(argument);
                    }
                }
                Some(parameter) => match given[parameter] {
                    None => given[parameter] = Some(argument),
                    Some(first) => {
                        let message = format!("`{}` is given twice", self.parameters[parameter]);
                        let span = argument.value.span;
                        let error = Diagnostic::error(Code::WrongArguments, span, "given again", message);
                        found.push(error.label(first.value.span, "given here"));
                    }
                },
            }
        }
        given
    }

    /// The parameter that an argument with another name is probably for.
    fn meant(&self, argument: &Argument) -> Option<usize> {
        let name = argument.name.as_ref()?.text.as_str();
        let known = || self.parameters.iter().copied();
        let meant = abbreviated(name).filter(|whole| self.parameters.contains(whole));
        let meant = meant.or_else(|| suggest::closest(name, known()))?;
        known().position(|parameter| parameter == meant)
    }

    fn superfluous(&self, call: &Call, argument: &Argument) -> Diagnostic {
        let (callee, noun) = (self.name, self.noun);
        let error = match &argument.name {
            Some(name) => {
                let message = format!("`{callee}` has no {noun} `{}`", name.text);
                let error = Diagnostic::error(Code::WrongArguments, name.span, format!("no such {noun}"), message);
                match abbreviated(&name.text).filter(|whole| self.parameters.contains(whole)) {
                    Some(whole) => error.help(format!("write `{whole}`")).edit(name.span, whole),
                    None => error.suggest(name.span, &name.text, self.parameters.iter().copied()),
                }
            }
            None if !self.has_positions => {
                let message = format!("`{callee}` takes its {noun}s by name");
                let span = argument.value.span;
                let error = Diagnostic::error(Code::WrongArguments, span, format!("which {noun}?"), message);
                let first = self.parameters.first().copied().unwrap_or("name");
                let error = error.help(format!("write `{first} = ..`"));
                let is_only = call.arguments.len() == 1;
                if is_only { error.edit(Span { end: span.start, ..span }, format!("{first} = ")) } else { error }
            }
            None => {
                let (takes, found) = (self.parameters.len(), call.arguments.len());
                let plural = if takes == 1 { "" } else { "s" };
                let message = format!("`{callee}` takes {takes} argument{plural}, found {found}");
                Diagnostic::error(Code::WrongArguments, argument.value.span, "one too many", message)
            }
        };
        self.declared.into_iter().fold(error, |error, span| error.label(span, "declared here"))
    }

    /// The error where a parameter has neither argument nor default.
    pub fn missing(&self, parameter: &str, call: Span) -> Diagnostic {
        let message = format!("`{}` needs a value for `{parameter}`", self.name);
        Diagnostic::error(Code::WrongArguments, call, format!("no value for `{parameter}`"), message)
    }
}

/// The whole name of a parameter that other systems abbreviate.
fn abbreviated(name: &str) -> Option<&'static str> {
    Some(match name {
        "lr" | "LR" => "learning_rate",
        "wd" => "weight_decay",
        "eps" => "epsilon",
        _ => return None,
    })
}

/// What is called, and values that go before those of the call.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a, T = i64> {
    /// Its name, where it is declared.
    pub declared: &'a Name,
    /// Its parameters.
    pub parameters: &'a [Parameter],
    /// Values that the caller of the compiler sets, instead of the call's.
    pub settings: &'a [(String, i64)],
    /// What an argument or a default is: [`evaluate`](super::evaluate::evaluate) in schedules,
    /// [`exact`](super::evaluate::exact) elsewhere.
    pub evaluate: fn(&Expr, &Known<'_>) -> Result<T, Fault>,
}

/// What parameters of a kind of declaration stand for.
pub trait Bound: Copy {
    /// A whole number.
    fn whole(value: i64) -> Self;
    /// The whole number that it is, if it is one: other defaults may name it.
    fn as_whole(self) -> Option<i64>;
}

impl Bound for i64 {
    fn whole(value: i64) -> Self {
        value
    }

    fn as_whole(self) -> Option<i64> {
        Some(self)
    }
}

impl Bound for Number {
    fn whole(value: i64) -> Self {
        Self::whole(value)
    }

    fn as_whole(self) -> Option<i64> {
        self.as_whole()
    }
}

/// Gives every parameter a value: a setting, or an argument of the call, or its default.
///
/// Arguments may use the `visible` names; defaults those and the parameters further left.
///
/// # Errors
/// Arguments that no parameter takes, parameters without a value, and values that are wrong.
pub fn bind<T: Bound>(
    callee: Callee<'_, T>,
    call: Option<&Call>,
    visible: &Known<'_>,
) -> Result<BTreeMap<String, T>, Diagnostics> {
    let signature = Signature::of(callee.declared, callee.parameters);
    let (mut report, mut found) = (Report::default(), Diagnostics::new());
    let given = call.map_or_else(Vec::new, |call| signature.arguments(call, &mut found));
    report.extend(found);
    let mut bound = BTreeMap::new();
    for (parameter, argument) in callee.parameters.iter().zip(given) {
        let Some(argument) = argument else { continue };
        let value = report.take((callee.evaluate)(&argument.value, visible));
        bound.extend(value.map(|value| (parameter.name.text.clone(), value)));
    }
    for (name, value) in callee.settings {
        if signature.parameters.contains(&name.as_str()) {
            bound.insert(name.clone(), T::whole(*value));
        }
    }
    if !report.is_empty() {
        return report.finish(bound);
    }
    let mut visible = visible.clone();
    for parameter in callee.parameters {
        let name = &parameter.name.text;
        let value = match (bound.get(name), &parameter.default) {
            (Some(value), _) => Some(*value),
            (None, Some(default)) => report.take((callee.evaluate)(default, &visible)),
            (None, None) => {
                let span = call.map_or(callee.declared.span, |call| call.span);
                let error = signature.missing(name, span);
                report.add(error.label(parameter.name.span, "declared without a default"));
                None
            }
        };
        // Where a value is missing, 1 stands in, so that later defaults cause no errors of their own.
        let value = value.unwrap_or(T::whole(1));
        if let Some(value) = value.as_whole() {
            visible.insert(name, value);
        }
        bound.insert(name.clone(), value);
    }
    report.finish(bound)
}
