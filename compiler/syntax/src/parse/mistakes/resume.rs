//! Where to read on behind a mistake that nobody knows: parts of the text to leave out, the smallest first.

use super::view::View;
use crate::parse::scan;
use std::ops::Range;

/// The statement around the place, the token there, and the declaration around it.
pub(super) fn parts(view: &View<'_>) -> Vec<Range<usize>> {
    let mut parts = vec![statement(view), view.range(0)];
    // What is left would have brackets without partners.
    parts.retain(|part| is_balanced(&view.text[part.clone()]));
    parts.push(declaration(view));
    parts.retain(|part| !view.text[part.clone()].trim().is_empty());
    parts
}

/// Whether a text closes the brackets that it opens, and no others.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0;
    for token in scan::Tokens::new(text) {
        depth += match &text[token] {
            "{" | "(" | "[" => 1,
            "}" | ")" | "]" => -1,
            _ => 0,
        };
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

/// The statement around the place: its line, with the braces that it opens.
pub(super) fn statement(view: &View<'_>) -> Range<usize> {
    let opener = view.opener(view.at, &["{"]);
    let least = opener.map_or(0, |opener| opener + 1);
    // At the beginning of a line, something may be missing at the end of the one before.
    let is_behind = !view.is_between_lines() && view.begins_line(view.at) && view.at > least;
    let mut first = view.at - usize::from(is_behind);
    let mut depth = closes(view, first);
    while first > least && !(depth == 0 && view.begins_line(first)) {
        first -= 1;
        depth += closes(view, first);
    }
    let end = if is_behind { view.at } else { end(view, first) };
    let last = end.saturating_sub(1).max(first);
    view.span(first, last.min(view.tokens.len().saturating_sub(1)))
}

/// By how much a token raises the number of brackets that are open before it.
fn closes(view: &View<'_>, index: usize) -> isize {
    match view.token(index) {
        "}" | ")" | "]" => 1,
        "{" | "(" | "[" => -1,
        _ => 0,
    }
}

/// The number of the token behind a statement.
fn end(view: &View<'_>, first: usize) -> usize {
    let mut depth = 0;
    for index in first..view.tokens.len() {
        if index > view.at && depth <= 0 && view.begins_line(index) {
            return index;
        }
        depth -= closes(view, index);
        if depth < 0 && view.token(index) == "}" {
            return index;
        }
    }
    view.tokens.len()
}

fn declaration(view: &View<'_>) -> Range<usize> {
    let starts: Vec<usize> = scan::declarations(view.text).collect();
    let next = starts.partition_point(|start| *start <= view.position);
    let start = next.checked_sub(1).map_or(0, |index| starts[index]);
    start..starts.get(next).copied().unwrap_or(view.text.len())
}
