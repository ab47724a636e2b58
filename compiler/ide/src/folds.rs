//! Folding ranges: brackets over several lines, comments and imports, also in texts with syntax errors.

use pipe_syntax::parse::tokens::{TokenKind, tokens};
use std::collections::BTreeMap;

/// What is folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldKind {
    /// Lines that are comments.
    Comment,
    /// Imports, one after the other.
    Imports,
    /// What is between brackets.
    Region,
}

/// A range of lines. Its first line stays visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fold {
    /// Counted from 0.
    pub first: usize,
    /// Counted from 0.
    pub last: usize,
    /// What they hold.
    pub kind: FoldKind,
}

/// The folds of a text, by their first line; at most one begins in a line.
pub fn folds(text: &str) -> Vec<Fold> {
    let mut found: BTreeMap<usize, Fold> = BTreeMap::new();
    let mut add = |first: usize, last: usize, kind: FoldKind| {
        let longest = found.get(&first).is_none_or(|fold| fold.last < last);
        if first < last && longest {
            found.insert(first, Fold { first, last, kind });
        }
    };
    let mut open: Vec<(&str, usize)> = Vec::new();
    // Lines of the same kind, one below the other.
    let mut run: Option<(FoldKind, usize, usize)> = None;
    let (mut line, mut end) = (0, 0);
    for token in tokens(text) {
        let newlines = text[end..token.place.start].matches('\n').count();
        let begins_line = newlines > 0 || end == 0;
        line += newlines;
        end = token.place.end;
        let written = &text[token.place];
        if begins_line {
            let kind = match (token.kind, written) {
                (TokenKind::Comment | TokenKind::Documentation, _) => Some(FoldKind::Comment),
                (TokenKind::Keyword | TokenKind::Word, "import") => Some(FoldKind::Imports),
                _ => None,
            };
            run = match (run, kind) {
                // Blank lines may be between imports, but not in a comment.
                (Some((before, first, _)), Some(kind))
                    if before == kind && (kind == FoldKind::Imports || newlines == 1) =>
                {
                    Some((kind, first, line))
                }
                (before, kind) => {
                    before.into_iter().for_each(|(kind, first, last)| add(first, last, kind));
                    kind.map(|kind| (kind, line, line))
                }
            };
        }
        if token.kind != TokenKind::Mark {
            continue;
        }
        match written {
            "{" | "(" | "[" => open.push((written, line)),
            "}" | ")" | "]" => {
                let opening = match written {
                    "}" => "{",
                    ")" => "(",
                    _ => "[",
                };
                // An unclosed bracket does not fold.
                if let Some(index) = open.iter().rposition(|(bracket, _)| *bracket == opening) {
                    let first = open[index].1;
                    open.truncate(index);
                    // The closing bracket stays visible.
                    add(first, line.saturating_sub(1), FoldKind::Region);
                }
            }
            _ => {}
        }
    }
    run.into_iter().for_each(|(kind, first, last)| add(first, last, kind));
    found.into_values().collect()
}
