//! Where a name is declared, and where it is used.

use crate::commands::lsp::documents::Project;
use crate::commands::lsp::here::Here;
use pipe_ide::Definition;
use pipe_ide::place::Place;
use pipe_syntax::source::Span;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;

impl Here<'_> {
    /// The same without what the protocol needs.
    pub(in crate::commands::lsp) fn place(&self) -> Place<'_> {
        Place { names: &self.project.names, sources: &self.project.sources, byte: self.byte }
    }

    /// The name here: its place, and what is meant.
    pub(in crate::commands::lsp) fn name(&self) -> Option<(Span, usize, &Definition)> {
        self.place().name()
    }
}

pub(in crate::commands::lsp) fn definition(here: &Here<'_>) -> Value {
    let Some((_, _, definition)) = here.name() else { return Value::Null };
    let uri = here.project.uri(definition.span.file);
    uri.map_or(Value::Null, |uri| json!({"uri": uri, "range": here.project.range(definition.span)}))
}

/// Every place in open documents, and in what they import, where the same is meant; with or without
/// that of its declaration.
pub(in crate::commands::lsp) fn references(here: &Here<'_>, projects: &[Rc<Project>], own: bool) -> Value {
    let Some((_, _, definition)) = here.name() else { return Value::Null };
    let declared = Some((here.project.uri(definition.span.file), here.project.range(definition.span).start));
    let mut found = Vec::new();
    for (uri, range) in uses(here, definition, projects) {
        let is_own = declared == Some((Some(uri.clone()), range.start));
        if own || !is_own {
            found.push(json!({"uri": uri, "range": range}));
        }
    }
    Value::Array(found)
}

/// The same by document and range, in order.
pub(in crate::commands::lsp) fn uses(
    here: &Here<'_>,
    definition: &Definition,
    projects: &[Rc<Project>],
) -> Vec<(String, lsp_types::Range)> {
    let home = here.project.uri(definition.span.file);
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for project in projects {
        let same = |(_, other): &(usize, &Definition)| {
            let is_same = (&other.name, other.kind, other.span.start)
                == (&definition.name, definition.kind, definition.span.start);
            is_same && project.uri(other.span.file) == home
        };
        for (index, _) in project.names.definitions.iter().enumerate().filter(same) {
            for span in project.names.uses_of(index) {
                let Some(uri) = project.uri(span.file) else { continue };
                if seen.insert((uri.clone(), span.start)) {
                    found.push((uri, project.range(span)));
                }
            }
        }
    }
    found.sort_by_key(|(uri, range)| (uri.clone(), range.start.line, range.start.character));
    found
}
