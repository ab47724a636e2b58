//! Draws diagnostics: the headline, the source with its labels through miette, then notes and help.

use crate::output::{Style, paint};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use pipe_compiler::diagnostic::{Diagnostic, Severity};
use pipe_compiler::source::Sources;
use std::fmt;

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
#[must_use]
pub fn draw(diagnostics: &[Diagnostic], sources: &Sources, look: Look) -> String {
    diagnostics.iter().map(|diagnostic| draw_one(diagnostic, sources, look) + "\n").collect()
}

fn draw_one(diagnostic: &Diagnostic, sources: &Sources, look: Look) -> String {
    let (word, style) = match diagnostic.severity {
        Severity::Error => ("error", Style::Error),
        Severity::Warning => ("warning", Style::Warning),
    };
    let mut text = paint(&format!("{word}[{}]", diagnostic.code), style, look.colours);
    text.push_str(&format!(": {}\n", paint(&diagnostic.message, Style::Strong, look.colours)));
    text.push_str(&snippet(diagnostic, sources, look));
    let notes = diagnostic.notes.iter().map(|note| ("note", note));
    for (word, line) in notes.chain(diagnostic.help.iter().map(|help| ("help", help))) {
        text.push_str(&format!("  {}: {line}\n", paint(word, Style::Strong, look.colours)));
    }
    text
}

/// The lines of the main label's file, with all labels in it; labels in other files become lines of their own.
fn snippet(diagnostic: &Diagnostic, sources: &Sources, look: Look) -> String {
    let Some(main) = diagnostic.labels.first() else { return String::new() };
    let source = sources.get(main.span.file);
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        diagnostic.labels.iter().partition(|label| label.span.file == main.span.file);
    let labels = here.iter().enumerate().map(|(index, label)| {
        let length = (label.span.end - label.span.start) as usize;
        let words = Some(label.text.clone()).filter(|text| !text.is_empty());
        let span = (label.span.start as usize, length);
        if index == 0 {
            LabeledSpan::new_primary_with_span(words, span)
        } else {
            LabeledSpan::new_with_span(words, span)
        }
    });
    let drawn =
        Drawn { diagnostic, source: NamedSource::new(&source.name, source.text.clone()), labels: labels.collect() };
    let theme = if look.colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(look.width).with_context_lines(1);
    let mut text = String::new();
    // Drawing into a string fails only where a label lies outside its source; the headline then has to do.
    if handler.render_report(&mut text, &drawn).is_err() {
        text.clear();
    }
    // The headline is ours: miette's first lines, up to the snippet, repeat it.
    let mut text = text.find("╭─").map_or(String::new(), |start| {
        let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        text[line..].trim_end().to_owned() + "\n"
    });
    for label in elsewhere {
        let (line, column) = sources.line_column(label.span.file, label.span.start);
        let name = &sources.get(label.span.file).name;
        text.push_str(&format!("  {name}:{line}:{column}: {}\n", label.text));
    }
    text
}
