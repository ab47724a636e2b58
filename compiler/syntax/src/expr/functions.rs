//! Calls: of the functions of the language, and of those that a text defines.

use super::arguments::Signature;
use super::arithmetic::Arithmetic;
use super::errors::{self, named_argument, unknown_function, wrong_count, wrong_type};
use super::evaluate::Machine;
use super::scope::{Fault, Form, Node, Outside, Resolved, Scope, State, Type};
use crate::ast::{Argument, Call, Expr, Function};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::parse::foreign;
use crate::source::Span;

/// The functions of the language.
pub const BUILT_IN: [&str; 3] = ["min", "max", "abs"];

/// What a call costs, in operations.
const CALL: u64 = 32;

/// Calls of calls that an error shows, and what they are about.
const MOST_LABELS: usize = 8;

/// A function with what it is given.
#[derive(Debug)]
pub struct Called<'a> {
    /// Its position among the definitions.
    pub slot: usize,
    /// What was written.
    pub function: &'a Function,
    /// What each parameter is given; none where its default holds.
    pub arguments: Vec<Option<Resolved<'a>>>,
}

/// What variables were before the parameters of a function had their values.
type Before<N> = Vec<(usize, Option<N>)>;

impl<'a> Scope<'a> {
    /// A call that stands for a number, a condition or a list.
    pub(super) fn called(&mut self, call: &'a Call, expr: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
        let is_built_in = BUILT_IN.contains(&call.name.text.as_str());
        if !is_built_in && self.meaning(&call.name.text).is_none() {
            return Err(self.unknown_function(call));
        }
        if is_built_in {
            let parts = call.arguments.iter().map(|argument| self.operand_of(call, argument, depth));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            let (depends, depth) = summary(parts.iter());
            let node = Self::built_in(call, parts)?;
            return Ok(Resolved { node, expr, ty: Type::Number, depends, depth });
        }
        let Called { slot, function, arguments } = self.call(call, depth)?;
        if function.has_statements() {
            return Err(Box::new(errors::stands_for_statements(function, call)));
        }
        let (ty, own, below) = match self.definition(slot, depth) {
            Ok(summary) => summary,
            Err(Some(fault)) => return Err(fault),
            Err(None) => return Err(Box::new(errors::cyclic(&call.name.text, call.name.span))),
        };
        let parameters = &self.lets[slot].parameters;
        let (defaults, _) = summary(parameters.iter().filter_map(|(_, default)| default.as_ref()));
        let of_parameters = parameters.iter().fold(0, |all, (slot, _)| all | 1 << slot);
        let (given, deepest) = summary(arguments.iter().flatten());
        let depends = own | given | defaults & !of_parameters;
        Ok(Resolved { node: Node::Call(slot, arguments), expr, ty, depends, depth: deepest.max(below + 1) })
    }

    /// A call of a function that stands for statements, whose parameters are resolved.
    ///
    /// # Errors
    /// All that is wrong with the call, or with the parameters.
    pub fn statements(&mut self, call: &'a Call) -> Result<Called<'a>, Fault> {
        let is_unknown = self.meaning(&call.name.text).is_none();
        if let Some(error) = foreign_statement(call).filter(|_| is_unknown) {
            return Err(Box::new(error));
        }
        let called = self.call(call, 0)?;
        if !called.function.has_statements() {
            return Err(Box::new(errors::stands_for_a_value(called.function, call)));
        }
        match self.definition(called.slot, 0) {
            Ok(_) => Ok(called),
            Err(Some(fault)) => Err(fault),
            Err(None) => Err(Box::new(errors::cyclic(&call.name.text, call.name.span))),
        }
    }

    /// From here on, names mean what they do inside of a function.
    pub fn enter_function(&mut self, slot: usize) -> Outside<'a> {
        let outside = self.enter(self.lets[slot].is_shared);
        if let Form::Function(function) = self.lets[slot].form {
            for (parameter, (variable, _)) in function.parameters.iter().zip(&self.lets[slot].parameters) {
                self.inside.push((&parameter.name.text, *variable));
            }
        }
        outside
    }

