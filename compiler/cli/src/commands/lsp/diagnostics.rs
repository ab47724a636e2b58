//! Findings of the compiler as editors show them.

use super::documents::{Places, is_standard};
use super::positions::Lines;
use lsp_types::{Range, TextEdit};
use pipe_compiler::report::Finding;
use pipe_syntax::diagnostic::{Diagnostic, Edit, Label, Severity};
use pipe_syntax::source::{FileId, Sources, Span};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most characters of a text that the title of a fix shows.
const SHOWN: usize = 40;

/// What makes a finding go away. Editors keep it beside the finding.
#[derive(Serialize, Deserialize)]
pub(super) struct Remedy {
    /// What is done, for a menu.
    pub(super) title: String,
    /// Edits of the document in which the finding is shown.
    pub(super) edits: Vec<TextEdit>,
}

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
        "message": message, "relatedInformation": related, "data": remedy_of(found, sources, span.file),
    });
    Some((uri, value))
}

/// The fix of a finding as [`converted`] made it.
pub(super) fn remedy(finding: &Value) -> Option<Remedy> {
    serde_json::from_value(finding["data"].clone()).ok()
}

/// None where nothing is known to help, or where another file would change.
fn remedy_of(found: &Diagnostic, sources: &Sources, file: FileId) -> Option<Remedy> {
    let edits = found.edits();
    if edits.is_empty() || edits.iter().any(|edit| edit.span.file != file) {
        return None;
    }
    let made = |edit: &Edit| TextEdit::new(range(sources, edit.span), edit.text.clone());
    Some(Remedy { title: title(found, &sources.get(file).text), edits: edits.iter().map(made).collect() })
}

/// What a fix does: its edit where that is short, or else what the finding says of it.
fn title(found: &Diagnostic, text: &str) -> String {
    let shown = |text: &str| {
        Some(text.trim()).filter(|text| text.chars().count() <= SHOWN && !text.contains('\n')).map(str::to_owned)
    };
    let said = |Edit { span, text: new }: &Edit| {
        let old = text.get(span.start as usize..span.end as usize).unwrap_or_default();
        match (shown(old)?.as_str(), shown(new)?.as_str()) {
            ("", "") => None,
            ("", new) => Some(format!("insert `{new}`")),
            (old, "") => Some(format!("remove `{old}`")),
            (old, new) => Some(format!("replace `{old}` with `{new}`")),
        }
    };
    let edits: Option<Vec<String>> =
        Some(found.edits()).filter(|edits| edits.len() < 3).and_then(|edits| edits.iter().map(said).collect());
    let help = || found.help.clone().unwrap_or_else(|| format!("fix: {}", found.message));
    edits.map_or_else(help, |edits| edits.join(" and "))
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
