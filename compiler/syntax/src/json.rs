//! Places in texts of JSON, and what is wrong there.

use crate::source::{FileId, Span};

/// What serde says, without the place.
pub fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    text.replace("invalid", "malformed")
}

/// The character at a byte.
pub fn mark(file: FileId, text: &str, at: usize) -> Span {
    span(file, at, text[at..].chars().next().map_or(at, |mark| at + mark.len_utf8()))
}

/// The bytes from `start` to below `end`.
pub fn span(file: FileId, start: usize, end: usize) -> Span {
    let byte = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Span { file, start: byte(start), end: byte(end) }
}

/// The byte at a line and column, both from 1; columns count bytes.
pub fn place(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut at = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
