//! A text in which mistakes are repaired one after the other, and which knows where its bytes come from.

use super::mistake::Change;
use std::ops::Range;

/// Where a byte comes from.
#[derive(Clone, Copy)]
struct Origin {
    /// The bytes of the original that it stands for.
    start: usize,
    end: usize,
    /// Whether it is one of them, and not written in their place.
    is_kept: bool,
}

/// A text, and for each byte of it the bytes of the original that it stands for.
pub(super) struct Repaired {
    text: String,
    origins: Vec<Origin>,
    original_length: usize,
}

impl Repaired {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            origins: (0..text.len()).map(|byte| Origin { start: byte, end: byte + 1, is_kept: true }).collect(),
            original_length: text.len(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The part of the original that a part of this text comes from.
    pub(super) fn original(&self, part: &Range<usize>) -> Range<usize> {
        let start = self.origins.get(part.start).map_or(self.original_length, |origin| origin.start);
        if part.is_empty() {
            // Behind what was written before, if that comes first.
            let before =
                part.start.checked_sub(1).and_then(|byte| self.origins.get(byte)).map_or(0, |origin| origin.end);
            return before.min(start)..before.min(start);
        }
        let end = self.origins.get(part.end - 1).map_or(start, |origin| origin.end);
        start..end.max(start)
    }

    /// Whether a part is as it was written, so that the original can be changed there in the same way.
    pub(super) fn is_original(&self, part: &Range<usize>) -> bool {
        let neighbour = |byte: Option<usize>| byte.and_then(|byte| self.origins.get(byte));
        if part.is_empty() {
            let (before, behind) = (neighbour(part.start.checked_sub(1)), neighbour(Some(part.start)));
            let is_written = |origin: Option<&Origin>| origin.is_some_and(|origin| !origin.is_kept);
            return !is_written(before) && !is_written(behind)
                || before.is_none_or(|origin| origin.is_kept || origin.start < origin.end)
                    && behind.is_none_or(|origin| origin.is_kept);
        }
        let origins = self.origins.get(part.clone()).unwrap_or_default();
        origins.iter().all(|origin| origin.is_kept) && origins.is_sorted_by(|left, right| left.end == right.start)
    }

    /// Makes changes, which do not overlap.
    pub(super) fn change(&mut self, changes: &[Change]) {
        let (mut origins, mut position) = (Vec::with_capacity(self.origins.len()), 0);
        for change in in_order(changes) {
            let Range { start, end } = self.original(&change.at);
            origins.extend_from_slice(self.origins.get(position..change.at.start).unwrap_or_default());
            origins.extend(std::iter::repeat_n(Origin { start, end, is_kept: false }, change.text.len()));
            position = change.at.end;
        }
        origins.extend_from_slice(self.origins.get(position..).unwrap_or_default());
        self.text = changed(&self.text, changes);
        self.origins = origins;
    }

    /// Writes spaces over a part; lines stay.
    pub(super) fn blank(&mut self, part: Range<usize>) {
        let blanks = blanked(&self.text[part.clone()]);
        self.text.replace_range(part, &blanks);
    }
}

/// A text after changes that do not overlap.
pub(super) fn changed(text: &str, changes: &[Change]) -> String {
    let (mut written, mut position) = (String::with_capacity(text.len()), 0);
    for change in in_order(changes) {
        written.push_str(text.get(position..change.at.start).unwrap_or_default());
        written.push_str(&change.text);
        position = change.at.end;
    }
    written + text.get(position..).unwrap_or_default()
}

/// As many spaces as a text has bytes, in the same lines.
pub(super) fn blanked(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Changes in the order of their places; of two texts at one place the first one comes first.
fn in_order(changes: &[Change]) -> Vec<&Change> {
    let mut changes: Vec<&Change> = changes.iter().collect();
    changes.sort_by_key(|change| (change.at.start, change.at.end));
    changes
}
