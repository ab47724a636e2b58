//! Tips for wrong command lines that clap does not give: the option, command or value that the user probably meant.

use crate::input::near::setting_of;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use std::ffi::OsString;
use std::path::Path;

/// Options that users may expect to have a letter.
const LETTERS: [(&str, &str); 2] = [("-d", "--devices"), ("-m", "--microbatches")];

/// The endings of what `plot` writes.
const PICTURES: [&str; 4] = [".svg", ".pdf", ".tex", ".html"];

/// Replaces the tip of clap with ours, if there is one.
pub(crate) fn with_tip(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    if let Some(value) = containing(&error) {
        error.insert(ContextKind::SuggestedValue, ContextValue::String(value));
    }
    if let Some(tip) = tip(&error, command, &words) {
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn tip(error: &Error, command: &Command, words: &[&str]) -> Option<String> {
    let string = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = string(ContextKind::InvalidSubcommand)?;
            is_target(word).then(|| format!("did you mean `pipec check {word}`?"))
        }
        ErrorKind::UnknownArgument => {
            let word = string(ContextKind::InvalidArg)?;
            short(command, words, word).or_else(|| setting_of(word))
        }
        ErrorKind::MissingRequiredArgument if words.contains(&"plot") => {
            let is_picture = |word: &&&str| PICTURES.iter().any(|ending| word.ends_with(ending));
            let targets = words.iter().filter(|word| is_target(word)).count();
            match words.iter().find(is_picture) {
                Some(picture) => Some(format!("write `-o {picture}`")),
                None => (targets > 1).then(|| "several targets are drawn in a file: add `-o both.svg`".to_owned()),
            }
        }
        _ => None,
    }
}

/// The option that a letter stands for, if the command has it.
fn short(command: &Command, words: &[&str], word: &str) -> Option<String> {
    let (_, option) = LETTERS.into_iter().find(|(letter, _)| *letter == word)?;
    let subcommand = words.iter().find_map(|word| command.find_subcommand(word))?;
    subcommand.get_arguments().find(|argument| argument.get_long() == option.strip_prefix("--"))?;
    let at = words.iter().position(|other| *other == word || other.starts_with(word))?;
    let attached = words[at].strip_prefix(word).filter(|value| !value.is_empty());
    let value = attached.or_else(|| words.get(at + 1).copied().filter(|value| value.parse::<u32>().is_ok()));
    Some(format!("write `{option} {}`", value.unwrap_or("N")))
}

/// Whether a word in the place of a command names a target.
fn is_target(word: &str) -> bool {
    let has_ending = [".pipe", ".csv", ".ir"].iter().any(|ending| word.ends_with(ending));
    has_ending || word.starts_with("std:") || Path::new(&format!("{word}.pipe")).exists()
}

/// The shortest value of an option with the given word among its own, as `torch-csv` has `csv`.
fn containing(error: &Error) -> Option<String> {
    let (Some(ContextValue::String(word)), Some(ContextValue::Strings(values))) =
        (error.get(ContextKind::InvalidValue), error.get(ContextKind::ValidValue))
    else {
        return None;
    };
    let has_word = |value: &&String| value.split('-').any(|part| part == word);
    values.iter().filter(has_word).min_by_key(|value| value.len()).cloned()
}
