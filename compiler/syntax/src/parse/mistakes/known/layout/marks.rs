//! A mark or short word that is missing, wrong or one too many. Each token that the grammar expected is tried.

use crate::parse::errors;
use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{View, is_word};

/// Marks and words that join others, and mean nothing by themselves.
fn is_joint(word: &str) -> bool {
    let is_mark = word.len() <= 2 && !word.is_empty() && !is_word(word) && !word.starts_with('"');
    is_mark && !matches!(word, "{" | "}")
        || matches!(word, "of" | "to" | "as" | "is" | "by" | "do" | "with" | "from")
        || is_expected(word)
}

/// Those of them that are tried where they are expected: not those that open something.
fn is_expected(word: &str) -> bool {
    matches!(word, ")" | "]" | "," | ":" | "=" | "&" | ".." | "<=" | "." | "on" | "at" | "in" | "every" | "then")
}

/// Everything that is worth a try, the most probable first.
pub(in crate::parse::mistakes) fn candidates(view: &View<'_>) -> Vec<Mistake> {
    let found = view.word(0);
    let mut expected: Vec<String> = view.expected_words().into_iter().filter(|word| is_expected(word)).collect();
    // `gpt(blocks 8)`: a name, and what can only be its value.
    let is_value = found.starts_with(|mark: char| mark.is_ascii_digit() || mark == '"');
    expected.sort_by_key(|word| word != "=" || !is_value);
    let mut mistakes = Vec::new();
    if is_joint(found) {
        mistakes.extend(expected.iter().filter(|word| *word != found).map(|word| instead(view, word)));
    }
    // A word that begins a line begins something new, where the line before may end.
    if view.follows_on_line(0) || !view.is_between_lines() {
        mistakes.extend(expected.iter().map(|word| missing(view, word)));
    }
    if view.expects_operator() && view.follows_on_line(0) && is_factor(view, found) {
        mistakes.push(missing(view, "*"));
    }
    if is_joint(found) || !found.is_empty() && !is_word(found) && !matches!(found, "{" | "}") {
        mistakes.push(doubled(view));
    }
    // A word of English between the others.
    let is_plain = !found.is_empty() && found.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_plain && view.follows_on_line(0) && view.is_between_lines() && !keywords::is_keyword(found) {
        mistakes.push(doubled(view));
    }
    mistakes
}

/// Whether a word may be a factor: a number, a letter, or a name that was read before.
fn is_factor(view: &View<'_>, word: &str) -> bool {
    let is_size = word.ends_with('B') && word.starts_with(|mark: char| mark.is_ascii_digit());
    let is_known = || view.tokens.iter().take(view.at).any(|token| &view.text[token.clone()] == word);
    is_word(word)
        && !is_size
        && (word.len() == 1 || word.starts_with(|mark: char| mark.is_ascii_digit()) || is_known())
        && !keywords::is_keyword(word)
}

fn instead(view: &View<'_>, meant: &str) -> Mistake {
    let found = view.word(0);
    Mistake::new(view.range(0), format!("`{meant}` is expected here"), format!("expected `{meant}`, found `{found}`"))
        .help(format!("write `{meant}`"))
        .replace(view.range(0), spaced(view, meant))
}

/// A word with spaces where it would touch others.
fn spaced(view: &View<'_>, word: &str) -> String {
    let before = if is_word(word) && view.touches(0) { " " } else { "" };
    let behind = if is_word(word) && view.touches(1) { " " } else { "" };
    format!("{before}{word}{behind}")
}

fn missing(view: &View<'_>, word: &str) -> Mistake {
    let end = if view.at == 0 { 0 } else { view.range(-1).end };
    let found = view.word(0);
    let seen = match found {
        "" => "the end of the text".to_owned(),
        _ if !view.follows_on_line(0) => "the end of the line".to_owned(),
        _ => errors::quoted(found),
    };
    let tight = matches!(word, "," | "]" | ")" | ":" | "." | "..");
    let text = match (tight, view.touches(0) && word != "..") {
        (true, false) => word.to_owned(),
        (true, true) => format!("{word} "),
        (false, false) => format!(" {word}"),
        (false, true) => format!(" {word} "),
    };
    let before = view.at.checked_sub(1).map_or("", |last| view.slice(view.term_before(last), last));
    let shown = format!("{before}{text}{}{found}", if text.ends_with(' ') { "" } else { " " });
    Mistake::new(end..end, format!("`{word}` is missing here"), format!("expected `{word}`, found {seen}"))
        .help(format!("write `{}`", shown.trim()))
        .insert(end, text)
}

fn doubled(view: &View<'_>) -> Mistake {
    let found = view.word(0);
    // Words on both sides would become one.
    let place = if view.touches(1) { view.range(0) } else { view.with_gap(view.at, view.at) };
    let parts = view.touches(0) && view.touches(1) && is_word(view.word(-1)) && is_word(view.word(1));
    Mistake::new(view.range(0), "too many", format!("`{found}` is not expected here"))
        .help("leave it out")
        .replace(place, if parts { " " } else { "" })
}
