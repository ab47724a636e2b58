//! No text makes the compiler panic, and none keeps it busy for long.

use super::{elaborated, load};
use pipe_syntax::stdlib;
use proptest::prelude::*;

const SOURCES: &[&str] = &[
    include_str!("../../../../syntax/src/parse/tests/everything.pipe"),
    include_str!("../../../../../stdlib/schedules/v_half.pipe"),
    include_str!("../../../../../stdlib/schedules/interleaved_1f1b.pipe"),
    include_str!("../../../../../stdlib/models/gpt.pipe"),
    super::BY_HAND,
    "pipeline p { devices 4 memory 1MiB microbatches 8 schedule zb_h1 cost F = 1, comm = 0.5 require peak <= 2 * 1f1b
     train { data synthetic steps 9 seed 1 optimizer sgd(0.1) warmup 2 minimum 0.01 checkpoint \"x\" every 2 } }",
];

const WORDS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    "=",
    "==",
    "..",
    "-",
    "/",
    "%",
    "*",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "s",
    "d",
    "D",
    "M",
    "S",
    "if",
    "then",
    "else",
    "not",
    "let",
    "for",
    "in",
    "repeat",
    "fill",
    "at",
    "F",
    "B",
    "W",
    "BW",
    "\"",
    "//",
    "///",
    "1f1b",
    "1.5",
    "7TiB",
    "é",
    "\u{0}",
    "reorder",
    "require",
    "stages",
    "place",
    "on",
    "block",
    "every",
];

/// Words of a text, each with the space after it.
fn words(text: &str) -> Vec<String> {
    text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect()
}

/// A source with some of its words removed, doubled, replaced or swapped.
fn damaged() -> impl Strategy<Value = String> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..4, prop::sample::select(WORDS)), 1..8);
    (prop::sample::select(SOURCES), edits).prop_map(|(source, edits)| {
        let mut words = words(source);
        for (place, edit, word) in edits {
            let place = place.index(words.len());
            match edit {
                0 => words[place].clear(),
                1 => words.insert(place, format!(" {word} ")),
                2 => words[place] = format!(" {word} "),
                _ => {
                    let other = words.len() - 1 - place;
                    words.swap(place, other);
                }
            }
        }
        words.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_sources_are_accepted_or_refused(text in damaged(), devices in -1i64..9, microbatches in -1i64..20) {
        if let Err(errors) = elaborated(&text, &[("devices", devices), ("microbatches", microbatches)]) {
            prop_assert!(!errors.is_empty());
            for label in errors.iter().flat_map(|error| &error.labels).filter(|label| label.span.file.0 == 0) {
                let (start, end) = (label.span.start as usize, label.span.end as usize);
                prop_assert!(text.get(start..end).is_some(), "{start}..{end} is no part of the text");
            }
        }
    }

    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(load(&text).is_ok() || elaborated(&text, &[]).is_err());
    }

    #[test]
    fn any_words_are_accepted_or_refused(words in prop::collection::vec(prop::sample::select(WORDS), 0..60)) {
        let _ = elaborated(&format!("schedule x {{ {}", words.join(" ")), &[]);
    }

    #[test]
    fn every_size_of_a_standard_schedule_is_accepted_or_refused(
        index in 0..stdlib::SCHEDULES.len(),
        devices in any::<i16>(),
        microbatches in 0i64..40,
        chunks in any::<i64>(),
    ) {
        let settings = [("devices", i64::from(devices) / 512), ("microbatches", microbatches), ("chunks", chunks)];
        let (name, text) = stdlib::SCHEDULES[index];
        let settings = if name == "interleaved_1f1b" { &settings[..] } else { &settings[..2] };
        let _ = elaborated(text, settings);
    }
}
