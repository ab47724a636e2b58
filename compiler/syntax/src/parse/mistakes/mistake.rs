//! One mistake: what is wrong where, and what to write instead. Places are those of the text that is looked at.

use std::ops::Range;

/// A part of a text and what to write there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// What to replace; empty to insert.
    pub(super) at: Range<usize>,
    /// What to write there.
    pub(super) text: String,
}

/// What was probably meant.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) place: Range<usize>,
    pub(super) label: String,
    pub(super) message: String,
    /// Other places, with words beside them.
    pub(super) others: Vec<(Range<usize>, &'static str)>,
    pub(super) help: Option<String>,
    /// What makes the text one of the language, at least up to the next mistake.
    pub(super) changes: Vec<Change>,
    /// Whether the changes are only there to read on, and do not say what was meant.
    pub(super) is_guess: bool,
}

impl Mistake {
    pub(super) fn new(place: Range<usize>, label: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place,
            label: label.into(),
            message: message.into(),
            others: Vec::new(),
            help: None,
            changes: Vec::new(),
            is_guess: false,
        }
    }

    /// Says what to do.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at another place.
    pub(super) fn other(mut self, place: Range<usize>, words: &'static str) -> Self {
        self.others.push((place, words));
        self
    }

    /// Writes something else.
    pub(super) fn replace(mut self, at: Range<usize>, text: impl Into<String>) -> Self {
        self.changes.push(Change { at, text: text.into() });
        self
    }

    /// Writes something more.
    pub(super) fn insert(self, at: usize, text: impl Into<String>) -> Self {
        self.replace(at..at, text)
    }

    /// Writes something no more.
    pub(super) fn remove(self, at: Range<usize>) -> Self {
        self.replace(at, "")
    }

    /// Says that the changes only let the parser read on.
    pub(super) fn guess(mut self) -> Self {
        self.is_guess = true;
        self
    }
}
