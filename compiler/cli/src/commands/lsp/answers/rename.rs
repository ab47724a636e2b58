//! Renaming: refused where the new name is none, where it would mean something else, or where the library would change.

use super::places::uses;
use crate::commands::lsp::documents::{Project, copies};
use crate::commands::lsp::here::{Here, Refusal};
use crate::commands::lsp::uris;
use lsp_types::TextEdit;
use pipe_ide::reference::CONSTANTS;
use pipe_ide::{Definition, NameKind};
use pipe_syntax::parse;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The range of the name that would change, or why none can.
pub(in crate::commands::lsp) fn prepare(here: &Here<'_>) -> Result<Value, Refusal> {
    let (span, definition) = renamable(here)?;
    Ok(json!({"range": here.project.range(span), "placeholder": definition.name}))
}

fn renamable<'h>(here: &'h Here<'_>) -> Result<(pipe_syntax::source::Span, &'h Definition), Refusal> {
    let (span, _, definition) =
        here.name().ok_or_else(|| Refusal::because("there is no name of a declaration here"))?;
    let home = here.project.uri(definition.span.file).and_then(|uri| uris::to_path(&uri));
    if here.project.is_standard(definition.span.file) || home.is_some_and(|path| path.starts_with(copies())) {
        return Err(Refusal::because(format!("`{}` is declared in the standard library", definition.name)));
    }
    Ok((span, definition))
}

/// The edits of all documents.
pub(in crate::commands::lsp) fn rename(
    here: &Here<'_>,
    projects: &[Rc<Project>],
    name: &str,
) -> Result<Value, Refusal> {
    let (_, definition) = renamable(here)?;
    if !parse::is_name(name, definition.kind == NameKind::Schedule) {
        return Err(Refusal::because(format!("`{name}` is not a name")));
    }
    if name == definition.name {
        return Ok(json!({"changes": {}}));
    }
    for project in std::iter::once(&here.project).chain(projects) {
        if let Some(reason) = clash(&project.names.definitions, definition, name) {
            return Err(Refusal::because(reason));
        }
    }
    let mut changes: BTreeMap<String, Vec<TextEdit>> = BTreeMap::new();
    for (uri, range) in uses(here, definition, projects) {
        changes.entry(uri).or_default().push(TextEdit::new(range, name.to_owned()));
    }
    Ok(json!({"changes": changes}))
}

/// What has the name already, where it would be mistaken for the renamed one.
fn clash(definitions: &[Definition], renamed: &Definition, name: &str) -> Option<String> {
    let is_of_parts = |kind: NameKind| matches!(kind, NameKind::Lane | NameKind::Part);
    let is_declaration =
        |kind: NameKind| matches!(kind, NameKind::Schedule | NameKind::Layer | NameKind::Model | NameKind::Pipeline);
    let is_number = |kind: NameKind| !is_declaration(kind) && !is_of_parts(kind);
    if is_number(renamed.kind) && CONSTANTS.iter().any(|(constant, _)| *constant == name) {
        return Some(format!("`{name}` is a number that every source has"));
    }
    let owner = renamed.owner.and_then(|owner| definitions.get(owner)).map(|owner| owner.span);
    let meets = |other: &&Definition| {
        let others = other.owner.and_then(|owner| definitions.get(owner)).map(|owner| owner.span);
        other.name == name
            && match renamed.kind {
                kind if is_of_parts(kind) => other.kind == kind && others == owner,
                kind if !is_number(kind) => other.kind == kind,
                // What a file defines is known in all of its declarations.
                kind if renamed.owner.is_none() => is_number(kind) && is_number(other.kind),
                _ => is_number(other.kind) && (others == owner || other.owner.is_none()),
            }
    };
    definitions
        .iter()
        .find(meets)
        .map(|other| format!("there is a {} with the name `{name}` already", other.kind.word()))
}
