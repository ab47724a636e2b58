//! What belongs together without braces: behind a colon, or by its indentation.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[body, keyword_end];

/// `order d:` and lines that are indented, `if d == 0: F[d]`, or the same without a colon.
fn body(view: &View<'_>) -> Option<Mistake> {
    if !view.expects(&[Rule::open, Rule::body]) || view.word(0) == "{" {
        return None;
    }
    let mark = view.word(0);
    let is_arrow = mark == "=" && view.word(1) == ">";
    let has_mark = (matches!(mark, ":" | "do" | "then" | "begin" | "(") && mark != "(") || is_arrow;
    let first = view.at + if is_arrow { 2 } else { usize::from(has_mark) };
    let header = view.first_of_line(view.at.checked_sub(1)?);
    let indentation = view.indentation(header);
    // `train: {`, and a name of two words.
    let is_named = header_word_is_declaration(view, header) && !has_mark && view.follows_on_line(0);
    if has_mark && view.token(first) == "{" || is_named {
        return None;
    }
    let in_line = !view.begins_line(first) && first < view.tokens.len();
    if !in_line && !has_mark && view.indentation(first) <= indentation {
        return None;
    }
    let last = if in_line { last_in_line(view, first) } else { last_indented(view, first, indentation) };
    let end = if last < first { view.span(first - 1, first - 1).end } else { view.span(last, last).end };
    let close = if in_line || last < first { " }".to_owned() } else { format!("\n{}}}", " ".repeat(indentation)) };
    // A word that ends a body in other languages becomes its brace.
    let word_at_end = view.tokens.get(last + 1).filter(|_| is_end(view.token(last + 1)));
    let closed = |mistake: Mistake| match word_at_end {
        Some(word) => mistake.replace(word.clone(), "}"),
        None => mistake.insert(end, close.clone()),
    };
    let place = if has_mark { view.span(view.at, first - 1) } else { view.range(-1).end..view.range(-1).end };
    let label = if has_mark { "`{` is expected here" } else { "`{` is missing here" };
    let keyword = view.token(header_word(view, header));
    let what = format!("the body of `{keyword}` stands in braces");
    let mistake = Mistake::new(place, label, what).help("write `{` here, and `}` at the end");
    Some(if has_mark {
        let gap = if view.touches(0) { " " } else { "" };
        let mark = view.span(view.at, first - 1);
        if mark.end == end {
            mistake.replace(mark, format!("{gap}{{ }}"))
        } else {
            closed(mistake.replace(mark, format!("{gap}{{")))
        }
    } else {
        closed(mistake.insert(view.range(-1).end, " {"))
    })
}

/// The word that the header of a body begins with: the last one of the line that can.
fn header_word(view: &View<'_>, first: usize) -> usize {
    let begins = |index: &usize| {
        let words =
            ["schedule", "layer", "model", "pipeline", "train", "order", "block", "repeat", "for", "if", "else"];
        words.contains(&view.token(*index))
    };
    (first..view.at).rev().find(begins).unwrap_or(first)
}

/// Whether the header of a body declares something.
fn header_word_is_declaration(view: &View<'_>, first: usize) -> bool {
    matches!(view.token(header_word(view, first)), "schedule" | "layer" | "model" | "pipeline")
}

/// The last token of a body in one line: it ends with the line, with the brace around it, or before `else`.
fn last_in_line(view: &View<'_>, first: usize) -> usize {
    let line = view.last_of_line(first);
    let mut index = first;
    while index <= line {
        match view.token(index) {
            "{" | "(" | "[" => index = view.closer(index).unwrap_or(line),
            "}" | "else" => return index.saturating_sub(1),
            _ => {}
        }
        index += 1;
    }
    line.max(index.saturating_sub(1))
}

/// The last token of a body in lines of its own: those that are further right than their header.
fn last_indented(view: &View<'_>, first: usize, indentation: usize) -> usize {
    let is_behind = |index: &usize| view.begins_line(*index) && view.indentation(*index) <= indentation;
    (first..view.tokens.len()).find(is_behind).unwrap_or(view.tokens.len()).saturating_sub(1)
}

/// Whether a word ends a body in other languages.
fn is_end(word: &str) -> bool {
    matches!(word, "end" | "endif" | "endfor" | "done" | "fi" | "endwhile" | "End")
}

/// `end`, where a brace is open.
fn keyword_end(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    (is_end(word) && view.expects(&[Rule::close])).then(|| {
        Mistake::new(view.range(0), "`}` is expected here", format!("unknown keyword `{word}`"))
            .help("write `}`")
            .replace(view.range(0), "}")
    })
}
