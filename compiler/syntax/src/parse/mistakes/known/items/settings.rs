//! Settings as JSON, TOML and calls write them.

use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name};
use crate::parse::mistakes::within::Within;

/// Those that know how other notations begin and separate what belongs together.
pub(in crate::parse::mistakes) const HEADERS: &[Detector] = &[
    yaml,
    json,
    extension,
    devices_as_range,
    memory_of_devices,
    arguments_in_braces,
    costs_in_braces,
    kind_of_value,
    percent,
];
pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[key_in_quotes, table, constructor, dictionary_of_costs, numbers_without_brackets];

/// `pipeline:` and lines that are indented.
fn yaml(view: &View<'_>) -> Option<Mistake> {
    let (word, header) = (view.word(-1), view.at.checked_sub(1)?);
    let is_declared = matches!(word, "pipeline" | "schedule" | "layer" | "model") && view.within() == Within::File;
    let indentation = view.indentation(header);
    let next = view.at + 1;
    let is_header = view.word(0) == ":" && is_declared && view.begins_line(header) && view.begins_line(next);
    if !is_header || view.indentation(next) <= indentation {
        return None;
    }
    let is_behind = |index: &usize| view.begins_line(*index) && view.indentation(*index) <= indentation;
    let last = (next..view.tokens.len()).find(is_behind).unwrap_or(view.tokens.len()).checked_sub(1)?;
    Some(
        Mistake::new(
            view.range(0),
            "a name and `{` are expected here",
            format!("a {word} has a name and stands in braces"),
        )
        .help(format!("write `{word} mine {{`, and `}}` at the end"))
        .replace(view.range(0), " mine {")
        .insert(view.span(last, last).end, format!("\n{}}}", " ".repeat(indentation))),
    )
}

/// `{ "devices": 4 }` as a file.
fn json(view: &View<'_>) -> Option<Mistake> {
    let is_file = view.at == 0 && view.word(0) == "{" && view.word(1).starts_with('"') && view.word(2) == ":";
    is_file.then(|| {
        Mistake::new(view.range(0), "no declaration", "settings belong in a declaration")
            .help("write `pipeline mine {`, and settings without marks: `devices 4`")
            .replace(view.range(0), "pipeline mine {")
    })
}

/// `schedule mine extends gpipe {`.
fn extension(view: &View<'_>) -> Option<Mistake> {
    let kind = view.word(-2);
    let is_mark = matches!(view.word(0), "extends" | "inherits" | "from" | ":" | "<" | "uses" | "implements");
    let is_declared = matches!(kind, "schedule" | "pipeline" | "layer" | "model") && view.within() == Within::File;
    (is_mark && is_declared && is_name(view.word(1)) && view.word(2) == "{").then(|| {
        let other = view.word(1);
        let place = view.span(view.at, view.at + 1);
        Mistake::new(place.clone(), "not needed", format!("a {kind} does not extend another one"))
            .help(format!(
                "leave it out, and write the lines of `{other}` here (`pipec std {other}` prints a standard one)"
            ))
            .remove(view.range(-1).end..place.end)
    })
}

/// `devices 0..4`.
fn devices_as_range(view: &View<'_>) -> Option<Mistake> {
    let is_range = view.word(0) == "." && view.word(1) == "." && view.word(-1) == "0";
    (is_range && matches!(view.word(-2), "devices" | "microbatches") && view.follows_on_line(2)).then(|| {
        let (keyword, count) = (view.word(-2), view.word(2));
        Mistake::new(
            view.range(-1).start..view.range(2).end,
            "not a number",
            format!("`{keyword}` says how many there are"),
        )
        .help(format!("write `{keyword} {count}`"))
        .remove(view.range(-1).start..view.range(2).start)
    })
}

/// `require bubble <= 30 percent`.
fn percent(view: &View<'_>) -> Option<Mistake> {
    let is_share = matches!(view.word(0), "percent" | "pct") && view.within() == Within::Pipeline;
    let number: u32 = view.word(-1).parse().ok().filter(|_| is_share)?;
    let share = format!("{}.{:02}", number / 100, number % 100);
    let place = view.range(-1).start..view.range(0).end;
    Some(
        Mistake::new(place.clone(), "a percentage", "shares are numbers, not percentages")
            .help(format!("write `{share}`"))
            .replace(place, share),
    )
}

