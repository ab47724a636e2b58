//! Draws diagnostics: the headline, the source with its labels through miette, then notes and help.

use super::elide::Condensed;
use super::wrap::{columns, fit};
use super::{Style, paint};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use pipe_syntax::diagnostic::{Diagnostic, Label, Severity};
use pipe_syntax::source::Sources;
use std::fmt;
use std::ops::Range;

/// One diagnostic as miette sees it.
struct Drawn<'a> {
    diagnostic: &'a Diagnostic,
    source: NamedSource<String>,
    labels: Vec<LabeledSpan>,
}

impl fmt::Debug for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.message)
    }
}

impl std::error::Error for Drawn<'_> {}

impl miette::Diagnostic for Drawn<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Note => miette::Severity::Advice,
        })
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// How wide drawings may be, and whether they have colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Whether to use escape sequences.
    pub colours: bool,
}

/// Draws diagnostics one below the other, each followed by an empty line.
pub fn draw(diagnostics: &[Diagnostic], sources: &Sources, look: Look) -> String {
    diagnostics.iter().map(|diagnostic| draw_one(diagnostic, sources, look) + "\n").collect()
}

/// The same for a terminal: lines fit its columns. A source with longer ones is shown as far as there is room.
pub(crate) fn draw_fitting(diagnostics: &[Diagnostic], sources: &Sources, look: Look) -> String {
    let one = |diagnostic: &Diagnostic| {
        let own = snippet(diagnostic, sources, look);
        let fits = own.lines().all(|line| columns(line) <= look.width);
        let own = match diagnostic.labels.split_first().filter(|_| !fits) {
            Some((main, others)) => excerpt(main, sources, look) + &fit(&places(others.iter(), sources), look.width),
            None => own,
        };
        let own = if diagnostic.severity == Severity::Note { String::new() } else { own };
        fit(&headline(diagnostic, look), look.width) + &own + &fit(&notes(diagnostic, look), look.width) + "\n"
    };
    diagnostics.iter().map(one).collect()
}

/// The longest source that miette draws: it reads the source again for every label.
const LONGEST_SOURCE: usize = 1 << 18;
/// The longest message that is shown whole, in characters.
const LONGEST_MESSAGE: usize = 1_000;

fn draw_one(diagnostic: &Diagnostic, sources: &Sources, look: Look) -> String {
    let is_note = diagnostic.severity == Severity::Note;
    let source = if is_note { String::new() } else { snippet(diagnostic, sources, look) };
    headline(diagnostic, look) + &source + &notes(diagnostic, look)
}

fn headline(diagnostic: &Diagnostic, look: Look) -> String {
    let (word, style) = match diagnostic.severity {
        Severity::Error => ("error", Style::Error),
        Severity::Warning => ("warning", Style::Warning),
        Severity::Note => ("note", Style::Strong),
    };
    let mut text = paint(&format!("{word}[{}]", diagnostic.code), style, look.colours);
    let message = harmless(&shortened(&diagnostic.message, LONGEST_MESSAGE));
    text.push_str(&format!(": {}\n", paint(&message, Style::Strong, look.colours)));
    text
}

/// What stands below the source.
fn notes(diagnostic: &Diagnostic, look: Look) -> String {
    let mut text = String::new();
    let notes = diagnostic.notes.iter().map(|note| ("note", note));
    for (word, line) in notes.chain(diagnostic.help.iter().map(|help| ("help", help))) {
        text.push_str(&format!("  {}: {}\n", paint(word, Style::Strong, look.colours), harmless(line)));
    }
    text
}

/// The lines of the main label's file, with all labels in it; labels in other files become lines of their own.
fn snippet(diagnostic: &Diagnostic, sources: &Sources, look: Look) -> String {
    let Some(main) = diagnostic.labels.first() else { return String::new() };
    let source = sources.get(main.span.file);
    let spans = |label: &&Label| label.span.file == main.span.file;
    let ranges: Vec<Range<usize>> = diagnostic
        .labels
        .iter()
        .filter(spans)
        .map(|label| label.span.start as usize..label.span.end as usize)
        .collect();
    let condensed = Condensed::new(&source.text, &ranges);
    if condensed.text.len() > LONGEST_SOURCE {
        return excerpt(main, sources, look) + &places(diagnostic.labels.iter().skip(1), sources);
    }
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        diagnostic.labels.iter().partition(|label| label.span.file == main.span.file);
    let labels = here.iter().enumerate().map(|(index, label)| {
        let words = Some(harmless(&label.text)).filter(|text| !text.is_empty());
        let start = condensed.place(label.span.start as usize);
        let span = (start, condensed.place(label.span.end as usize) - start);
        if index == 0 {
            LabeledSpan::new_primary_with_span(words, span)
        } else {
            LabeledSpan::new_with_span(words, span)
        }
    });
    // Without a last line end, miette does not draw a label at the end of the text.
    let end = if condensed.text.ends_with('\n') { "" } else { "\n" };
    let (line, column) = sources.line_column(main.span.file, main.span.start);
    let (name, text) = (harmless(&source.name), harmless(&condensed.text) + end);
    let source = NamedSource::new(&name, text);
    let drawn = Drawn { diagnostic, source, labels: labels.collect() };
    let theme = if look.colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(look.width).with_context_lines(1);
    let mut text = String::new();
    // Drawing into a string fails only where miette does not find a label.
    if handler.render_report(&mut text, &drawn).is_err() {
        return excerpt(main, sources, look) + &places(diagnostic.labels.iter().skip(1), sources);
    }
    // The headline is ours: miette's first lines, up to the snippet, repeat it.
    let mut text = text.find("╭─").map_or(String::new(), |start| {
        let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        text[line..].trim_end().to_owned() + "\n"
    });
    // miette's place is that of the first label it comes to, in bytes of the shorter text.
    if let Some((head, rest)) = text.split_once('\n')
        && let Some((before, _)) = head.split_once('[')
    {
        text = format!("{before}[{name}:{line}:{column}]\n{rest}");
    }
    text.push_str(&places(elsewhere.into_iter(), sources));
    text
}

