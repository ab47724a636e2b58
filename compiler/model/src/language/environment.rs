//! Names in scope.

use super::value::Value;
use pipe_syntax::ast;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// What names stand for. Declared ones hide parameters of the files.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    names: BTreeMap<String, (Value, Option<Span>)>,
    /// Weights that the layer does not have here, since what must hold for them does not.
    without: BTreeMap<String, Span>,
}

impl Environment {
    /// Only the parameters of the files.
    pub(super) fn new(parameters: &BTreeMap<String, i64>) -> Self {
        let names = parameters.iter().map(|(name, value)| (name.clone(), (Value::whole(*value), None)));
        Self { names: names.collect(), without: BTreeMap::new() }
    }

    /// Notes a weight that the layer does not have here.
    pub(super) fn without(&mut self, name: &ast::Name) {
        self.without.insert(name.text.clone(), name.span);
    }

    /// The line of a weight that the layer does not have here.
    pub(super) fn line_without(&self, name: &str) -> Option<Span> {
        self.without.get(name).copied()
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
}
