//! Names in scope, and arguments of calls.

use super::evaluator::Evaluator;
use super::value::Value;
use crate::Tape;
use pipe_ir::graph::DType;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use pipe_syntax::{ast, suggest};
use std::collections::BTreeMap;

/// What names stand for. Declared ones hide parameters of the files.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    names: BTreeMap<String, (Value, Option<Span>)>,
}

impl Environment {
    /// Only the parameters of the files.
    pub(super) fn new(parameters: &BTreeMap<String, i64>) -> Self {
        let names = parameters.iter().map(|(name, value)| (name.clone(), (Value::Integer(*value), None)));
        Self { names: names.collect() }
    }

    /// What a name stands for.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        self.names.get(name).map(|(value, _)| *value)
    }

    /// Every name of a layer.
    pub(super) fn layers(&self) -> impl Iterator<Item = &str> {
        let layers = self.names.iter().filter(|(_, (value, _))| matches!(value, Value::Layer(_)));
        layers.map(|(name, _)| name.as_str())
    }

    /// Every name.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Gives a name its value; a declaration can use a name once.
    pub(super) fn define(&mut self, name: &ast::Name, value: Value, found: &mut Diagnostics) {
        if let Some((_, Some(first))) = self.names.insert(name.text.clone(), (value, Some(name.span))) {
            let message = format!("`{}` is declared twice", name.text);
            let diagnostic = Diagnostic::error(Code::DuplicateName, name.span, "declared again", message);
            found.push(diagnostic.label(first, "declared here"));
        }
    }

    /// The value of an expression without tensors.
    pub(super) fn number(&self, expression: &ast::Expr, found: &mut Diagnostics) -> Value {
        Evaluator { names: self, tape: &mut Tape::new(DType::F32), found }.value(expression)
    }

    /// The values that a call gives to parameters, in their order. Defaults may name the parameters before them.
    pub(super) fn arguments(
        &self,
        call: &ast::Call,
        parameters: &[ast::Parameter],
        of_files: &BTreeMap<String, i64>,
        found: &mut Diagnostics,
    ) -> Self {
        let mut given: Vec<Option<Value>> = vec![None; parameters.len()];
        for (position, argument) in call.arguments.iter().enumerate() {
            let value = match self.number(&argument.value, found) {
                layer @ Value::Layer(_) => {
                    let help = "write `from` behind the call to say what flows in";
                    found.push(layer.is_not(argument.value.span, "a number").help(help));
                    Value::Unknown
                }
                number => number,
            };
            let slot = match &argument.name {
                Some(name) => parameters.iter().position(|parameter| parameter.name.text == name.text),
                None => Some(position).filter(|position| *position < parameters.len()),
            };
            let span = argument.name.as_ref().map_or(argument.value.span, |name| name.span);
            match slot {
                Some(slot) if given[slot].is_none() => given[slot] = Some(value),
                Some(slot) => {
                    let message = format!("`{}` is given twice", parameters[slot].name.text);
                    found.push(Diagnostic::error(Code::WrongArguments, span, "a second value", message));
                }
                None => found.push(too_many(call, argument, parameters, span)),
            }
        }
        let mut names = Self::new(of_files);
        for (parameter, given) in parameters.iter().zip(given) {
            let value = match (given, &parameter.default) {
                (Some(value), _) => value,
                (None, Some(default)) => names.number(default, found),
                (None, None) => {
                    let message = format!("`{}` needs a value for `{}`", call.name.text, parameter.name.text);
                    let diagnostic = Diagnostic::error(Code::WrongArguments, call.span, "called here", message);
                    found.push(diagnostic.label(parameter.name.span, "this has no default"));
                    Value::Unknown
                }
            };
            names.define(&parameter.name, value, found);
        }
        names
    }
}

fn too_many(call: &ast::Call, argument: &ast::Argument, parameters: &[ast::Parameter], span: Span) -> Diagnostic {
    let names = || parameters.iter().map(|parameter| parameter.name.text.as_str());
    match &argument.name {
        Some(name) => {
            let message = format!("`{}` has no parameter `{}`", call.name.text, name.text);
            let diagnostic = Diagnostic::error(Code::WrongArguments, span, "not a parameter", message);
            Diagnostic { help: suggest::help(&name.text, names()), ..diagnostic }
        }
        None => {
            let message = format!(
                "`{}` takes {} values, and is given {}",
                call.name.text,
                parameters.len(),
                call.arguments.len()
            );
            Diagnostic::error(Code::WrongArguments, span, "one too many", message)
        }
    }
}