/// `devices 4 x 64MiB` and `devices 4, 64MiB`.
fn memory_of_devices(view: &View<'_>) -> Option<Mistake> {
    let is_line = view.within() == Within::Pipeline && view.token(view.first_of_line(view.at)) == "devices";
    let is_mark = matches!(view.word(0), "x" | "X" | "," | "of" | "with" | "@");
    let size = view.word(1);
    (is_line && is_mark && size.starts_with(|mark: char| mark.is_ascii_digit()) && size.ends_with('B')).then(|| {
        Mistake::new(view.range(0), "`memory` is expected here", "the memory of devices has a word before it")
            .help(format!("write `memory {size}`"))
            .replace(view.range(-1).end..view.range(1).start, " memory ")
    })
}

/// `model gpt { blocks = 2 }`.
fn arguments_in_braces(view: &View<'_>) -> Option<Mistake> {
    let is_call = matches!(view.word(-2), "model" | "schedule" | "optimizer") && is_name(view.word(-1));
    let is_list = view.word(0) == "{" && matches!(view.word(2), "=" | ":");
    if !is_list || !is_call || !matches!(view.within(), Within::Pipeline | Within::Train) {
        return None;
    }
    let closer = view.closer(view.at)?;
    let inside = view.slice(view.at + 1, closer.checked_sub(1)?);
    Some(
        Mistake::new(view.range(0), "`(` is expected here", "arguments stand in round brackets")
            .help(format!("write `{}({inside})`", view.word(-1)))
            .replace(view.range(-1).end..view.range(1).start, "(")
            .replace(view.span(closer - 1, closer - 1).end..view.span(closer, closer).end, ")"),
    )
}

/// `cost { F = 1 }`.
fn costs_in_braces(view: &View<'_>) -> Option<Mistake> {
    let keyword = view.word(-1);
    let is_list = matches!(keyword, "cost" | "slots" | "activation") && matches!(view.word(0), "{" | "(" | "[");
    let closer = view.closer(view.at).filter(|closer| is_list && *closer > view.at + 1)?;
    let inside = view.slice(view.at + 1, closer - 1);
    Some(
        Mistake::new(view.range(0), "not needed", format!("`{keyword}` takes its values without brackets"))
            .help(format!("write `{keyword} {inside}`"))
            .remove(view.range(0).start..view.range(1).start)
            .remove(view.spaced(closer)),
    )
}

/// `zero stage 1` and `offload optimizer to cpu`.
fn kind_of_value(view: &View<'_>) -> Option<Mistake> {
    let line = view.token(view.first_of_line(view.at));
    if view.within() != Within::Pipeline {
        return None;
    }
    match (line, view.word(-1), view.word(0)) {
        ("zero", "stage" | "level", _) if view.word(-2) == "zero" && view.follows_on_line(0) => {
            let word = view.word(-1);
            Some(
                Mistake::new(view.range(-1), "not needed", format!("`zero` takes its stage without `{word}`"))
                    .help(format!("write `zero {}`", view.word(0)))
                    .remove(view.range(-1).start..view.range(0).start),
            )
        }
        ("offload", "offload", "none" | "nothing" | "off") => Some(
            Mistake::new(view.range(0), "not needed", "`offload` names what leaves the devices")
                .help("leave the line out")
                .remove(view.range(-1).start..view.range(0).end),
        ),
        ("offload", _, "to" | "on" | "into") if view.follows_on_line(1) => {
            let last = view.last_of_line(view.at);
            Some(
                Mistake::new(
                    view.span(view.at, last),
                    "not needed",
                    "what is offloaded goes to the memory of the hosts",
                )
                .help("leave the place out")
                .remove(view.spaced(view.at).start..view.span(last, last).end),
            )
        }
        _ => None,
    }
}

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

/// `cut 3, 2, 2, 1`.
fn numbers_without_brackets(view: &View<'_>) -> Option<Mistake> {
    let setting = view.word(-2);
    let is_list =
        view.word(0) == "," && matches!(setting, "cut" | "slices") && view.begins_line(view.at.checked_sub(2)?);
    is_list.then(|| {
        let (first, last) = (view.at - 1, view.last_of_line(view.at));
        let numbers = view.slice(first, last);
        Mistake::new(view.span(first, last), "numbers without brackets", format!("`{setting}` takes a list"))
            .help(format!("write `{setting} [{numbers}]`"))
            .replace(view.span(first, last), format!("[{numbers}]"))
    })
}