/// A line for each label.
fn places<'a>(labels: impl Iterator<Item = &'a Label>, sources: &Sources) -> String {
    let place = |label: &Label| {
        let (line, column) = sources.line_column(label.span.file, label.span.start);
        format!("  {}:{line}:{column}: {}\n", sources.get(label.span.file).name, label.text)
    };
    labels.map(place).collect()
}

/// A label with the part of its line that fits, for sources that no picture is drawn of.
fn excerpt(label: &Label, sources: &Sources, look: Look) -> String {
    let text = &sources.get(label.span.file).text;
    let (before, rest) = text.split_at_checked(label.span.start as usize).unwrap_or((text, ""));
    let length = (label.span.end - label.span.start) as usize;
    let half = (look.width / 2).saturating_sub(4);
    let mut left: Vec<char> = before.chars().rev().take_while(|mark| *mark != '\n').take(half).collect();
    left.reverse();
    let of_line = |mark: &char| *mark != '\n';
    let left = harmless(&left.into_iter().collect::<String>()).replace('\t', " ");
    let is_cut = before.chars().rev().take_while(of_line).nth(half).is_some();
    // No word is cut, but one that is longer than the line.
    let left = left.split_once(' ').filter(|_| is_cut).map_or(left.as_str(), |(_, words)| words);
    let right: String = rest.chars().take_while(of_line).take(half).collect();
    let right = harmless(&right).replace('\t', " ");
    let is_cut = rest.chars().take_while(of_line).nth(half).is_some();
    let right = right.rsplit_once(' ').filter(|_| is_cut).map_or(right.as_str(), |(words, _)| words);
    let marked = rest.get(..length).unwrap_or(rest).chars().count().clamp(1, right.chars().count().max(1));
    let under = " ".repeat(left.chars().count()) + &paint(&"^".repeat(marked), Style::Error, look.colours);
    format!("{}    {left}{right}\n    {under}\n", places(std::iter::once(label), sources))
}

/// A text of as many bytes without characters that a terminal obeys: control characters and those
/// that turn the direction of writing. Tabs and ends of lines stay.
fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut marks = text.chars().peekable();
    while let Some(mark) = marks.next() {
        match mark {
            '\n' | '\t' => shown.push(mark),
            '\r' if marks.peek() == Some(&'\n') => shown.push(mark),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.push(char::REPLACEMENT_CHARACTER),
            _ if mark.is_control() => shown.push_str(&" ".repeat(mark.len_utf8())),
            _ => shown.push(mark),
        }
    }
    shown
}

/// A text without its middle, if it is long.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - most / 2).collect();
    text.chars().take(most / 2).chain(['…']).collect::<String>() + &end
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_syntax::diagnostic::Code;
    use pipe_syntax::source::{FileId, Source, Span};

    fn drawn(text: &str, start: usize, end: usize) -> String {
        let mut sources = Sources::default();
        sources.add(Source { name: "x.pipe".to_owned(), text: text.to_owned() });
        let span = Span { file: FileId(0), start: start as u32, end: end as u32 };
        let error = Diagnostic::error(Code::Syntax, span, "here", "m".repeat(3_000)).label(span, "and here");
        draw(&[error], &sources, Look { width: 60, colours: false })
    }

    #[test]
    fn terminals_do_not_obey_a_source() {
        for text in ["a\0\0b", "\u{1b}[31mred", "\u{9b}2J", "x \u{202e}y", "a\rb"] {
            let found = drawn(text, 0, 1);
            let obeyed = |mark: char| mark != '\n' && mark.is_control() || mark == '\u{202e}';
            assert!(!found.contains(obeyed) && found.contains("here"), "{found:?}");
        }
    }

    #[test]
    fn lines_of_any_length_are_drawn() {
        for length in [10, 1_999, 2_001, 70_000, 1_000_000] {
            for line in ["é", "x", "🦀"] {
                let text = line.repeat(length);
                for (start, end) in
                    [(0, 0), (0, text.len()), (text.len(), text.len()), (line.len() * 8, line.len() * 9)]
                {
                    let picture = drawn(&text, start, end);
                    assert!(picture.contains("here") && picture.len() < 20_000, "{length} {start} {end}\n{picture}");
                }
            }
        }
    }

    #[test]
    fn excerpts_of_long_lines_point_at_their_labels() {
        let text = format!("first\n{} guilty {}\nlast", "x ".repeat(40_000), "y ".repeat(40_000));
        let start = text.find("guilty").expect("it is there");
        let picture = drawn(&text, start, start + 6);
        let lines: Vec<_> = picture.lines().map(str::trim_end).collect();
        assert!(picture.contains("[x.pipe:2:80002]"), "{picture}");
        let shown = lines.iter().position(|line| line.contains("guilty")).expect("it is shown");
        let column = lines[shown].chars().take_while(|mark| *mark != 'g').count();
        let under: String = lines[shown + 1].chars().skip(column).take(6).collect();
        assert_eq!(under, "───┬──", "{picture}");
    }
}
