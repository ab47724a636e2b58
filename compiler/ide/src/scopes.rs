//! What names mean inside of declarations: scopes, expressions and calls.

use super::{NameKind, Walker};
use pipe_syntax::ast::{self, Call, Declaration, Expr, ExprKind, Let, Section, Statement};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

impl Walker {
    /// Walks through a declaration; `declared` has the definitions of this one and those behind it.
    pub(super) fn enter(&mut self, declaration: &Declaration, declared: &mut impl Iterator<Item = Option<usize>>) {
        self.owner = declared.next().flatten();
        let Some(owner) = self.owner else { return };
        let members = self.members.range((owner, NameKind::FileParameter, String::new())..);
        let members = members.take_while(|((of, ..), _)| *of == owner);
        self.scopes = vec![members.map(|((_, _, name), index)| (name.clone(), *index)).collect()];
        match declaration {
            Declaration::Import(_) => {}
            Declaration::Parameter(it) => self.values(&it.default),
            Declaration::Schedule(it) => self.section(it, |walker| walker.schedule(it)),
            Declaration::Layer(it) => self.section(it, |walker| walker.layer(it)),
            Declaration::Model(it) => self.section(it, |walker| walker.model_items(&it.items)),
            Declaration::Pipeline(it) => it.items.iter().for_each(|item| self.pipeline_item(item)),
        }
    }

    fn section<Item>(&mut self, section: &Section<Item>, items: impl FnOnce(&mut Self)) {
        self.values(section.parameters.iter().filter_map(|parameter| parameter.default.as_ref()));
        items(self);
    }

    /// Does something in a scope of its own.
    pub(super) fn within(&mut self, inside: impl FnOnce(&mut Self)) {
        self.scopes.push(BTreeMap::new());
        inside(self);
        self.scopes.pop();
    }

    /// A new meaning in the innermost scope.
    pub(super) fn bind(&mut self, kind: NameKind, name: &ast::Name, whole: Span) -> usize {
        let index = self.define(kind, name, whole, "");
        self.scopes.last_mut().into_iter().for_each(|scope| {
            scope.insert(name.text.clone(), index);
        });
        index
    }

    /// A name that has one meaning in the innermost scope, however often it is given there.
    pub(super) fn bind_once(&mut self, name: &ast::Name) {
        match self.scopes.last().and_then(|scope| scope.get(&name.text)) {
            Some(index) => self.refer(name.span, Some(*index)),
            None => drop(self.bind(NameKind::Variable, name, name.span)),
        }
    }

    pub(super) fn bind_let(&mut self, binding: &Let) -> usize {
        self.bind(NameKind::Let, &binding.name, Span { end: binding.value.span.end, ..binding.name.span })
    }

    pub(super) fn lookup(&self, name: &str) -> Option<usize> {
        let local = self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied();
        local.or_else(|| self.global(NameKind::FileParameter, name))
    }

    pub(super) fn values<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr>) {
        expressions.into_iter().for_each(|expression| self.value(expression));
    }

    pub(super) fn value(&mut self, expression: &Expr) {
        expression.walk(&mut |part| match &part.kind {
            ExprKind::Name(name) => self.refer(part.span, self.lookup(name)),
            ExprKind::Call(call) => drop(self.callee(call, NameKind::Layer)),
            _ => {}
        });
    }

    /// A call of a declaration of a kind, or of a function; returns the declaration.
    pub(super) fn call(&mut self, call: &Call, kind: NameKind) -> Option<usize> {
        self.values(call.arguments.iter().map(|argument| &argument.value));
        self.callee(call, kind)
    }

    /// The same without the values of its arguments.
    fn callee(&mut self, call: &Call, kind: NameKind) -> Option<usize> {
        let callee = self.global(kind, &call.name.text);
        self.refer(call.name.span, callee);
        for argument in &call.arguments {
            if let (Some(name), Some(callee)) = (&argument.name, callee) {
                self.refer(name.span, self.member(callee, NameKind::Parameter, &name.text));
            }
        }
        callee
    }

    pub(super) fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Let(binding) => {
                    self.value(&binding.value);
                    self.bind_let(binding);
                }
                Statement::Repeat { count, body } => {
                    self.value(count);
                    self.within(|walker| walker.statements(body));
                }
                Statement::For { variable, start, end, body, .. } => {
                    self.values([start, end]);
                    self.within(|walker| {
                        walker.bind(NameKind::Variable, variable, variable.span);
                        walker.statements(body);
                    });
                }
                Statement::If { branches, otherwise } => {
                    for (condition, body) in branches {
                        self.value(condition);
                        self.within(|walker| walker.statements(body));
                    }
                    self.within(|walker| walker.statements(otherwise));
                }
                Statement::Task { stage, microbatch, slice, .. } => {
                    self.value(stage);
                    self.values(microbatch.iter().chain(slice));
                }
                Statement::Pair { halves, .. } => self.statements(halves),
            }
        }
    }
}
