//! Names: which letters they may have, and words that cannot be names.

use crate::parse::grammar::{Grammar, Rule};
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_number, is_word};
use pest::Parser;
use std::ops::Range;

/// Those that know names of the standard library.
pub(in crate::parse::mistakes) const PATHS: &[Detector] = &[path];
pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[letters, hyphens, reserved, reserved_in_expression, digits_first, quoted, missing, bracketed, two_words];

/// Letters that a keyboard has and the language has not, with others that are read in their place.
const LETTERS: &[(&str, &str)] = &[
    ("á", "a"),
    ("à", "a"),
    ("â", "a"),
    ("ä", "ae"),
    ("å", "a"),
    ("ç", "c"),
    ("é", "e"),
    ("è", "e"),
    ("ê", "e"),
    ("ë", "e"),
    ("í", "i"),
    ("î", "i"),
    ("ï", "i"),
    ("ñ", "n"),
    ("ó", "o"),
    ("ô", "o"),
    ("ö", "oe"),
    ("ø", "o"),
    ("ß", "ss"),
    ("ú", "u"),
    ("û", "u"),
    ("ü", "ue"),
    ("α", "alpha"),
    ("β", "beta"),
    ("γ", "gamma"),
    ("δ", "delta"),
    ("ε", "epsilon"),
    ("η", "eta"),
    ("θ", "theta"),
    ("λ", "lambda"),
    ("μ", "mu"),
    ("µ", "mu"),
    ("π", "pi"),
    ("ρ", "rho"),
    ("σ", "sigma"),
    ("τ", "tau"),
    ("φ", "phi"),
    ("ω", "omega"),
    ("Δ", "Delta"),
    ("Σ", "Sigma"),
];

/// `größe`: the word around the place, where the first of its letters is not one of the language.
fn letters(view: &View<'_>) -> Option<Mistake> {
    let index = (view.at.saturating_sub(1)..=view.at)
        .find(|index| is_word(view.token(*index)) && !view.token(*index).is_ascii())?;
    let word = view.token(index);
    let letter = |mark: char| {
        let known = LETTERS.iter().find(|(from, _)| from.starts_with(mark)).map(|(_, to)| *to);
        if mark.is_ascii() { mark.to_string() } else { known.unwrap_or("_").to_owned() }
    };
    let meant: String = word.chars().map(letter).collect();
    let strange = word.chars().find(|mark| !mark.is_ascii())?;
    let mistake =
        Mistake::new(view.span(index, index), "other letters", format!("names cannot contain the letter `{strange}`"))
            .help(format!("names are of the letters `a` to `z`, digits and `_`: write `{meant}`"));
    Some(everywhere(view, mistake, index, &meant))
}

/// A mistake with the changes that give a name another spelling, from a token on to the end of its declaration.
fn everywhere(view: &View<'_>, mut mistake: Mistake, first: usize, meant: &str) -> Mistake {
    let word = view.token(first);
    let end = end_of_declaration(view, first);
    for index in (first..end).filter(|index| view.token(*index) == word) {
        mistake = mistake.replace(view.span(index, index), meant);
    }
    mistake
}

/// The number of the token behind the declaration around a token.
fn end_of_declaration(view: &View<'_>, index: usize) -> usize {
    let is_next =
        |index: &usize| view.begins_line(*index) && view.indentation(*index) == 0 && is_word(view.token(*index));
    (index + 1..view.tokens.len()).find(is_next).unwrap_or(view.tokens.len())
}

/// `my-1f1b`.
fn hyphens(view: &View<'_>) -> Option<Mistake> {
    if !matches!(view.word(0), "-" | "." | "/") || !view.touches(0) || !view.touches(1) || !is_word(view.word(1)) {
        return None;
    }
    let first = view.at.checked_sub(1)?;
    let is_part = |index: usize| view.tokens.get(index).is_some_and(|token| view.tokens[index - 1].end == token.start);
    let mut last = view.at + 1;
    while matches!(view.token(last + 1), "-" | ".")
        && is_part(last + 1)
        && is_part(last + 2)
        && is_word(view.token(last + 2))
    {
        last += 2;
    }
    let written = view.slice(first, last);
    let introduced = matches!(
        view.token(first.checked_sub(1)?),
        "schedule" | "pipeline" | "layer" | "model" | "param" | "let" | "for" | "order" | "input" | "weight" | "data"
    );
    let meant = written.replace(['-', '.', '/'], "_");
    let mistake =
        Mistake::new(view.span(first, last), "not one name", format!("names cannot contain `{}`", view.word(0)))
            .help(format!("names are of letters, digits and `_`: write `{meant}`"));
    introduced.then(|| mistake.replace(view.span(first, last), meant))
}

/// Whether a word is no name, because the grammar needs it.
fn is_reserved(word: &str) -> bool {
    is_name(word) && word.is_ascii() && Grammar::parse(Rule::name, word).is_err()
}

