//! Long lines without what is far from labels: rows of tables have thousands of characters, and
//! people look at a few of them.

use std::ops::Range;

/// Lines up to this are left as they are, in bytes.
const LONGEST: usize = 240;
/// What is kept on each side of a label, in bytes.
const AROUND: usize = 36;
/// What is kept of a long label or of a line without one, in bytes.
const START: usize = 160;
/// Stands for what is left out.
const GAP: &str = "…";

/// A text with less in its long lines.
pub(crate) struct Condensed {
    /// The text.
    pub(crate) text: String,
    /// What is kept, by where it was, with where it is now.
    kept: Vec<(Range<usize>, usize)>,
}

impl Condensed {
    /// Leaves out what is far from labels.
    pub(crate) fn new(text: &str, labels: &[Range<usize>]) -> Self {
        let mut condensed = Self { text: String::new(), kept: Vec::new() };
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let whole = start..start + line.len();
            start = whole.end;
            if line.len() <= LONGEST {
                condensed.keep(text, whole);
                continue;
            }
            let body = whole.start..whole.start + line.trim_end_matches(['\n', '\r']).len();
            let parts = parts(text, &body, labels);
            for (index, part) in parts.iter().enumerate() {
                let before = if index == 0 { body.start } else { parts[index - 1].end };
                if part.start > before {
                    condensed.text.push_str(GAP);
                }
                condensed.keep(text, part.clone());
            }
            if parts.last().is_some_and(|last| last.end < body.end) {
                condensed.text.push_str(GAP);
            }
            condensed.keep(text, body.end..whole.end);
        }
        condensed
    }

    fn keep(&mut self, text: &str, part: Range<usize>) {
        self.kept.push((part.clone(), self.text.len()));
        self.text.push_str(&text[part]);
    }

    /// Where a byte of the text is now; of one that is left out, the end of what is kept before it.
    pub(crate) fn place(&self, byte: usize) -> usize {
        let after = self.kept.partition_point(|(part, _)| part.start <= byte);
        after.checked_sub(1).map_or(0, |index| {
            let (part, now) = &self.kept[index];
            now + byte.min(part.end) - part.start
        })
    }
}

/// The parts of a long line that are kept, ascending and apart.
fn parts(text: &str, line: &Range<usize>, labels: &[Range<usize>]) -> Vec<Range<usize>> {
    let own = labels.iter().filter(|label| label.start <= line.end && label.end >= line.start);
    let around = |label: &Range<usize>| {
        let end = label.end.min(label.start.max(line.start) + START);
        label.start.saturating_sub(AROUND).max(line.start)..(end + AROUND).min(line.end)
    };
    let mut parts: Vec<Range<usize>> = own.map(around).collect();
    if parts.is_empty() {
        parts.push(line.start..(line.start + START).min(line.end));
    }
    parts.sort_by_key(|part| part.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for part in parts {
        let part = text.floor_char_boundary(part.start)..text.ceil_char_boundary(part.end);
        match merged.last_mut() {
            Some(last) if part.start <= last.end + GAP.len() => last.end = last.end.max(part.end),
            _ => merged.push(part),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::Condensed;

    #[test]
    fn what_is_far_from_labels_is_left_out_and_labels_stay_at_their_words() {
        let line = format!("{}guilty{}", "a,".repeat(400), ",é".repeat(400));
        let text = format!("short\n{line}\nlast\n");
        let start = text.find("guilty").expect("it is there");
        let condensed = Condensed::new(&text, &[start..start + 6, 0..5]);
        let place = condensed.place(start)..condensed.place(start + 6);
        assert_eq!(&condensed.text[place], "guilty");
        assert_eq!(&condensed.text[condensed.place(0)..condensed.place(5)], "short");
        let lines: Vec<&str> = condensed.text.lines().collect();
        assert!(lines[1].starts_with('…') && lines[1].ends_with('…') && lines[1].len() < 100, "{}", lines[1]);
        assert_eq!((lines[0], lines[2]), ("short", "last"));
        assert_eq!(condensed.place(text.len()), condensed.text.len());
    }

    #[test]
    fn lines_without_labels_keep_their_beginning() {
        let condensed = Condensed::new(&"x".repeat(1_000), &[]);
        assert_eq!(condensed.text, format!("{}…", "x".repeat(160)));
    }
}
