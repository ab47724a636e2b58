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
        self.indexed.clear();
        self.scopes = vec![members.map(|((_, _, name), index)| (name.clone(), *index)).collect()];
        match declaration {
            Declaration::Import(_) => {}
            Declaration::Parameter(it) => self.values(&it.default),
            Declaration::Let(it) => self.value(&it.value),
            Declaration::Function(it) => self.function(it),
            Declaration::Schedule(it) => self.section(it, |walker| walker.schedule(it)),
            Declaration::Layer(it) => self.section(it, |walker| walker.layer(it)),
            Declaration::Model(it) => self.section(it, |walker| walker.model_items(&it.items)),
            Declaration::Pipeline(it) => {
                self.schedule = self.schedule_of(&it.items);
                it.items.iter().for_each(|item| self.pipeline_item(item));
                self.schedule = None;
            }
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
        self.bind_documented(kind, name, whole, "")
    }

    pub(super) fn bind_function(&mut self, function: &ast::Function) -> usize {
        let index = self.bind_documented(NameKind::Function, &function.name, function.span, &function.doc);
        let owner = self.owner.replace(index);
        self.parameters(index, &function.parameters);
        self.owner = owner;
        index
    }

    fn bind_documented(&mut self, kind: NameKind, name: &ast::Name, whole: Span, doc: &str) -> usize {
        let index = self.define(kind, name, whole, doc);
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
        let whole = Span { end: binding.value.span.end, ..binding.name.span };
        self.bind_documented(NameKind::Let, &binding.name, whole, &binding.doc)
    }

    pub(super) fn lookup(&self, name: &str) -> Option<usize> {
        let local = self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied();
        let files = [NameKind::FileParameter, NameKind::Let, NameKind::Function];
        local.or_else(|| files.into_iter().find_map(|kind| self.global(kind, name)))
    }

    pub(super) fn values<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr>) {
        expressions.into_iter().for_each(|expression| self.value(expression));
    }

    pub(super) fn value(&mut self, expression: &Expr) {
        match &expression.kind {
            ExprKind::Name(name) => self.refer(expression.span, self.lookup(name)),
            ExprKind::Call(call) => drop(self.call(call, NameKind::Layer)),
            ExprKind::Each { item, variable, start, end } => {
                self.values([&**start, end]);
                self.within(|walker| {
                    walker.bind(NameKind::Variable, variable, variable.span);
                    walker.value(item);
                });
            }
            ExprKind::Integer(_) | ExprKind::Decimal(_) => {}
            ExprKind::Unary(_, operand) => self.value(operand),
            ExprKind::Binary(_, one, other)
            | ExprKind::Range(one, other)
            | ExprKind::Index(one, other)
            | ExprKind::Behind(one, other) => {
                self.values([&**one, other]);
            }
            ExprKind::If { condition, then, otherwise } => self.values([&**condition, then, otherwise]),
            ExprKind::List(items) => self.values(items),
        }
    }

    /// The parameters of a function, and what it stands for.
    pub(super) fn function(&mut self, function: &ast::Function) {
        self.within(|walker| {
            let own = walker.lookup(&function.name.text);
            for parameter in &function.parameters {
                walker.values(&parameter.default);
                let name = &parameter.name.text;
                let index = own.and_then(|own| walker.member(own, NameKind::Parameter, name));
                walker.scopes.last_mut().into_iter().for_each(|scope| {
                    scope.extend(index.map(|index| (name.clone(), index)));
                });
            }
            match &function.body {
                ast::FunctionBody::Value(value) => walker.value(value),
                ast::FunctionBody::Statements(statements) => walker.statements(statements),
            }
        });
    }

    /// A call of a declaration of a kind, or of a function; returns the declaration.
    pub(super) fn call(&mut self, call: &Call, kind: NameKind) -> Option<usize> {
        self.values(call.arguments.iter().map(|argument| &argument.value));
        self.callee(call, kind)
    }

    /// The same without the values of its arguments.
    fn callee(&mut self, call: &Call, kind: NameKind) -> Option<usize> {
        let own = self.lookup(&call.name.text).filter(|own| self.names.definitions[*own].kind == NameKind::Function);
        let callee = own.or_else(|| self.global(kind, &call.name.text));
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
                Statement::StepTask { stage, .. } => self.value(stage),
                Statement::Movement { stage, microbatch, slice, .. } => {
                    self.value(stage);
                    self.values(microbatch.iter().chain(slice));
                }
                Statement::Task { part, stage, microbatch, slice, .. } => {
                    self.part(part.as_ref());
                    self.value(stage);
                    self.values(microbatch.iter().chain(slice));
                }
                Statement::Call(call) => drop(self.call(call, NameKind::Function)),
                Statement::Pair { halves, .. } => self.statements(halves),
            }
        }
    }
}