/// `let model = 3`.
fn reserved(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let is_name = view.expects_name() && is_reserved(word) && view.follows_on_line(0);
    let is_argument = is_reserved(word)
        && view.word(1) == "="
        && view.opener(view.at, &["(", "{"]).is_some_and(|opener| view.token(opener) == "(");
    (is_name || is_argument).then(|| {
        let meant = format!("{word}_");
        Mistake::new(view.range(0), "a keyword", format!("`{word}` is a keyword, and cannot be a name"))
            .help(format!("write `{meant}`, or another name"))
            .replace(view.range(0), meant)
    })
}

/// `place s on model`, where `model_` stands for the name that could not be `model`.
fn reserved_in_expression(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    if !view.expects_expression() || !is_reserved(word) || !view.follows_on_line(0) {
        return None;
    }
    let meant = format!("{word}_");
    let is_declared = view.tokens.iter().take(view.at).any(|token| view.text[token.clone()] == meant);
    is_declared.then(|| {
        Mistake::new(view.range(0), "a keyword", format!("`{word}` is a keyword, and cannot be a name"))
            .help(format!("write `{meant}` here too"))
            .replace(view.range(0), meant)
    })
}

/// `let 2x = 3`.
fn digits_first(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    if !view.expects_name() || !is_number(word) || word.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let meant = format!("_{word}");
    let mistake = Mistake::new(view.range(0), "begins with a digit", "only names of schedules begin with a digit")
        .help(format!("write `{meant}`, or another name"));
    Some(everywhere(view, mistake, view.at, &meant))
}

/// `schedule "mine" {`.
fn quoted(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let name = word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))?;
    let is_plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let meant = name.replace('-', "_");
    (is_plain && (view.expects_name() || view.expects(&[Rule::schedule_call]))).then(|| {
        Mistake::new(view.range(0), "a text", "names stand without quotes")
            .help(format!("write `{meant}`"))
            .replace(view.range(0), meant)
    })
}

/// `std:1f1b` as the name of a schedule.
fn path(view: &View<'_>) -> Option<Mistake> {
    let is_path =
        view.word(-1) == "std" && matches!(view.word(0), ":" | ".") && matches!(view.word(-2), "schedule" | "model");
    let mut last = view.at + 1;
    while matches!(view.token(last + 1), "." | ":") && is_word(view.token(last + 2)) {
        last += 2;
    }
    let place: Range<usize> = view.range(-1).start..view.span(last, last).end;
    let meant = view.token(last);
    is_path.then(|| {
        Mistake::new(
            place.clone(),
            "not a name",
            format!("a {} of the standard library is named without `std`", view.word(-2)),
        )
        .help(format!("write `{meant}`"))
        .replace(place, meant)
    })
}

/// `schedule {` and `let = 3`.
fn missing(view: &View<'_>) -> Option<Mistake> {
    let keyword = view.word(-1);
    let what = match keyword {
        "schedule" | "pipeline" | "model" | "layer" => format!("a {keyword}"),
        "param" => "a parameter".to_owned(),
        "let" => "an expression".to_owned(),
        "order" => "the device of an order".to_owned(),
        _ => return None,
    };
    let end = view.range(-1).end;
    let name = if keyword == "order" { "d" } else { "mine" };
    let mark = if is_name(view.word(0)) || is_number(view.word(0)) { None } else { Some(view.word(0)) };
    (view.expects_name() && matches!(mark, Some("{" | "=")) | (mark == Some("(") && keyword != "order")).then(|| {
        Mistake::new(end..end, "a name is missing here", format!("{what} has no name"))
            .help(format!("write `{keyword} {name}`"))
            .insert(end, format!(" {name}"))
    })
}

/// `place (s) on s`.
fn bracketed(view: &View<'_>) -> Option<Mistake> {
    let name = view.word(1);
    if view.word(0) != "(" || view.word(2) != ")" || !is_name(name) || !view.expects_name() || view.at == 0 {
        return None;
    }
    let gap = if view.touches(0) { " " } else { "" };
    let place = view.range(0).start..view.range(2).end;
    Some(
        Mistake::new(place.clone(), "not in brackets", "a name stands without brackets here")
            .help(format!("write `{} {name}`", view.word(-1)))
            .replace(place, format!("{gap}{name}")),
    )
}

/// `schedule my schedule {`.
fn two_words(view: &View<'_>) -> Option<Mistake> {
    let is_declared = matches!(view.word(-2), "schedule" | "layer" | "model" | "pipeline") && is_word(view.word(-1));
    let is_second = is_word(view.word(0)) && matches!(view.word(1), "{" | "(") && view.follows_on_line(0);
    let meant = format!("{}_{}", view.word(-1), view.word(0));
    let place = view.range(-1).start..view.range(0).end;
    (is_declared && is_second && view.expects(&[Rule::open])).then(|| {
        Mistake::new(place.clone(), "two words", "a name is one word")
            .help(format!("write `{meant}`"))
            .replace(place, meant)
    })
}
