//! One mistake: what is wrong where, and what to write instead. Places are those of the text that is looked at.

use std::ops::Range;

/// A part of a text and what to write there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::parse::mistakes) struct Change {
    /// What to replace; empty to insert.
    pub(in crate::parse::mistakes) at: Range<usize>,
    /// What to write there.
    pub(in crate::parse::mistakes) text: String,
}

/// What was probably meant.
#[derive(Debug)]
pub(in crate::parse::mistakes) struct Mistake {
    pub(in crate::parse::mistakes) place: Range<usize>,
    pub(in crate::parse::mistakes) label: String,
    pub(in crate::parse::mistakes) message: String,
    /// Other places, with words beside them.
    pub(in crate::parse::mistakes) others: Vec<(Range<usize>, &'static str)>,
    pub(in crate::parse::mistakes) help: Option<String>,
    /// What makes the text one of the language, at least up to the next mistake.
    pub(in crate::parse::mistakes) changes: Vec<Change>,
    /// Whether the changes are only there to read on, and do not say what was meant.
    pub(in crate::parse::mistakes) is_guess: bool,
}

impl Mistake {
    pub(in crate::parse::mistakes) fn new(
        place: Range<usize>,
        label: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
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
    pub(in crate::parse::mistakes) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at another place.
    pub(in crate::parse::mistakes) fn other(mut self, place: Range<usize>, words: &'static str) -> Self {
        self.others.push((place, words));
        self
    }

    /// Writes something else.
    pub(in crate::parse::mistakes) fn replace(mut self, at: Range<usize>, text: impl Into<String>) -> Self {
        self.changes.push(Change { at, text: text.into() });
        self
    }

    /// Writes something more.
    pub(in crate::parse::mistakes) fn insert(self, at: usize, text: impl Into<String>) -> Self {
        self.replace(at..at, text)
    }

    /// Writes something no more.
    pub(in crate::parse::mistakes) fn remove(self, at: Range<usize>) -> Self {
        self.replace(at, "")
    }

    /// Says that the changes only let the parser read on.
    pub(in crate::parse::mistakes) fn guess(mut self) -> Self {
        self.is_guess = true;
        self
    }
}
