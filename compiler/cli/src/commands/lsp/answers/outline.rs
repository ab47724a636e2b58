//! Whole documents: their declarations, the figures beside them, and their style.

use crate::commands::lsp::here::Here;
use pipe_ide::{Definition, NameKind};
use pipe_syntax::format::format;
use pipe_syntax::source::FileId;
use serde_json::{Value, json};

const ROOT: FileId = FileId(0);

/// The document in the style; nothing to do where it is, or does not parse.
pub(in crate::commands::lsp) fn formatting(here: &Here<'_>) -> Value {
    let text = &here.document.text;
    match format(ROOT, text) {
        Ok(styled) if styled != *text => {
            let range = here.project.lines(ROOT).range(text, 0, text.len());
            json!([{"range": range, "newText": styled}])
        }
        Ok(_) => json!([]),
        Err(_) => Value::Null,
    }
}

/// Declarations, with what is inside of each.
pub(in crate::commands::lsp) fn symbols(here: &Here<'_>) -> Value {
    let names = &here.project.names;
    let own = names.definitions.iter().enumerate();
    let own = own.filter(|(_, found)| found.span.file == ROOT && found.owner.is_none());
    let symbol = |found: &Definition, children: Vec<Value>| {
        json!({
            "name": found.name, "detail": found.kind.word(), "kind": kind(found.kind),
            "range": here.project.range(found.whole), "selectionRange": here.project.range(found.span),
            "children": children,
        })
    };
    let symbols = own.map(|(index, found)| {
        let mut inside: Vec<&Definition> = names.inside(index).map(|(_, inside)| inside).collect();
        inside.sort_by_key(|inside| inside.span);
        symbol(found, inside.into_iter().map(|inside| symbol(inside, Vec::new())).collect())
    });
    Value::Array(symbols.collect())
}

/// As the protocol counts kinds of symbols.
pub(super) fn kind(kind: NameKind) -> u8 {
    match kind {
        NameKind::Schedule | NameKind::Function => 12,
        NameKind::Layer => 5,
        NameKind::Model => 23,
        NameKind::Pipeline => 2,
        NameKind::FileParameter | NameKind::Parameter => 14,
        NameKind::Let | NameKind::Variable => 13,
        NameKind::Input | NameKind::Data | NameKind::Weight | NameKind::Lane | NameKind::Part => 8,
    }
}

/// Peak and bubble behind the heads of schedules and pipelines.
pub(in crate::commands::lsp) fn hints(here: &Here<'_>) -> Value {
    let own = here.project.names.definitions.iter().filter(|found| found.span.file == ROOT);
    let (text, lines) = (&here.document.text, here.project.lines(ROOT));
    let hint = |found: &Definition| {
        let figure = here.figures.get(&(found.kind, found.name.clone()))?;
        let end = lines.line_end(text, found.span.end as usize);
        let position = lines.position(text, end);
        let label = Some(figure.short()).filter(|label| !label.is_empty())?;
        Some(json!({"position": position, "label": label, "paddingLeft": true, "tooltip": figure.long()}))
    };
    Value::Array(own.filter_map(hint).collect())
}
