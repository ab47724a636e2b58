//! Findings of the compiler as editors show them.

use super::documents::{Places, is_standard};
use super::positions::Lines;
use lsp_types::Range;
use pipe_compiler::report::Finding;
use pipe_syntax::diagnostic::{Diagnostic, Label, Severity};
use pipe_syntax::source::{FileId, Sources, Span};
use serde_json::{Value, json};

/// The document that a finding belongs to, and the finding. Where it is in the standard library
/// only, it belongs to the root.
pub(super) fn converted(found: &Diagnostic, sources: &Sources, places: &Places) -> Option<(String, Value)> {
    let own = |label: &&Label| !is_standard(&sources.get(label.span.file).name);
    let main = found.labels.iter().find(own);
    let span = main.map_or(Span { file: FileId(0), start: 0, end: 0 }, |label| label.span);
    let source = sources.get(span.file);
    let uri = places.uri(span.file, &source.name, &source.text)?;
    let others = found.labels.iter().filter(|label| main.is_none_or(|main| !std::ptr::eq(main, *label)));
    let related: Vec<Value> = others.filter_map(|label| related(label, sources, places)).collect();
    let mut message = found.message.clone();
    let text = main.map_or("", |label| label.text.as_str());
    if !text.is_empty() {
        message.push_str(&format!("\n{text}"));
    }
    found.notes.iter().for_each(|note| message.push_str(&format!("\nnote: {note}")));
    found.help.iter().for_each(|help| message.push_str(&format!("\nhelp: {help}")));
    let severity = match found.severity {
        Severity::Error => 1,
        Severity::Warning => 2,
        Severity::Note => 3,
    };
    let value = json!({
        "range": range(sources, span), "severity": severity, "code": found.code.name(), "source": "pipec",
        "message": message, "relatedInformation": related,
    });
    Some((uri, value))
}

/// A mistake of ours, at the beginning of the document.
pub(super) fn internal(message: &str) -> Value {
    let begin = json!({ "line": 0, "character": 0 });
    json!({
        "range": { "start": begin, "end": begin }, "severity": 1, "code": Finding::INTERNAL, "source": "pipec",
        "message": message,
    })
}

fn related(label: &Label, sources: &Sources, places: &Places) -> Option<Value> {
    let source = sources.get(label.span.file);
    let uri = places.uri(label.span.file, &source.name, &source.text)?;
    Some(json!({"location": {"uri": uri, "range": range(sources, label.span)}, "message": label.text}))
}

fn range(sources: &Sources, span: Span) -> Range {
    let text = &sources.get(span.file).text;
    Lines::new(text).range(text, span.start as usize, span.end as usize)
}
