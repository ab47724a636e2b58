//! Texts that are damaged at random: whatever is said of them is about them.

use super::*;
use crate::diagnostic::edited;
use crate::stdlib;

/// The same numbers in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).expect("it fits")).expect("it is smaller")
    }
}

/// What people slip in.
const STRANGE: [&str; 20] = [
    "#", "(", ")", "{", "}", ";", ":", "=", "é", "\"", "'", "..", "@", "[", "]", "1", "-", "range(M)", "elif", "\u{0}",
];

/// A text with one to three words left out, doubled, swapped, replaced or added, or without its end.
fn damaged(text: &str, numbers: &mut Numbers) -> String {
    let mut text = text.to_owned();
    for _ in 0..=numbers.below(3) {
        let tokens: Vec<Range<usize>> = scan::Tokens::new(&text).collect();
        let mut any = || tokens.get(numbers.below(tokens.len())).cloned().unwrap_or(0..0);
        let (one, other) = (any(), any());
        let (first, last) = if one.start < other.start { (&one, &other) } else { (&other, &one) };
        let written = text[other.clone()].to_owned();
        match numbers.below(7) {
            0 => text.replace_range(one, ""),
            1 => text.insert_str(one.end, &format!(" {}", &text[one.clone()])),
            2 if first.end <= last.start => {
                let (before, behind) = (text[first.clone()].to_owned(), text[last.clone()].to_owned());
                text.replace_range(last.clone(), &before);
                text.replace_range(first.clone(), &behind);
            }
            3 => text.replace_range(one, &written),
            4 => text.insert_str(one.start, &written),
            5 => text.truncate(one.end),
            _ => text.insert_str(one.start, STRANGE[numbers.below(STRANGE.len())]),
        }
    }
    text
}

/// How many bytes of a text the grammar does not reach; none of one that it accepts.
fn left(text: &str) -> usize {
    Grammar::parse(Rule::file, text).err().map_or(0, |error| text.len() - view::position(&error))
}

#[test]
fn what_is_said_of_damaged_texts_is_about_them() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let examples = [
        include_str!("../../../../../examples/by_hand.pipe"),
        include_str!("../../../../../examples/mlp.pipe"),
        include_str!("../../../../../examples/two_tower.pipe"),
        include_str!("../../../../../examples/llama3_70b.pipe"),
        include_str!("../tests/everything.pipe"),
    ];
    let library = stdlib::SCHEDULES.iter().map(|(_, text)| *text);
    for text in library.chain(examples) {
        for _ in 0..40 {
            let text = damaged(text, &mut numbers);
            let Err(error) = Grammar::parse(Rule::file, &text) else { continue };
            let (view, mut search) = (View::new(&text, &error), Search::new(FileId(0), &text));
            let told = find(FileId(0), &text, error.clone());
            assert!(!told.is_empty());
            let spans = told.iter().flat_map(|one| {
                one.labels.iter().map(|label| label.span).chain(one.edits().iter().map(|edit| edit.span))
            });
            for span in spans {
                assert!(text.get(span.start as usize..span.end as usize).is_some(), "{span:?}\n{text}");
            }
            // The first mistake that is found: the grammar stops behind it once it is repaired, or where it did.
            let (first, _) = search.step(&error);
            if !first.edits().is_empty() {
                let fixed = edited(&text, first.edits());
                let behind = first.edits().iter().filter(|edit| edit.span.start as usize > view.position);
                let added: usize = behind.map(|edit| edit.text.len()).sum();
                assert!(left(&fixed) <= text.len() - view.position + added, "{first:#?}\n{text}\n\n{fixed}");
            }
        }
    }
}

#[test]
fn garbage_is_answered_soon() {
    let line = "schedul x {\n stage D\n place s in s; # why\n order d { F(d) repeat M: BW{d} }\n}\n";
    for text in [line.repeat(3_000), "F(d) ".repeat(40_000), "{ ( [ \" ' ".repeat(20_000), "# no\n".repeat(40_000)] {
        let text = format!("schedule x {{ order d {{ {text}");
        let error = Grammar::parse(Rule::file, &text).expect_err("it is garbage");
        let mut search = Search::new(FileId(0), &text);
        let mut next = Some(error);
        while let Some(error) = next.filter(|_| search.bytes < MOST_BYTES) {
            next = search.step(&error).1;
        }
        assert!(search.bytes < 2 * MOST_BYTES, "{} bytes were looked at", search.bytes);
    }
}
