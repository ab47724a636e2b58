//! `frozen` and `reads` lines that lack the name of the stage, or its condition.

use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_number};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[frozen_range, frozen_number, frozen_without_if, reads_without_from, reads_without_name];

/// `frozen 0..2`.
fn frozen_range(view: &View<'_>) -> Option<Mistake> {
    let last = (0..4).take_while(|offset| *offset == 0 || view.follows_on_line(*offset)).last()?;
    let n_more = usize::try_from(last).ok()?;
    let (first, end) = view.slice(view.at, view.at + n_more).split_once("..")?;
    (view.word(-1) == "frozen" && is_number(first) && is_operand(end)).then(|| {
        let condition = if first == "0" { format!("s < {end}") } else { format!("s >= {first} and s < {end}") };
        condition_for(view, n_more, &format!("s if {condition}"), "a range")
    })
}

/// `frozen 0`.
fn frozen_number(view: &View<'_>) -> Option<Mistake> {
    let is_alone = is_number(view.word(0)) && !view.follows_on_line(1);
    (view.word(-1) == "frozen" && is_alone)
        .then(|| condition_for(view, 0, &format!("s if s == {}", view.word(0)), "a number"))
}

/// `frozen s < 2`.
fn frozen_without_if(view: &View<'_>) -> Option<Mistake> {
    let name = view.word(-1);
    let compares = matches!(view.word(0), "<" | "<=" | ">" | ">=" | "==" | "!=" | "%");
    (view.word(-2) == "frozen" && is_name(name) && compares).then(|| {
        Mistake::new(view.range(0), "`if` is missing", "`frozen` names the stage before its condition")
            .help(format!("write `frozen {name} if {name} {} ..`", view.word(0)))
            .insert(view.range(-1).end, format!(" if {name}"))
    })
}

/// `reads s - 1`.
fn reads_without_from(view: &View<'_>) -> Option<Mistake> {
    let name = view.word(-1);
    let goes_on = matches!(view.word(0), "-" | "," | "+");
    (view.word(-2) == "reads" && is_name(name) && name != "from" && goes_on).then(|| {
        Mistake::new(view.range(0), "the reading stage is missing", "`reads` names the reading stage first")
            .help(format!("write `reads {name} from {name} {} ..`", view.word(0)))
            .insert(view.range(-1).end, format!(" from {name}"))
    })
}

/// `reads from s - 1`.
fn reads_without_name(view: &View<'_>) -> Option<Mistake> {
    (view.word(-2) == "reads" && view.word(-1) == "from" && is_name(view.word(0))).then(|| {
        let name = view.word(0);
        Mistake::new(view.range(-1), "the reading stage is missing", "`reads` names the reading stage first")
            .help(format!("write `reads {name} from {name} ..`"))
            .insert(view.range(-1).start, format!("{name} "))
    })
}

/// Replaces the token at the place, and `n_more` behind it, with a condition.
fn condition_for(view: &View<'_>, n_more: usize, text: &str, written: &str) -> Mistake {
    let place = view.span(view.at, view.at + n_more);
    Mistake::new(place.clone(), "not a condition", format!("`frozen` takes a condition, not {written}"))
        .help(format!("write `frozen {text}`"))
        .replace(place, text)
}

/// Whether a word is a number or a name.
fn is_operand(word: &str) -> bool {
    is_number(word) || is_name(word)
}
