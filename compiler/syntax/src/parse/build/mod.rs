//! From the grammar's pairs to the syntax tree. What a pair holds is fixed by the grammar, so nothing here can fail but
//! on what the grammar cannot see: numbers too large and expressions too deep.

mod expr;
mod model;
mod pipeline;
mod schedule;

pub(crate) use expr::{parse_number, strength};

use super::grammar::Rule;
use crate::ast::{Argument, Call, Declaration, Expr, ExprKind, Import, ImportPath, Let, Name, Parameter, Section};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::source::{FileId, Span};
use pest::iterators::{Pair, Pairs};
use std::iter::{Filter, Peekable};

/// Builds the tree of one part of a text.
pub(super) struct Builder<'t> {
    file: FileId,
    part: &'t str,
    /// Where the part begins in the text.
    base: usize,
    errors: Diagnostics,
}

/// The pairs inside another one, without words and marks.
struct Parts<'t>(Peekable<Filter<Pairs<'t, Rule>, Wanted<'t>>>);

type Wanted<'t> = fn(&Pair<'t, Rule>) -> bool;

impl<'t> Parts<'t> {
    fn of(pair: Pair<'t, Rule>) -> Self {
        // The grammar declares words and marks last, after `reserved`.
        let said: Wanted<'t> = |pair| pair.as_rule() < Rule::reserved;
        Self(pair.into_inner().filter(said).peekable())
    }

    fn need(&mut self) -> Pair<'t, Rule> {
        self.0.next().expect("the grammar demands this part")
    }

    fn optional(&mut self, rule: Rule) -> Option<Pair<'t, Rule>> {
        self.0.next_if(|pair| pair.as_rule() == rule)
    }
}

impl<'t> Iterator for Parts<'t> {
    type Item = Pair<'t, Rule>;
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<'t> Builder<'t> {
    pub(super) fn new(file: FileId, part: &'t str, base: usize) -> Self {
        Self { file, part, base, errors: Vec::new() }
    }

    pub(super) fn into_errors(self) -> Diagnostics {
        self.errors
    }

    /// None for the end of the text.
    pub(super) fn declaration(&mut self, pair: Pair<'_, Rule>) -> Option<Declaration> {
        Some(match pair.as_rule() {
            Rule::import => Declaration::Import(self.import(pair)),
            Rule::file_parameter => Declaration::Parameter(self.parameter(pair)),
            Rule::binding => Declaration::Let(self.binding(pair)),
            Rule::table => Declaration::Let(self.table(pair)),
            Rule::function => Declaration::Function(self.function(pair)),
            Rule::schedule => Declaration::Schedule(self.section(pair, Self::schedule_item)),
            Rule::layer => Declaration::Layer(self.section(pair, Self::layer_item)),
            Rule::model => Declaration::Model(self.section(pair, Self::model_item)),
            Rule::pipeline => Declaration::Pipeline(self.section(pair, Self::pipeline_item)),
            _ => return None,
        })
    }

    fn section<Item>(&mut self, pair: Pair<'_, Rule>, item: fn(&mut Self, Pair<'_, Rule>) -> Item) -> Section<Item> {
        let (doc, span) = (self.doc(&pair), self.span(&pair));
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need());
        let parameters = parts.optional(Rule::parameters);
        let parameters = self.parameters(parameters);
        Section { doc, name, parameters, items: parts.map(|part| item(self, part)).collect(), span }
    }

    fn error(&mut self, error: Diagnostic) {
        self.errors.push(error);
    }

    /// The place of a pair, without the spaces and comments that pest counts in at its end.
    fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        let byte = |position: usize| u32::try_from(self.base + position).unwrap_or(u32::MAX);
        Span { file: self.file, start: byte(pair.as_span().start()), end: byte(end(pair)) }
    }

    fn import(&mut self, pair: Pair<'_, Rule>) -> Import {
        let target = Parts::of(pair).need();
        let span = self.span(&target);
        let path = match target.as_rule() {
            Rule::string => ImportPath::Relative(unquoted(&target)),
            _ => ImportPath::Standard(target.as_str().trim_start_matches("std.").to_owned()),
        };
        Import { path, span }
    }

    fn name(&self, pair: &Pair<'_, Rule>) -> Name {
        Name { text: pair.as_str().to_owned(), span: self.span(pair) }
    }

    fn binding(&mut self, pair: Pair<'_, Rule>) -> Let {
        let doc = self.doc(&pair);
        let mut parts = Parts::of(pair);
        Let { doc, name: self.name(&parts.need()), value: self.expr(parts.need()), file: None }
    }

    /// `let tokens = numbers "tokens.txt"`, before the file is read.
    fn table(&mut self, pair: Pair<'_, Rule>) -> Let {
        let doc = self.doc(&pair);
        let mut parts = Parts::of(pair);
        let (name, path) = (self.name(&parts.need()), parts.need());
        let file = Name { text: unquoted(&path), span: self.span(&path) };
        Let { doc, name, value: Expr { kind: ExprKind::List(Vec::new()), span: file.span }, file: Some(file) }
    }

    fn parameters(&mut self, pair: Option<Pair<'_, Rule>>) -> Vec<Parameter> {
        pair.into_iter().flat_map(Parts::of).map(|parameter| self.parameter(parameter)).collect()
    }

    fn parameter(&mut self, pair: Pair<'_, Rule>) -> Parameter {
        let doc = self.doc(&pair);
        let mut parts = Parts::of(pair);
        Parameter { doc, name: self.name(&parts.need()), default: parts.next().map(|value| self.expr(value)) }
    }

    /// `name` or `name(arguments)`.
    fn call(&mut self, pair: Pair<'_, Rule>) -> Call {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let name = self.name(&parts.need());
        let arguments = parts.next().into_iter().flat_map(Parts::of).map(|argument| self.argument(argument)).collect();
        Call { name, arguments, span }
    }

    fn argument(&mut self, pair: Pair<'_, Rule>) -> Argument {
        let mut parts = Parts::of(pair);
        Argument { name: parts.optional(Rule::name).map(|name| self.name(&name)), value: self.expr(parts.need()) }
    }

    /// The lines of `///` right above a pair that begins its line.
    fn doc(&self, pair: &Pair<'_, Rule>) -> String {
        let before = self.part.get(..pair.as_span().start()).unwrap_or("");
        let mut lines = before.rsplit('\n');
        if lines.next().is_some_and(|line| !line.trim().is_empty()) {
            return String::new();
        }
        let mut doc: Vec<&str> = lines.map_while(|line| line.trim().strip_prefix("///")).map(str::trim).collect();
        doc.reverse();
        doc.join("\n")
    }
}

fn end(pair: &Pair<'_, Rule>) -> usize {
    pair.clone().into_inner().last().map_or_else(|| pair.as_span().end(), |last| end(&last))
}

/// A rule that the grammar has where the builder does not know it: whoever adds one sees it in the first test.
fn unexpected(rule: Rule) -> ! {
    unreachable!("{rule:?} stands where the builder has no rule for it")
}

fn unquoted(pair: &Pair<'_, Rule>) -> String {
    pair.as_str().trim_matches('"').to_owned()
}
