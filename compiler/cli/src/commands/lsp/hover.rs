//! What stands under the mouse: a declaration with its figures, a word of the language, the page of an error.

use super::server::Here;
use pipe_ide::reference::{self, CONSTANTS, KINDS};
use pipe_ide::{Definition, NameKind};
use pipe_syntax::diagnostic::Code;
use pipe_syntax::source::FileId;
use serde_json::{Value, json};

/// The most characters of a declaration that are shown.
const LONGEST: usize = 400;

pub(super) fn hover(here: &Here<'_>) -> Value {
    let (start, end) = word(&here.document.text, here.byte);
    let written = here.document.text.get(start..end).unwrap_or_default();
    let is_comment = in_comment(&here.document.text, start);
    let named = here.name().map(|(span, _, definition)| (declaration(here, definition), here.project.range(span)));
    let lines = here.project.lines(FileId(0));
    let described = named.or_else(|| {
        let text = described(written).filter(|_| !is_comment)?;
        Some((text, lines.range(&here.document.text, start, end)))
    });
    let (mut text, range) = described.map_or((String::new(), None), |(text, range)| (text, Some(range)));
    for page in pages(here) {
        text.push_str(if text.is_empty() { "" } else { "\n\n---\n\n" });
        text.push_str(&page);
    }
    if text.is_empty() {
        return Value::Null;
    }
    json!({"contents": {"kind": "markdown", "value": text}, "range": range})
}

/// The word at a byte, as where it starts and ends.
pub(super) fn word(text: &str, byte: usize) -> (usize, usize) {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (before, behind) = text.split_at_checked(byte).unwrap_or((text, ""));
    let start = before
        .rfind(|letter| !is_part(letter))
        .map_or(0, |last| last + before[last..].chars().next().map_or(1, char::len_utf8));
    (start, byte + behind.find(|letter| !is_part(letter)).unwrap_or(behind.len()))
}

/// Whether a byte is in a comment or a text in quotes.
pub(super) fn in_comment(text: &str, byte: usize) -> bool {
    let line = text.get(..byte).unwrap_or(text).rsplit('\n').next().unwrap_or_default();
    let mut quoted = false;
    for (index, letter) in line.char_indices() {
        quoted ^= letter == '"';
        if !quoted && line[index..].starts_with("//") {
            return true;
        }
    }
    quoted
}

/// A declaration as it is written, its comment and its figures.
fn declaration(here: &Here<'_>, definition: &Definition) -> String {
    let whole = here.project.written(definition.whole);
    let head = match definition.kind {
        NameKind::Schedule | NameKind::Layer | NameKind::Model | NameKind::Pipeline => {
            whole.split('{').next().unwrap_or_default().trim().to_owned()
        }
        NameKind::Weight | NameKind::Data => whole.to_owned(),
        NameKind::FileParameter => format!("param {whole}"),
        kind @ (NameKind::Parameter | NameKind::Let | NameKind::Variable | NameKind::Input) => {
            format!("{} {whole}", kind.word())
        }
    };
    let head: String = head.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect();
    let mut text = format!("```pipe\n{head}\n```");
    let figure = here.figures.get(&(definition.kind, definition.name.clone()));
    if let Some(figure) = figure.filter(|_| definition.span.file == FileId(0)) {
        text.push_str(&format!("\n\n{}", figure.long()));
    }
    if !definition.doc.is_empty() {
        text.push_str(&format!("\n\n{}", definition.doc));
    }
    text
}

/// What the language says of a word.
pub(super) fn described(word: &str) -> Option<String> {
    let own = KINDS.iter().chain(&CONSTANTS).find(|(name, _)| *name == word).map(|(_, text)| (*text).to_owned());
    let function = || reference::functions().find(|(name, _)| *name == word).map(|(_, usage)| format!("`{usage}`"));
    let number = || reference::NUMBERS.iter().find(|(name, _)| *name == word).map(|(_, usage)| format!("`{usage}`"));
    own.or_else(number).or_else(function).or_else(|| reference::keyword(word))
}

/// The beginnings of the pages of errors that lie here: what they mean, and why it matters.
fn pages(here: &Here<'_>) -> Vec<String> {
    let lines = here.project.lines(FileId(0));
    let place = lines.position(&here.document.text, here.byte);
    let covers = |finding: &&Value| {
        let range: Option<lsp_types::Range> = serde_json::from_value(finding["range"].clone()).ok();
        range.is_some_and(|range| range.start <= place && place <= range.end)
    };
    let code = |finding: &Value| Code::ALL.iter().find(|code| finding["code"] == code.name());
    let mut codes: Vec<&Code> = here.findings.iter().filter(covers).filter_map(code).collect();
    codes.dedup();
    let page = |code: &Code| {
        let page = code.page().split("\n## Example").next().unwrap_or_default().trim();
        format!("{page}\n\nExample and fix: `pipec explain {code}`")
    };
    codes.into_iter().map(page).collect()
}
