//! Findings: diagnostics in the form that other programs read.

use pipe_syntax::diagnostic::{Diagnostic, Edit, Severity};
use pipe_syntax::source::{Sources, Span};
use serde::Serialize;

/// A diagnostic with its place as numbers from 1.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Name of the rule.
    pub code: String,
    /// Error, warning or note.
    pub severity: Severity,
    /// The fact with its numbers.
    pub message: String,
    /// Name of the source.
    pub file: String,
    /// First line.
    pub line: u32,
    /// First column, in characters.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
    /// Where the numbers come from.
    pub notes: Vec<String>,
    /// What to change.
    pub help: Option<String>,
    /// What to write instead, so that the finding goes away; empty where no edit is known.
    pub fix: Vec<Fix>,
}

/// A part of a source and the text to write there instead.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fix {
    /// Name of the source.
    pub file: String,
    /// First line.
    pub line: u32,
    /// First column, in characters.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column; the first one to insert.
    pub end_column: u32,
    /// What to write.
    pub text: String,
}

impl Fix {
    fn new(Edit { span, text }: &Edit, sources: &Sources) -> Self {
        let (line, column) = sources.line_column(span.file, span.start);
        let (end_line, end_column) = sources.line_column(span.file, span.end);
        let file = sources.get(span.file).name.clone();
        Self { file, line, column, end_line, end_column, text: text.clone() }
    }
}

impl Finding {
    /// The code of a mistake of ours: no rule of the language, and not in the list of codes.
    pub const INTERNAL: &'static str = "internal-error";

    /// A mistake of ours, found while a source was compiled: at its beginning, because no place of it is to blame.
    pub fn internal(message: String, file: &str) -> Self {
        Self {
            code: Self::INTERNAL.to_owned(),
            severity: Severity::Error,
            message,
            file: file.to_owned(),
            line: 1,
            column: 1,
            end_line: 1,
            end_column: 1,
            notes: Vec::new(),
            help: None,
            fix: Vec::new(),
        }
    }

    /// A diagnostic without its other labels.
    pub fn new(diagnostic: &Diagnostic, sources: &Sources) -> Self {
        let span = diagnostic.labels.first().map(|label| label.span);
        let place = |byte: fn(Span) -> u32| span.map_or((1, 1), |span| sources.line_column(span.file, byte(span)));
        let ((line, column), (end_line, end_column)) = (place(|span| span.start), place(|span| span.end));
        Self {
            code: diagnostic.code.name().to_owned(),
            severity: diagnostic.severity,
            message: diagnostic.message.clone(),
            file: span.map(|span| sources.get(span.file).name.clone()).unwrap_or_default(),
            line,
            column,
            end_line,
            end_column,
            notes: diagnostic.notes.clone(),
            help: diagnostic.help.clone(),
            fix: diagnostic.edits().iter().map(|edit| Fix::new(edit, sources)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_syntax::diagnostic::Code;
    use pipe_syntax::source::{FileId, Source};

    #[test]
    fn a_fix_names_its_place_by_line_and_column() {
        let (mut sources, text) = (Sources::default(), "let é = 1\nlet y = warmpu\n".to_owned());
        sources.add(Source { name: "x.pipe".to_owned(), text });
        let span = Span { file: FileId(0), start: 19, end: 25 };
        let error = Diagnostic::error(Code::UnknownName, span, "", "unknown").suggest(span, "warmpu", ["warmup"]);
        let fix = Finding::new(&error, &sources).fix;
        let file = "x.pipe".to_owned();
        assert_eq!(fix, [Fix { file, line: 2, column: 9, end_line: 2, end_column: 15, text: "warmup".to_owned() }]);
    }
}