    fn call(&mut self, call: &'a Call, depth: u32) -> Result<Called<'a>, Fault> {
        let name = &call.name;
        let slot = match self.meaning(&name.text) {
            Some(Node::Let(slot)) => slot,
            None => {
                let known = self.known().filter(|name| self.is_function(name));
                return Err(Box::new(unknown_function(name, known)));
            }
            Some(_) => return Err(Box::new(errors::not_a_function(name))),
        };
        let Form::Function(function) = self.lets[slot].form else {
            let error = errors::not_a_function(name);
            let is_list = matches!(self.definition(slot, depth), Ok((Type::List(_), ..)));
            let help = format!("positions of a list stand in square brackets: `{}[..]`", name.text);
            return Err(Box::new(if is_list { error.help(help) } else { error }));
        };
        let signature = Signature::of(&function.name, &function.parameters);
        let mut found = Diagnostics::new();
        let given = signature.arguments(call, &mut found);
        if let Some(first) = found.into_iter().next() {
            return Err(Box::new(first));
        }
        let argument = |(parameter, given): (&'a crate::ast::Parameter, Option<&'a Argument>)| match given {
            Some(argument) => self.typed(&argument.value, Type::Number, depth).map(Some),
            None if parameter.default.is_some() => Ok(None),
            None => {
                let error = signature.missing(&parameter.name.text, call.span);
                Err(Box::new(error.label(parameter.name.span, "declared without a default")))
            }
        };
        let arguments = function.parameters.iter().zip(given).map(argument).collect::<Result<_, Fault>>()?;
        Ok(Called { slot, function, arguments })
    }

    /// Resolves the parameters of a definition, which are then known.
    pub(super) fn parameters(&mut self, slot: usize, depth: u32) -> Result<(), Fault> {
        let Form::Function(function) = self.lets[slot].form else { return Ok(()) };
        self.lets[slot].parameters.clear();
        for parameter in &function.parameters {
            if self.is_local(&parameter.name.text) {
                return Err(Box::new(errors::second_parameter(&parameter.name)));
            }
            let default = parameter.default.as_ref().map(|default| self.typed(default, Type::Number, depth));
            let default = default.transpose()?;
            let variable = self.enter_local(&parameter.name)?;
            self.lets[slot].parameters.push((variable, default));
        }
        Ok(())
    }

    fn operand_of(&mut self, call: &Call, argument: &'a Argument, depth: u32) -> Result<Resolved<'a>, Fault> {
        if let Some(name) = &argument.name {
            return Err(Box::new(named_argument(call, name)));
        }
        self.typed(&argument.value, Type::Number, depth)
    }

    fn built_in(call: &Call, mut parts: Vec<Resolved<'a>>) -> Result<Node<'a>, Fault> {
        let wrong = |takes: &str| Box::new(wrong_count(call, takes));
        match call.name.text.as_str() {
            "min" if !parts.is_empty() => Ok(Node::Min(parts)),
            "max" if !parts.is_empty() => Ok(Node::Max(parts)),
            "min" | "max" => Err(wrong("one number or more")),
            _ => match (parts.pop(), parts.is_empty()) {
                (Some(only), true) => Ok(Node::Abs(Box::new(only))),
                _ => Err(wrong("one number")),
            },
        }
    }

    fn unknown_function(&self, call: &Call) -> Fault {
        let own = self.known().filter(|name| self.is_function(name));
        let error = unknown_function(&call.name, BUILT_IN.into_iter().chain(own));
        Box::new(match foreign_function(&call.name.text) {
            Some(help) => Diagnostic { fix: None, ..error }.help(help),
            None => error,
        })
    }

    fn is_function(&self, name: &str) -> bool {
        let Some(Node::Let(slot)) = self.meaning(name) else { return false };
        matches!(self.lets[slot].form, Form::Function(_))
    }
}

impl<N: Arithmetic> Machine<N> {
    /// Gives the parameters of a function their values, and returns what their variables were before.
    ///
    /// # Errors
    /// Whatever is wrong with the value of an argument or a default.
    pub fn bind(
        &mut self,
        scope: &Scope<'_>,
        slot: usize,
        arguments: &[Option<Resolved<'_>>],
    ) -> Result<Before<N>, Fault> {
        let given = arguments.iter().map(|argument| argument.as_ref().map(|given| self.eval(scope, given)).transpose());
        let given = given.collect::<Result<Vec<Option<N>>, Fault>>()?;
        let mut before = Before::new();
        for ((variable, default), given) in scope.lets[slot].parameters.iter().zip(given) {
            let value = match (given, default) {
                (Some(value), _) => Ok(value),
                (None, Some(default)) => self.eval(scope, default),
                (None, None) => Ok(N::whole(0)),
            };
            match value {
                Ok(value) => {
                    before.push((*variable, self.get(*variable)));
                    self.set(*variable, value);
                }
                Err(fault) => {
                    self.unbind(before);
                    return Err(fault);
                }
            }
        }
        Ok(before)
    }

    /// Gives variables back what they were.
    pub fn unbind(&mut self, before: Before<N>) {
        before.into_iter().rev().for_each(|(variable, value)| self.restore(variable, value));
    }

    /// Does something with the value of a function while its parameters have theirs.
    pub(super) fn within<'a, T>(
        &mut self,
        scope: &Scope<'a>,
        (slot, arguments): (usize, &[Option<Resolved<'a>>]),
        call: &Expr,
        inside: impl FnOnce(&mut Self, &Resolved<'a>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.spend(CALL, call)?;
        let before = self.bind(scope, slot, arguments)?;
        let result = match &scope.lets[slot].state {
            State::Done(value) => inside(self, value),
            _ => Err(Box::new(wrong_type(call.span, "a number", "something unknown"))),
        };
        self.unbind(before);
        result.map_err(|fault| {
            if fault.labels.len() < MOST_LABELS { Box::new(fault.label(call.span, "called here")) } else { fault }
        })
    }
}

/// A call that other systems have for a task, or for what the compiler does by itself.
fn foreign_statement(call: &Call) -> Option<Diagnostic> {
    let (name, span) = (&call.name.text, call.name.span);
    if let Some(help) = foreign::inferred(name) {
        let message = format!("`{name}` is not written in an order");
        let error = Diagnostic::error(Code::UnknownName, call.span, "not a task", message);
        return Some(error.help(format!("leave it out: {help}")).edit(call.span, ""));
    }
    let (letter, what) = foreign::letter(name)?;
    let message = format!("unknown kind of task `{name}`");
    let error = Diagnostic::error(Code::UnknownName, span, "not a kind of task", message);
    let error = error.help(format!("write `{letter}[..]` for {what}"));
    let (Some(first), Some(last)) = (call.arguments.first(), call.arguments.last()) else { return Some(error) };
    let end = Span { start: last.value.span.end, ..call.span };
    Some(error.edit(Span { end: first.value.span.start, ..span }, format!("{letter}[")).edit(end, "]"))
}

/// The variables that some parts depend on, and how deep what joins them is.
pub(super) fn summary<'r, 'a: 'r>(parts: impl Iterator<Item = &'r Resolved<'a>>) -> (u64, u32) {
    parts.fold((0, 1), |(depends, depth), part| (depends | part.depends, depth.max(part.depth + 1)))
}

/// What to write for a function that other languages have.
fn foreign_function(name: &str) -> Option<&'static str> {
    Some(match name {
        "floor" | "int" | "trunc" => "in a schedule `/` rounds down: leave the function out",
        "ceil" | "ceildiv" | "cdiv" => "`(a + b - 1) / b` rounds `a / b` up, in a schedule",
        "len" => "`S` is the number of stages, `D` of devices, `M` of microbatches",
        "pow" => "there are no powers; write a product",
        _ => return None,
    })
}
