//! Parts of stages: a lane without `on`, no parts, parts without a name for the stage, a part behind its brackets.

use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    parts_of_no_stage,
    no_parts,
    lane_without_on,
    part_behind,
    part_of_statement,
    microbatch_of_statement,
    part_without_stage,
    lane_with_more,
];

/// `parts = attention, mlp`.
fn parts_of_no_stage(view: &View<'_>) -> Option<Mistake> {
    (view.word(-1) == "parts" && view.word(0) == "=").then(|| {
        Mistake::new(view.range(0), "the name of a stage is missing", "`parts` names a stage before its parts")
            .help("write `parts s = ..`, where `s` is each stage")
            .insert(view.range(-1).end, " s")
    })
}

/// `parts s =`, and the next line.
fn no_parts(view: &View<'_>) -> Option<Mistake> {
    let is_empty = view.word(-4) == "parts" && view.word(-2) == "=" && view.begins_line(view.at.checked_sub(1)?);
    is_empty.then(|| {
        Mistake::new(view.range(-2), "no part behind it", "`parts` names no part")
            .help("write parts behind `=`: `parts s = layers`")
            .insert(view.range(-2).end, " layers")
            .guess()
    })
}

/// `parts s = attention, dispatch link`.
fn lane_without_on(view: &View<'_>) -> Option<Mistake> {
    let (part, lane) = (view.word(-1), view.word(0));
    let is_part = view.token(view.first_of_line(view.at)) == "parts" && is_name(part) && is_name(lane);
    (is_part && view.follows_on_line(0) && !matches!(part, "parts" | "on" | "then" | "else")).then(|| {
        Mistake::new(view.range(0), "a second name", format!("`{lane}` follows `{part}` without `on` or `,`"))
            .help(format!("write `{part} on {lane}` for a part on a lane, and `{part}, {lane}` for two parts"))
            .insert(view.range(0).start, "on ")
            .guess()
    })
}

/// `F[d].attention`.
fn part_behind(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "." || view.word(-1) != "]" || !is_name(view.word(1)) {
        return None;
    }
    let opener = view.opener_of(view.at.checked_sub(1)?)?;
    let kind = view.token(opener.checked_sub(1)?);
    let part = view.word(1);
    matches!(kind, "F" | "B" | "W" | "BW" | "R").then(|| {
        Mistake::new(view.span(view.at, view.at + 1), "behind the brackets", "a part stands before the brackets")
            .help(format!("write `{kind}.{part}{}`", view.slice(opener, view.at - 1)))
            .insert(view.span(opener, opener).start, format!(".{part}"))
            .remove(view.span(view.at, view.at + 1))
    })
}

/// `reduce.attention[s]`.
fn part_of_statement(view: &View<'_>) -> Option<Mistake> {
    let statement = view.word(-1);
    let is_one = matches!(statement, "reduce" | "update" | "gather" | "evict" | "fetch");
    (is_one && view.word(0) == "." && is_name(view.word(1)) && view.word(2) == "[").then(|| {
        let part = view.span(view.at, view.at + 1);
        Mistake::new(part.clone(), "names a part", format!("`{statement}` is of a whole stage, not of a part"))
            .help(format!("write `{statement}[..]`"))
            .remove(part)
    })
}

/// `reduce[0, 1]`.
fn microbatch_of_statement(view: &View<'_>) -> Option<Mistake> {
    let is_inside = view.word(0) == "," && matches!(view.word(-3), "reduce" | "update" | "gather");
    let closer = view.closer(view.at.checked_sub(2)?).filter(|_| is_inside && view.word(-2) == "[")?;
    let (statement, more) = (view.word(-3), view.span(view.at, closer.checked_sub(1)?));
    Some(
        Mistake::new(more.clone(), "more than a stage", format!("`{statement}` names a stage, and no microbatch"))
            .help(format!("write `{statement}[{}]`", view.word(-1)))
            .remove(more),
    )
}

/// `recompute F.attention if s < 2`.
fn part_without_stage(view: &View<'_>) -> Option<Mistake> {
    let is_part = view.word(-2) == "." && is_name(view.word(-1)) && view.word(0) == "if";
    (is_part && view.token(view.first_of_line(view.at)) == "recompute").then(|| {
        let name = view.slice(view.at - 3, view.at - 1);
        Mistake::new(view.range(0), "a condition without names", format!("`{name}` has no name for the stage"))
            .help(format!("write `{name}[s] if ..`"))
            .insert(view.range(-1).end, "[s]")
    })
}

/// `lane link, host`.
fn lane_with_more(view: &View<'_>) -> Option<Mistake> {
    let is_list = view.word(-2) == "lane" && view.word(0) == "," && is_name(view.word(1));
    is_list.then(|| {
        Mistake::new(view.range(0), "behind the name of a lane", "each lane has a line of its own")
            .help(format!("write `lane {}` and `lane {}`", view.word(-1), view.word(1)))
            .replace(view.range(-1).end..view.range(0).end, " lane")
    })
}
