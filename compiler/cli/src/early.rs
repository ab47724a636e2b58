//! What the words of a command line ask for, whether or not they make sense as a whole: how to say what is wrong
//! with them.

use clap::{ColorChoice, ValueEnum};
use std::ffi::OsString;

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Early {
    /// Whether a program reads what is written.
    pub(crate) json: bool,
    /// When to colour.
    pub(crate) colours: ColorChoice,
}

impl Early {
    /// Looks through words up to `--`.
    pub(crate) fn of(words: &[OsString]) -> Self {
        let words = words.iter().map(|word| word.to_str().unwrap_or_default()).take_while(|word| *word != "--");
        let (mut early, mut option) = (Self { json: false, colours: ColorChoice::Auto }, "");
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((option, word));
            match (name, value) {
                (_, "--json") | ("--format", "json") => early.json = true,
                ("--color", when) => early.colours = ColorChoice::from_str(when, false).unwrap_or(early.colours),
                _ => {}
            }
            option = word;
        }
        early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_seen_among_words_that_make_no_sense() {
        let of = |words: &str| Early::of(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        let early = |json, colours| Early { json, colours };
        assert_eq!(of("pipec chek --json x"), early(true, ColorChoice::Auto));
        assert_eq!(of("pipec check --format json --color never"), early(true, ColorChoice::Never));
        assert_eq!(of("pipec check --format=json --color=always"), early(true, ColorChoice::Always));
        assert_eq!(of("pipec check --format human --color sometimes"), early(false, ColorChoice::Auto));
        assert_eq!(of("pipec check -- --json"), early(false, ColorChoice::Auto));
    }
}
