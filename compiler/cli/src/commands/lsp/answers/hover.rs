//! What stands under the mouse, as the protocol says it.

use crate::commands::lsp::here::Here;
use pipe_ide::Definition;
use pipe_syntax::diagnostic::Code;
use pipe_syntax::source::FileId;
use serde_json::{Value, json};

pub(in crate::commands::lsp) fn hover(here: &Here<'_>) -> Value {
    let figure = |definition: &Definition| {
        here.figures.get(&(definition.kind, definition.name.clone())).map(crate::commands::lsp::analysis::Figure::long)
    };
    let Some(hover) = pipe_ide::hover::hover(&here.place(), &figure, &errors(here)) else { return Value::Null };
    let lines = here.project.lines(FileId(0));
    let range = hover.word.map(|word| lines.range(&here.document.text, word.start, word.end));
    json!({"contents": {"kind": "markdown", "value": hover.text}, "range": range})
}

/// The codes of the findings that lie here.
fn errors(here: &Here<'_>) -> Vec<Code> {
    let lines = here.project.lines(FileId(0));
    let place = lines.position(&here.document.text, here.byte);
    let covers = |finding: &&Value| {
        let range: Option<lsp_types::Range> = serde_json::from_value(finding["range"].clone()).ok();
        range.is_some_and(|range| range.start <= place && place <= range.end)
    };
    let code = |finding: &Value| Code::ALL.iter().find(|code| finding["code"] == code.name()).copied();
    let mut codes: Vec<Code> = here.findings.iter().filter(covers).filter_map(code).collect();
    codes.dedup();
    codes
}
