//! Edits as a person would make them: a line that becomes empty goes, and what is added to lines gets its own.

use crate::ast::{Argument, Call};
use crate::diagnostic::{Code, Diagnostic, Edit};
use crate::source::{FileId, Sources, Span};

/// What to remove so that one of several things between commas goes, with a comma beside it.
#[must_use]
pub fn one_of(things: &[Span], index: usize) -> Option<Span> {
    let own = *things.get(index)?;
    let before = index.checked_sub(1).and_then(|before| things.get(before));
    Some(match (before, things.get(index + 1)) {
        (Some(before), _) => Span { start: before.end, ..own },
        (None, Some(behind)) => Span { end: behind.start, ..own },
        (None, None) => own,
    })
}

/// What to remove so that an argument of a call goes, by the place of its value; its brackets go with the only one.
#[must_use]
pub fn argument(call: &Call, value: Span) -> Option<Span> {
    let start = |argument: &Argument| argument.name.as_ref().map_or(argument.value.span, |name| name.span).start;
    let whole = |argument: &Argument| Span { start: start(argument), ..argument.value.span };
    let all: Vec<Span> = call.arguments.iter().map(whole).collect();
    let index = call.arguments.iter().position(|argument| argument.value.span == value)?;
    if all.len() == 1 { Some(Span { start: call.name.span.end, ..call.span }) } else { one_of(&all, index) }
}

/// The edit that gives a call one more argument. None where brackets may stand behind its name with nothing in them.
#[must_use]
pub fn one_more(call: &Call, argument: &str) -> Option<Edit> {
    let behind = |span: Span| Span { start: span.end, ..span };
    match call.arguments.last() {
        Some(last) => Some(Edit { span: behind(last.value.span), text: format!(", {argument}") }),
        None if call.span.end == call.name.span.end => {
            Some(Edit { span: behind(call.name.span), text: format!("({argument})") })
        }
        None => None,
    }
}

/// Fits the edits of a finding into the texts that they change: removing all of a line removes the line, and a text
/// that begins a new line is indented as the line before, or stays in it where that line opens a bracket. Fixes of
/// syntax errors are what they are: they were tried.
pub fn settle(found: &mut Diagnostic, sources: &Sources) {
    if found.code == Code::Syntax {
        return;
    }
    for edit in found.fix.iter_mut().flat_map(|fix| &mut fix.edits) {
        let text = sources.get(edit.span.file).text.as_str();
        if edit.text.is_empty() {
            edit.span = whole_line(text, edit.span);
        } else if edit.text.starts_with('\n') {
            edit.text = edit.text.replace('\n', &separator(text, edit.span));
        }
    }
}

/// The line of a span with its end, where nothing else is in it.
#[must_use]
pub fn whole_line(text: &str, span: Span) -> Span {
    let (start, end) = (span.start as usize, span.end as usize);
    let (Some(before), Some(behind)) = (text.get(..start), text.get(end..)) else { return span };
    let line = before.rfind('\n').map_or(0, |newline| newline + 1);
    let rest = behind.find('\n').unwrap_or(behind.len());
    let is_alone = before[line..].trim().is_empty() && behind[..rest].trim().is_empty() && rest < behind.len();
    if !is_alone || start == end {
        return span;
    }
    let byte = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    Span { start: byte(line), end: byte(end + rest + 1), ..span }
}

/// What stands before a text that is added behind a place.
fn separator(text: &str, span: Span) -> String {
    let before = text.get(..span.start as usize).unwrap_or_default();
    let line = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
    let indentation: String = line.chars().take_while(|letter| letter.is_whitespace()).collect();
    if line.matches('{').count() > line.matches('}').count() { " ".to_owned() } else { format!("\n{indentation}") }
}

/// The edit that writes lines at the beginning of the text that the user named.
#[must_use]
pub fn at_the_beginning(lines: &str) -> Edit {
    Edit { span: Span { file: FileId(0), start: 0, end: 0 }, text: lines.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::edited;
    use crate::source::Source;

    /// A text after an edit of the place that `«»` marks.
    fn made(marked: &str, new: &str) -> String {
        let (start, end) = (marked.find('«').expect("a mark"), marked.find('»').expect("a mark") - '«'.len_utf8());
        let text = marked.replace(['«', '»'], "");
        let mut sources = Sources::default();
        let file = sources.add(Source { name: "x.pipe".to_owned(), text: text.clone() });
        let byte = |place: usize| u32::try_from(place).expect("short");
        let span = Span { file, start: byte(start), end: byte(end) };
        let mut found = Diagnostic::error(Code::UnusedCost, span, "", "").edit(span, new);
        settle(&mut found, &sources);
        edited(&text, found.edits())
    }

    #[test]
    fn a_line_goes_with_all_that_is_in_it() {
        assert_eq!(made("a\n  «b»\nc\n", ""), "a\nc\n");
        assert_eq!(made("a\n  «b» // d\nc\n", ""), "a\n   // d\nc\n");
        assert_eq!(made("a { «b» }\n", ""), "a {  }\n");
        assert_eq!(made("a\n  «»\nc\n", ""), "a\n  \nc\n");
    }

    #[test]
    fn what_is_added_stands_below() {
        assert_eq!(made("p {\n  a 4«»\n}\n", "\nb 5"), "p {\n  a 4\n  b 5\n}\n");
        assert_eq!(made("p { a 4«» }\n", "\nb 5"), "p { a 4 b 5 }\n");
    }

    #[test]
    fn one_of_a_list_goes_with_its_comma() {
        let span = |start, end| Span { file: FileId(0), start, end };
        let things = [span(0, 1), span(3, 4), span(6, 7)];
        assert_eq!(one_of(&things, 0), Some(span(0, 3)));
        assert_eq!(one_of(&things, 2), Some(span(4, 7)));
        assert_eq!(one_of(&things[..1], 0), Some(span(0, 1)));
        assert_eq!(one_of(&things, 3), None);
    }
}
