//! Mistakes of a text that the grammar refuses: each with its place, its cause and what to write instead.
//!
//! The grammar tells the first place where a text stops being one of the language. Functions that know one kind of
//! mistake each look at the words around it; the first one whose changes let the grammar read on is believed. They are
//! made in a copy, which is parsed again, until nothing is left to tell. A mistake that nobody knows is told in the
//! words of the grammar, and its line is left out.

mod known;
mod mistake;
mod repaired;
mod resume;
mod view;
mod within;

use super::errors;
use super::grammar::{Grammar, Rule};
use super::scan;
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Edit};
use crate::source::{FileId, Span};
use mistake::{Change, Mistake};
use pest::Parser;
use pest::error::Error;
use repaired::{Repaired, changed};
use std::cmp::Ordering;
use std::ops::Range;
use view::View;

/// The most mistakes that are told of a text.
const MOST: usize = 100;
/// How many bytes may be parsed to find them: a few hundred mistakes in a text of some pages, a few dozen in one of a
/// megabyte.
const MOST_BYTES: usize = 8 << 20;

/// Everything that keeps a text from being one of the language, in the order of the text; `error` is the first.
pub(super) fn find(file: FileId, text: &str, error: Error<Rule>) -> Diagnostics {
    let mut search = Search::new(file, text);
    let (mut error, mut told) = (error, Diagnostics::new());
    while told.len() < MOST {
        let (diagnostic, next) = search.step(&error);
        told.push(diagnostic);
        match next {
            Some(next) if search.bytes < MOST_BYTES => error = next,
            _ => break,
        }
    }
    told.sort_by_key(|diagnostic| diagnostic.labels.first().map(|label| label.span));
    told.dedup();
    told
}

/// How far a text is one of the language.
enum Parsed {
    Whole,
    Until(Error<Rule>),
    TooDeep,
}

/// A mistake that something speaks for.
struct Trial {
    mistake: Mistake,
    /// The text without it, and its next error.
    repaired: String,
    next: Option<Error<Rule>>,
    /// Whether that is further on in the text.
    reads_on: bool,
    /// Whether it is at the same token.
    stays: bool,
}

struct Search {
    file: FileId,
    copy: Repaired,
    /// How many bytes were looked at.
    bytes: usize,
}

impl Search {
    fn new(file: FileId, text: &str) -> Self {
        Self { file, copy: Repaired::new(text), bytes: 0 }
    }

    /// Tells the mistake behind an error, and changes the copy so that the grammar can read on: to which error?
    fn step(&mut self, error: &Error<Rule>) -> (Diagnostic, Option<Error<Rule>>) {
        let text = self.copy.text().to_owned();
        let view = View::new(&text, error);
        self.bytes += text.len();
        for mistake in known::detectors().filter_map(|detector| detector(&view)) {
            if let Some(trial) = self.attempt(&view, &text, mistake)
                && self.is_progress(&view, &trial)
            {
                return self.accept(trial);
            }
        }
        // Of marks that are tried, the one with which the grammar reads furthest; the first of several.
        let tried = known::candidates(&view).into_iter().filter_map(|mistake| self.attempt(&view, &text, mistake));
        let left = |trial: &Trial| trial.next.as_ref().map_or(0, |next| trial.repaired.len() - view::position(next));
        let trials: Vec<Trial> = tried.filter(|trial| trial.reads_on).collect();
        if let Some(trial) = trials.into_iter().min_by_key(left) {
            return self.accept(trial);
        }
        let diagnostic = self.unexplained(&view, error);
        for part in resume::parts(&view) {
            let mut blanked = text.clone();
            blanked.replace_range(part.clone(), &repaired::blanked(&text[part.clone()]));
            let next = match self.parse(&blanked) {
                Parsed::Whole => None,
                Parsed::Until(next) if view::position(&next) >= part.end => Some(next),
                Parsed::Until(_) | Parsed::TooDeep => continue,
            };
            self.copy.blank(part);
            return (diagnostic, next);
        }
        (diagnostic, None)
    }

    /// Makes the changes of a mistake, and parses what comes out; nothing if that cannot be parsed at all.
    fn attempt(&mut self, view: &View<'_>, text: &str, mistake: Mistake) -> Option<Trial> {
        if self.bytes > MOST_BYTES || !are_apart(&mistake.changes) {
            return None;
        }
        let repaired = changed(text, &mistake.changes);
        let next = match self.parse(&repaired) {
            Parsed::Whole => None,
            Parsed::Until(next) => Some(next),
            Parsed::TooDeep => return None,
        };
        let advance = next.as_ref().map(|next| view::position(next).cmp(&boundary(view, &mistake.changes)));
        let is_written =
            mistake.is_guess || touching(view, &mistake.changes).is_some_and(|change| !change.text.trim().is_empty());
        let reads_on = advance.is_none_or(|advance| advance.is_gt() || advance.is_eq() && is_written);
        Some(Trial { mistake, repaired, next, reads_on, stays: advance == Some(Ordering::Equal) })
    }

