//! Places, periods, start slots and devices, said in other words.

use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_number, is_word};
use crate::parse::mistakes::within::Within;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    indexed_place,
    place_of_one_stage,
    unit_of_period,
    period_behind,
    word_before_slot,
    word_for_at,
    word_behind_at,
    fill_before,
    devices_of_order,
    loop_around_order,
];

/// Words for the time at which something starts.
const TIMES: &[&str] = &["slot", "slots", "time", "t", "tick", "step", "cycle", "clock"];

/// `place[s] = s`.
fn indexed_place(view: &View<'_>) -> Option<Mistake> {
    if view.word(-1) != "place" || view.word(0) != "[" {
        return None;
    }
    let closer = view.closer(view.at)?;
    let name = view.slice(view.at + 1, closer.checked_sub(1)?);
    let mark = closer + 1;
    (is_name(name) && matches!(view.token(mark), "=" | ":")).then(|| {
        Mistake::new(view.span(view.at, mark), "not needed", "a place is written with `on`")
            .help(format!("write `place {name} on ..`"))
            .replace(view.range(-1).end..view.span(mark, mark).end, format!(" {name} on"))
    })
}

/// `place 0 on 1`.
fn place_of_one_stage(view: &View<'_>) -> Option<Mistake> {
    (view.word(-1) == "place" && is_number(view.word(0))).then(|| {
        Mistake::new(view.range(0), "not a name", "`place` stands once, for all stages")
            .help("write `place s on ..`, where `s` is each stage: `place s on if s == 0 then 0 else 1`")
            .replace(view.range(0), "s")
            .guess()
    })
}

/// `block every 3 slots {`.
fn unit_of_period(view: &View<'_>) -> Option<Mistake> {
    let is_unit = TIMES.contains(&view.word(0)) || TIMES.contains(&view.word(0).trim_end_matches('s'));
    (is_unit && view.word(1) == "{" && is_of(view, "block")).then(|| {
        let word = view.word(0);
        Mistake::new(view.range(0), "not needed", format!("`{word}` stands between a number and `{{`"))
            .help(format!("leave `{word}` out: a block counts slots"))
            .remove(view.spaced(view.at))
    })
}

/// Whether the line of the place begins with a word.
fn is_of(view: &View<'_>, word: &str) -> bool {
    view.token(view.first_of_line(view.at)) == word
}

/// `block { .. } every 3`.
fn period_behind(view: &View<'_>) -> Option<Mistake> {
    if view.word(-1) != "block" || view.word(0) != "{" {
        return None;
    }
    let every = view.closer(view.at)? + 1;
    let last = view.expression_behind(every + 1).filter(|_| view.token(every) == "every")?;
    let period = view.slice(every, last);
    Some(
        Mistake::new(view.span(every, last), "not at this place", "`every` stands before the braces of a block")
            .help(format!("write `block {period} {{`"))
            .insert(view.range(0).start, format!("{period} "))
            .remove(view.spaced(every).start..view.span(last, last).end),
    )
}

/// `F[s] starts at s`.
fn word_before_slot(view: &View<'_>) -> Option<Mistake> {
    let is_before = view.within() == Within::Block && view.word(-1) == "]" && is_name(view.word(0));
    (is_before && matches!(view.word(1), "at" | "fill")).then(|| {
        let (word, next) = (view.word(0), view.word(1));
        Mistake::new(view.range(0), "not needed", format!("`{word}` stands between a task and `{next}`"))
            .help(format!("leave `{word}` out"))
            .remove(view.spaced(view.at))
    })
}

/// `F[s] slot s`.
fn word_for_at(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let is_start = TIMES.contains(&word) || matches!(word, "start" | "starts" | "begin" | "begins" | "when" | "on");
    let is_slot = view.within() == Within::Block && view.word(-1) == "]" && is_start;
    (is_slot && (is_word(view.word(1)) || view.word(1) == "(")).then(|| {
        Mistake::new(view.range(0), "`at` is expected here", format!("a start slot is not written with `{word}`"))
            .help("write `at`")
            .replace(view.range(0), "at")
    })
}

/// `F[s] at time s`.
fn word_behind_at(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(-1);
    let is_slot = view.within() == Within::Block && view.word(-2) == "at" && TIMES.contains(&word);
    (is_slot && view.follows_on_line(0) && (is_word(view.word(0)) || view.word(0) == "(")).then(|| {
        Mistake::new(view.range(-1), "not needed", format!("`{word}` stands between `at` and a slot"))
            .help(format!("leave `{word}` out"))
            .remove(view.range(-1).start..view.range(0).start)
    })
}

/// `fill W[s]`.
fn fill_before(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "fill" || view.word(2) != "[" || view.within() != Within::Block {
        return None;
    }
    let closer = view.closer(view.at + 2)?;
    let task = view.slice(view.at + 1, closer);
    (!matches!(view.token(closer + 1), "at" | "fill")).then(|| {
        Mistake::new(view.range(0), "not at this place", "`fill` stands behind its task")
            .help(format!("write `{task} fill`"))
            .remove(view.range(0).start..view.range(1).start)
            .insert(view.span(closer, closer).end, " fill")
    })
}

/// `order d in 0..D {`.
fn devices_of_order(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "in" || view.word(-2) != "order" {
        return None;
    }
    let brace = (view.at..view.tokens.len()).find(|index| view.token(*index) == "{")?;
    let place = view.span(view.at, brace.checked_sub(1)?);
    let written = &view.text[place.clone()];
    Some(
        Mistake::new(place.clone(), "not needed", "`order` already stands for every device")
            .help(format!("leave `{written}` out"))
            .remove(view.range(-1).end..place.end),
    )
}

/// `for d in 0..D { order d { .. } }`.
fn loop_around_order(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "for" || view.within() != Within::Schedule {
        return None;
    }
    let brace = (view.at..view.tokens.len()).find(|index| view.token(*index) == "{")?;
    let closer = view.closer(brace).filter(|_| view.token(brace + 1) == "order")?;
    let next = view.span(brace + 1, brace + 1).start;
    Some(
        Mistake::new(view.span(view.at, brace), "not needed", "`order` already stands for every device")
            .help("leave the loop out")
            .remove(view.range(0).start..next)
            .remove(view.spaced(closer)),
    )
}
