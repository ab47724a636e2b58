//! A place in a source: what stands there.

use crate::{Definition, Names};
use pipe_syntax::source::{FileId, Sources, Span};

/// A place in the first file of a compilation, with what its names mean.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The names of the compilation.
    pub names: &'a Names,
    /// Its files; the first one is the text that is edited.
    pub sources: &'a Sources,
    /// Where in that text.
    pub byte: usize,
}

impl<'a> Place<'a> {
    /// The text that is edited.
    pub fn text(&self) -> &'a str {
        &self.sources.get(FileId(0)).text
    }

    /// The name here: its place, and what is meant.
    pub fn name(&self) -> Option<(Span, usize, &'a Definition)> {
        let (span, index) = self.names.at(FileId(0), u32::try_from(self.byte).ok()?)?;
        Some((span, index, self.names.definitions.get(index)?))
    }

    /// The text of a declaration.
    pub(crate) fn written(&self, span: Span) -> &'a str {
        let text = &self.sources.get(span.file).text;
        text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }
}

/// The word at a byte, as where it starts and ends.
pub(crate) fn word(text: &str, byte: usize) -> (usize, usize) {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (before, behind) = text.split_at_checked(byte).unwrap_or((text, ""));
    let start = before
        .rfind(|letter| !is_part(letter))
        .map_or(0, |last| last + before[last..].chars().next().map_or(1, char::len_utf8));
    (start, before.len() + behind.find(|letter| !is_part(letter)).unwrap_or(behind.len()))
}

/// Whether a byte is in a comment or a text in quotes.
pub(crate) fn in_comment(text: &str, byte: usize) -> bool {
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