    /// Whether the grammar reads on after a trial, or stays where it was for another reason, which somebody knows.
    fn is_progress(&mut self, view: &View<'_>, trial: &Trial) -> bool {
        let Some(next) = trial.next.as_ref().filter(|_| !trial.reads_on && trial.stays) else { return trial.reads_on };
        let then = View::new(&trial.repaired, next);
        let mut mistakes = known::detectors().filter_map(|detector| detector(&then));
        let is_other = touching(view, &trial.mistake.changes).is_some() || !then.expects_the_same(view);
        is_other
            && mistakes.any(|mistake| self.attempt(&then, &trial.repaired, mistake).is_some_and(|trial| trial.reads_on))
    }

    fn accept(&mut self, trial: Trial) -> (Diagnostic, Option<Error<Rule>>) {
        let diagnostic = self.told(&trial.mistake);
        self.copy.change(&trial.mistake.changes);
        (diagnostic, trial.next)
    }

    fn parse(&mut self, text: &str) -> Parsed {
        if scan::nesting(self.file, text).is_err() {
            return Parsed::TooDeep;
        }
        let parsed = Grammar::parse(Rule::file, text).map_or_else(Parsed::Until, |_| Parsed::Whole);
        self.bytes += match &parsed {
            Parsed::Until(error) => view::position(error),
            Parsed::Whole | Parsed::TooDeep => text.len(),
        };
        parsed
    }

    fn span(&self, part: &Range<usize>) -> Span {
        let Range { start, end } = self.copy.original(part);
        let byte = |position| u32::try_from(position).unwrap_or(u32::MAX);
        Span { file: self.file, start: byte(start), end: byte(end) }
    }

    fn told(&self, mistake: &Mistake) -> Diagnostic {
        let diagnostic = Diagnostic::error(
            Code::Syntax,
            self.span(&mistake.place),
            mistake.label.as_str(),
            mistake.message.as_str(),
        );
        let diagnostic = mistake
            .others
            .iter()
            .fold(diagnostic, |diagnostic, (place, words)| diagnostic.label(self.span(place), *words));
        let diagnostic = mistake.help.iter().fold(diagnostic, |diagnostic, help| diagnostic.help(help.as_str()));
        if mistake.is_guess || !mistake.changes.iter().all(|change| self.copy.is_original(&change.at)) {
            return diagnostic;
        }
        let edit = |change: &Change| Edit { span: self.span(&change.at), text: change.text.clone() };
        mistake.changes.iter().map(edit).fold(diagnostic, |diagnostic, edit| diagnostic.edit(edit.span, edit.text))
    }

    /// What the grammar expected, where nobody knows what was meant.
    fn unexplained(&self, view: &View<'_>, error: &Error<Rule>) -> Diagnostic {
        let place = view.place();
        let found = match view.word(0) {
            "" => "the end of the text".to_owned(),
            _ if place.is_empty() => "the end of the line".to_owned(),
            word => errors::quoted(word),
        };
        let (message, help) = errors::message(error, &found, view.within().phrase());
        let label = if place.is_empty() { "something is missing here" } else { "not expected here" };
        let diagnostic = Diagnostic::error(Code::Syntax, self.span(&place), label, message);
        help.into_iter().fold(diagnostic, Diagnostic::help)
    }
}

/// Whether changes lie side by side.
fn are_apart(changes: &[Change]) -> bool {
    let mut places: Vec<&Range<usize>> = changes.iter().map(|change| &change.at).collect();
    places.sort_by_key(|place| (place.start, place.end));
    !changes.is_empty() && places.is_sorted_by(|left, right| left.end <= right.start)
}

/// The change of what stands at the place of the error.
fn touching<'c>(view: &View<'_>, changes: &'c [Change]) -> Option<&'c Change> {
    let touches = |change: &&Change| change.at.start <= view.position && change.at.end > view.position;
    changes.iter().filter(touches).max_by_key(|change| change.at.end)
}

/// Where the token that follows what is changed at the place of the error stands after the changes.
fn boundary(view: &View<'_>, changes: &[Change]) -> usize {
    let end = touching(view, changes).map_or(view.position, |change| change.at.end);
    let next = view.tokens.iter().find(|token| token.start >= end).map_or(view.text.len(), |token| token.start);
    let before =
        changes.iter().filter(|change| change.at.start < next || change.at.is_empty() && change.at.start == next);
    let growth = before.map(|change| change.text.len().cast_signed() - change.at.len().cast_signed()).sum();
    next.saturating_add_signed(growth)
}

#[cfg(test)]
mod tests;
