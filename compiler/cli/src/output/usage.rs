//! What is wrong with a command line: on standard error for people, and as `pipec.usage/1` for programs.

use super::{colours_error, colours_out, complain, has_printed, print, print_error_page, print_page};
use clap::Error;
use clap::error::{ContextKind, ContextValue};
use serde::Serialize;

/// Name and version of the form.
pub(crate) const SCHEMA: &str = "pipec.usage/1";

/// The most characters of a wrong value that are written out.
const MOST_SHOWN: usize = 60;

/// Why a command was not carried out.
#[derive(Serialize)]
struct Refusal<'a> {
    schema: &'static str,
    /// Always false.
    ok: bool,
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

/// Says why a command cannot be carried out; to programs, unless it has given them its report already.
pub(crate) fn refuse(message: &str, is_json: bool) {
    complain(message);
    if is_json && !has_printed() {
        tell(message, None);
    }
}

/// Says why a command line cannot be parsed.
pub(crate) fn refuse_words(error: &Error, is_json: bool) {
    if let Some(message) = without_value(error) {
        return refuse(&message, is_json);
    }
    let text = error.render();
    let painted = |colours| {
        let text = if colours { text.ansi().to_string() } else { text.to_string() };
        if error.use_stderr() { quoted(&text) } else { text }
    };
    if error.use_stderr() {
        print_error_page(&painted(colours_error()));
    } else {
        // A reader that went away needs no help text.
        let _ = print_page(&painted(colours_out()));
    }
    if is_json {
        let text = quoted(&text.to_string());
        let paragraphs: Vec<String> = text.split("\n\n").map(one_line).collect();
        let starting = |word: &'static str| move |paragraph: &String| paragraph.strip_prefix(word).map(str::to_owned);
        let first = paragraphs.first().cloned().unwrap_or_default();
        let help = paragraphs.iter().find_map(starting("tip: "));
        tell(first.strip_prefix("error: ").unwrap_or(&first), help.as_deref());
    }
}

/// What is wrong with a value that is too long to be written out again: the option, and the reason.
fn without_value(error: &Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    context(ContextKind::InvalidValue).filter(|value| value.chars().count() > MOST_SHOWN)?;
    let option = context(ContextKind::InvalidArg)?.split(' ').next()?;
    Some(format!("`{option}`: {}", std::error::Error::source(error)?))
}

/// With words of the command line between backticks, as everywhere else. An apostrophe within a word stays.
fn quoted(text: &str) -> String {
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphabetic);
    let mut letters = text.chars().peekable();
    let (mut before, mut quoted) = (None, String::new());
    while let Some(letter) = letters.next() {
        let is_within = is_letter(before) && is_letter(letters.peek().copied());
        quoted.push(if letter == '\'' && !is_within { '`' } else { letter });
        before = Some(letter);
    }
    quoted
}

fn one_line(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn tell(error: &str, help: Option<&str>) {
    let refusal = Refusal { schema: SCHEMA, ok: false, error, help };
    let text = serde_json::to_string_pretty(&refusal).expect("it is plain data");
    // Standard output may be what cannot be written.
    let _ = print(&(text + "\n"));
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_of_the_command_line_stand_between_backticks() {
        let cases = [
            ("invalid value 'eight' for '--devices <N>'", "invalid value `eight` for `--devices <N>`"),
            ("'\u{1b}[33mchek\u{1b}[0m' isn't a command", "`\u{1b}[33mchek\u{1b}[0m` isn't a command"),
        ];
        for (text, wanted) in cases {
            assert_eq!(quoted(text), wanted);
        }
    }
}
