//! Settings as JSON, TOML and calls write them.

use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name};
use crate::parse::mistakes::within::Within;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[key_in_quotes, table, constructor, dictionary_of_costs];

/// `"devices": 4,`.
fn key_in_quotes(view: &View<'_>) -> Option<Mistake> {
    let key = view.word(0).strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))?;
    let known = keywords::beginnings(view.within());
    if !view.is_between_lines() || !known.iter().any(|word| word == key) {
        return None;
    }
    let last = if matches!(view.word(1), ":" | "=") { view.at + 1 } else { view.at };
    Some(
        Mistake::new(view.range(0), "a keyword in quotes", format!("`{key}` stands without quotes"))
            .help(format!("write `{key}`, and its value behind it"))
            .replace(view.span(view.at, last), key),
    )
}

/// `[pipeline]` and lines below it.
fn table(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(1);
    let is_header = view.word(0) == "[" && view.word(2) == "]" && view.within() == Within::File;
    let is_declared = matches!(word, "pipeline" | "schedule" | "layer" | "model");
    if !is_header || !is_declared || !view.begins_line(view.at) {
        return None;
    }
    let next = (view.at + 3..view.tokens.len()).find(|index| view.begins_line(*index) && view.token(*index) == "[");
    let last = next.unwrap_or(view.tokens.len()).saturating_sub(1);
    Some(
        Mistake::new(view.span(view.at, view.at + 2), "a table of TOML", format!("a {word} stands in braces"))
            .help(format!("write `{word} mine {{`, and `}}` at the end"))
            .replace(view.span(view.at, view.at + 2), format!("{word} mine {{"))
            .insert(view.span(last, last).end, "\n}"),
    )
}

/// `pipeline mine(devices = 4, microbatches = 8)`.
fn constructor(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "(" || view.word(-2) != "pipeline" {
        return None;
    }
    let closer = view.closer(view.at)?;
    let has_braces = view.token(closer + 1) == "{";
    let close = if has_braces { "" } else { " }" };
    let open = if view.touches(0) { " { " } else { "{ " };
    let open = if has_braces { "" } else { open };
    let mut mistake = Mistake::new(view.range(0), "`{` is expected here", "the settings of a pipeline stand in braces")
        .help("write `{` and `}`, and settings without marks: `devices 4`")
        .replace(view.range(0), open)
        .replace(view.span(closer, closer), close);
    for index in (view.at + 1..closer).filter(|index| view.opener_of(*index) == Some(view.at)) {
        let mark = view.span(index, index);
        let begins = |index: usize| is_name(view.token(index)) && view.token(index + 1) == "=";
        match view.token(index) {
            "," if begins(index + 1) || index + 1 == closer => mistake = mistake.remove(mark),
            "=" if matches!(view.token(index.saturating_sub(2)), "(" | ",") => {
                let gap = if view.spaced(index).len() > mark.len() { "" } else { " " };
                mistake = mistake.replace(view.spaced(index), gap);
            }
            _ => {}
        }
    }
    Some(mistake)
}

/// `cost = {F: 1, BW: 2}`.
fn dictionary_of_costs(view: &View<'_>) -> Option<Mistake> {
    let opener = view.at + 1;
    if view.word(0) != "=" || view.word(1) != "{" || !matches!(view.word(-1), "cost" | "slots" | "activation") {
        return None;
    }
    let closer = view.closer(opener)?;
    let keyword = view.word(-1);
    let meant = view.slice(opener + 1, closer.checked_sub(1)?).replace(':', " =").replace(['"', '\''], "");
    Some(
        Mistake::new(view.span(view.at, opener), "not needed", format!("the values of `{keyword}` stand in no braces"))
            .help(format!("write `{keyword} {meant}`"))
            .replace(view.range(-1).end..view.span(closer, closer).end, format!(" {meant}")),
    )
}
