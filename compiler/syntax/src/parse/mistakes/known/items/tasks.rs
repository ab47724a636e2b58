//! Tasks: their letters, their brackets, and what stands between them.

use crate::parse::foreign;
use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_word};
use crate::parse::mistakes::within::Within;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    other_letter,
    glued,
    microbatch_before,
    slot_in_order,
    point_inside,
    round_brackets,
    no_brackets,
    no_stage,
    stages_of_cost,
    two_brackets,
    range_of_stages,
    named_part,
    times,
    between,
    inferred,
    bare_braces,
];

/// Whether a token is the letter of a kind.
fn is_kind(word: &str) -> bool {
    matches!(word, "F" | "B" | "W" | "BW" | "R")
}

/// `f[d]`, `forward[d]`, `cost backward = 2`.
fn other_letter(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let kinds = [Rule::kind, Rule::task, Rule::block_task, Rule::pair, Rule::duration];
    let others = [Rule::cost_name, Rule::cost_entry, Rule::cost_pair, Rule::activation_name, Rule::activation_entry];
    let is_at = view.expects(&kinds) || view.expects(&others);
    // `w = w + 1` and `w += 1` name a number, and no kind of task.
    let is_changed = matches!(view.word(1), "+" | "-" | "*" | "/") && matches!(view.word(2), "=" | "+" | "-");
    let is_given = (view.word(1) == "=" || is_changed) && view.within() == Within::Order;
    let (letter, what) = foreign::letter(word).filter(|(letter, _)| is_at && !is_given && *letter != word)?;
    let message = format!("unknown kind of task `{word}`");
    Some(
        Mistake::new(view.range(0), "not a kind of task", message)
            .help(format!("write `{letter}` for {what}"))
            .replace(view.range(0), letter),
    )
}

/// `F0` and `F_d`.
fn glued(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let expected = view.expects(&[Rule::kind, Rule::task, Rule::block_task, Rule::pair]);
    let stage = word.strip_prefix("BW").or_else(|| word.strip_prefix(['F', 'B', 'W', 'R']))?;
    let kind = &word[..word.len() - stage.len()];
    let stage = stage.trim_start_matches('_');
    if !expected || stage.is_empty() || view.word(1) == "[" || stage.len() > 2 {
        return None;
    }
    let meant = format!("{kind}[{stage}]");
    Some(
        Mistake::new(view.range(0), "not a task", format!("the stage of a task stands in brackets, not in `{word}`"))
            .help(format!("write `{meant}`"))
            .replace(view.range(0), meant),
    )
}

/// `F_m[d]`.
fn microbatch_before(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let expected = view.expects(&[Rule::kind, Rule::task, Rule::block_task, Rule::pair]);
    let (kind, microbatch) = word.split_once('_').filter(|(kind, rest)| is_kind(kind) && is_word(rest))?;
    let closer = view.closer(view.at + 1).filter(|_| expected && view.word(1) == "[")?;
    let stage = view.slice(view.at + 2, closer.checked_sub(1)?);
    let meant = format!("{kind}[{stage}, {microbatch}]");
    Some(
        Mistake::new(view.range(0), "not a task", "the microbatch of a task stands in its brackets")
            .help(format!("write `{meant}`"))
            .replace(view.span(view.at, closer), meant),
    )
}

/// `F[d] at 3` in an order.
fn slot_in_order(view: &View<'_>) -> Option<Mistake> {
    let is_slot = view.word(0) == "at" && view.word(-1) == "]" && view.within() == Within::Order;
    let last = view.expression_behind(view.at + 1).filter(|_| is_slot)?;
    Some(
        Mistake::new(view.span(view.at, last), "not needed", "a task of an order has no start slot")
            .help("leave it out: an order says what comes after what, and a `block` has start slots")
            .remove(view.spaced(view.at).start..view.span(last, last).end),
    )
}

/// `F[d.m]` and `F[d:m]`.
fn point_inside(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["[", "{", "("])?;
    let is_task = view.token(opener) == "[" && is_kind(view.token(opener.checked_sub(1)?));
    let is_mark = matches!(view.word(0), "." | ":" | ";" | "/") && view.word(1) != view.word(0);
    (is_task && is_mark && matches!(view.within(), Within::Order | Within::Block) && is_word(view.word(1))).then(|| {
        let mark = view.word(0);
        Mistake::new(view.range(0), "`,` is expected here", format!("stage and microbatch are not parted by `{mark}`"))
            .help(format!("write `{}, {}`", view.word(-1), view.word(1)))
            .replace(view.range(-1).end..view.range(1).start, ", ")
    })
}

/// `F(d)` and `F{d}`.
fn round_brackets(view: &View<'_>) -> Option<Mistake> {
    let is_cost = matches!(view.word(-1), "comm" | "copy") && view.expects(&[Rule::open_square, Rule::cost_link]);
    let is_task = is_kind(view.word(-1)) && view.expects(&[Rule::open_square, Rule::cost_stages]);
    if !(is_task || is_cost) || !matches!(view.word(0), "(" | "{") {
        return None;
    }
    let what = if is_cost { "the devices of a cost stand" } else { "the stage of a task stands" };
    let closer = view.closer(view.at)?;
    let stage = view.slice(view.at + 1, closer.checked_sub(1)?);
    let kind = view.word(-1);
    Some(
        Mistake::new(view.range(0), "`[` is expected here", format!("{what} in square brackets"))
            .help(format!("write `{kind}[{stage}]`"))
            .replace(view.range(0), "[")
            .replace(view.span(closer, closer), "]"),
    )
}

/// `F` and `F d`.
fn no_brackets(view: &View<'_>) -> Option<Mistake> {
    let is_task = matches!(view.within(), Within::Order | Within::Block);
    if !is_task || !is_kind(view.word(-1)) || !view.expects(&[Rule::open_square]) || view.word(0) == "]" {
        return None;
    }
    let kind = view.word(-1);
    let end = view.range(-1).end;
    let is_stage =
        is_word(view.word(0)) && view.follows_on_line(0) && !is_kind(view.word(0)) && !is_connective(view.word(0));
    if is_stage && view.word(1) != "[" {
        let stage = view.word(0);
        return Some(
            Mistake::new(view.range(0), "in brackets", "the stage of a task stands in square brackets")
                .help(format!("write `{kind}[{stage}]`"))
                .replace(end..view.range(0).end, format!("[{stage}]")),
        );
    }
    let variable = variable(view);
    Some(
        Mistake::new(view.range(-1), "of which stage?", format!("`{kind}` does not say of which stage"))
            .help(format!("write `{kind}[{variable}]`"))
            .insert(end, format!("[{variable}]")),
    )
}

/// `F[]` and `F[d,]`.
fn no_stage(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["[", "{", "("])?;
    if view.word(0) == "]" && view.word(-1) == "," && opener > 0 && is_kind(view.token(opener - 1)) {
        return Some(
            Mistake::new(view.range(-1), "too many", "nothing stands behind this `,`")
                .help("leave it out, or write the microbatch behind it")
                .remove(view.range(-1)),
        );
    }
    if view.word(0) != "]" || view.word(-1) != "[" || !is_kind(view.word(-2)) {
        return None;
    }
    let (kind, variable) = (view.word(-2), variable(view));
    Some(
        Mistake::new(
            view.range(-2).start..view.range(0).end,
            "of which stage?",
            format!("`{kind}` does not say of which stage"),
        )
        .help(format!("write `{kind}[{variable}]`"))
        .insert(view.range(0).start, variable),
    )
}

/// `cost F[1, 3] = 2`.
fn stages_of_cost(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["[", "{", "("])?;
    let kind = opener.checked_sub(1)?;
    if view.word(0) != "," || view.token(opener) != "[" || view.within() != Within::Pipeline {
        return None;
    }
    let closer = view.closer(opener)?;
    let last = view.expression_behind(closer + 2).filter(|_| view.token(closer + 1) == "=")?;
    let (name, value) = (view.token(kind), view.slice(closer + 2, last));
    let entries: Vec<String> =
        view.arguments(opener, closer).iter().map(|stage| format!("{name}[{stage}] = {value}")).collect();
    let meant = entries.join(", ");
    Some(
        Mistake::new(view.span(opener, closer), "several stages", "a cost is for one stage, or for a range of stages")
            .help(format!("write `{meant}`"))
            .replace(view.span(kind, last), meant),
    )
}

fn is_connective(word: &str) -> bool {
    matches!(word, "at" | "fill" | "on" | "if" | "else" | "for" | "repeat" | "let" | "then")
}

/// What the stage is called where a task stands: the device of an order, or `s`.
fn variable<'t>(view: &View<'t>) -> &'t str {
    let order = (0..view.at).rev().find(|index| matches!(view.token(*index), "order" | "block" | "place"));
    let name = order.map_or("s", |order| if view.token(order) == "block" { "s" } else { view.token(order + 1) });
    if is_name(name) { name } else { "s" }
}

/// `F[d][m]`.
fn two_brackets(view: &View<'_>) -> Option<Mistake> {
    if !matches!(view.word(0), "[" | "(") || view.word(-1) != "]" || !view.touches(0) {
        return None;
    }
    let opener = view.opener_of(view.at - 1)?;
    let closer = view.closer(view.at)?;
    if !is_kind(view.token(opener.checked_sub(1)?)) {
        return None;
    }
    let inside = format!("{}, {}", view.slice(opener + 1, view.at - 2), view.slice(view.at + 1, closer - 1));
    Some(
        Mistake::new(view.range(0), "not another bracket", "stage and microbatch stand in one bracket")
            .help(format!("write `{}[{inside}]`", view.token(opener - 1)))
            .replace(view.range(-1).start..view.range(0).end, ", ")
            .replace(view.span(closer, closer), "]"),
    )
}

/// `F[0..D]`.
fn range_of_stages(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["[", "{", "("])?;
    let kind = opener.checked_sub(1)?;
    let is_range = view.word(0) == "." && view.word(1) == "." || view.word(0) == ":" && !is_name(view.word(1));
    if view.token(opener) != "[" || !is_kind(view.token(kind)) || !is_range || view.within() != Within::Order {
        return None;
    }
    let closer = view.closer(opener)?;
    let behind = view.at + if view.word(0) == ":" { 1 } else { 2 };
    let first = if opener + 1 < view.at { view.slice(opener + 1, view.at - 1) } else { "0" };
    let last = if behind < closer { view.slice(behind, closer - 1) } else { "S" };
    let meant = format!("for k in {first}..{last} {{ {}[k] }}", view.token(kind));
    Some(
        Mistake::new(
            view.range(0).start..view.span(behind - 1, behind - 1).end,
            "not one stage",
            "a task has one stage",
        )
        .help(format!("write `{meant}`"))
        .replace(view.span(kind, closer), meant),
    )
}

/// `F[stage = d]`.
fn named_part(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["[", "{", "("])?;
    let is_named = matches!(view.word(0), "=" | ":") && is_name(view.word(-1)) && view.token(opener) == "[";
    if !is_named || !is_kind(view.token(opener.checked_sub(1)?)) || view.within() != Within::Order {
        return None;
    }
    let name = view.word(-1);
    let behind = view.range(1).start;
    Some(
        Mistake::new(
            view.range(-1).start..view.range(0).end,
            "not needed",
            "stage, microbatch and slice have no names",
        )
        .help(format!("leave `{name} {}` out: the stage comes first, then the microbatch", view.word(0)))
        .remove(view.range(-1).start..behind),
    )
}

/// `F[d] * 3`, `F[d] x 3` and `3 * F[d]`.
fn times(view: &View<'_>) -> Option<Mistake> {
    if view.within() != Within::Order {
        return None;
    }
    if matches!(view.word(0), "*" | "x") && view.word(-1) == "]" {
        let opener = view.opener_of(view.at.checked_sub(1)?)?;
        let kind = opener.checked_sub(1)?;
        let last = view.expression_behind(view.at + 1)?;
        let (task, count) = (view.slice(kind, view.at - 1), view.slice(view.at + 1, last));
        return Some(repeated(view, kind, last, task, count));
    }
    let mark = view.at + 1;
    if !is_word(view.word(0)) || !matches!(view.token(mark), "*" | "x") || !is_kind(view.token(mark + 1)) {
        return None;
    }
    let last = view.closer(mark + 2)?;
    Some(repeated(view, view.at, last, view.slice(mark + 1, last), view.word(0)))
}

fn repeated(view: &View<'_>, first: usize, last: usize, task: &str, count: &str) -> Mistake {
    let meant = format!("repeat {count} {{ {task} }}");
    Mistake::new(view.span(first, last), "a task is not a number", "tasks cannot be multiplied")
        .help(format!("write `{meant}`"))
        .replace(view.span(first, last), meant)
}

/// `F[d] + BW[d]`, `F[d], BW[d]`, `F[d] -> BW[d]`.
fn between(view: &View<'_>) -> Option<Mistake> {
    let is_behind_task = view.word(-1) == "]" && matches!(view.within(), Within::Order | Within::Block);
    let arrow = (view.word(0) == "-" || view.word(0) == "=") && view.word(1) == ">";
    let doubled = matches!(view.word(0), "&" | "|") && view.word(1) == view.word(0);
    let last = view.at + usize::from(arrow || doubled);
    let mark = view.slice(view.at, last);
    if !is_behind_task || !is_kind(view.token(last + 1)) {
        return None;
    }
    let mistake = Mistake::new(view.span(view.at, last), "too many", format!("`{mark}` stands between two tasks"));
    match mark {
        "&" => Some(
            Mistake::new(view.span(view.at, last), "one too many", "`&` joins two tasks, and no third")
                .help("write the third task behind them, with nothing between")
                .remove(view.with_gap(view.at, last)),
        ),
        "+" | "&&" | "|" | "||" | "and" => Some(
            mistake
                .help("write `&` between a forward and a backward that share the device, and nothing between others")
                .replace(view.span(view.at, last), "&"),
        ),
        "," | ";" | "->" | "=>" | ">" | "then" => Some(
            mistake
                .help("write tasks one after the other, with nothing between them")
                .remove(view.spaced(view.at).start..view.span(last, last).end),
        ),
        _ => None,
    }
}

/// `send[d]`, `wait()` and what else the compiler adds.
fn inferred(view: &View<'_>) -> Option<Mistake> {
    let is_call = matches!(view.word(1), "(" | "[");
    let is_behind = matches!(view.word(0), "(" | "[") && is_name(view.word(-1));
    let first = if is_behind { view.at.checked_sub(1)? } else { view.at };
    if view.within() != Within::Order {
        return None;
    }
    let word = view.token(first);
    let help = foreign::inferred(word)?;
    let last = if is_call || is_behind { view.closer(first + 1)? } else { first };
    Some(
        Mistake::new(view.span(first, last), "not a task", format!("`{word}` is not written in an order"))
            .help(format!("leave it out: {help}"))
            .remove(view.with_gap(first, last)),
    )
}

/// `{ F[d] BW[d] }` without a word before it.
fn bare_braces(view: &View<'_>) -> Option<Mistake> {
    let closer = view.closer(view.at).filter(|_| view.word(0) == "{" && view.within() == Within::Order)?;
    (view.is_between_lines() && !view.expects_operator()).then(|| {
        Mistake::new(view.range(0), "not needed", "braces stand behind `repeat`, `for`, `if` or `else`")
            .help("leave them out, or write before them how often")
            .remove(view.with_gap(view.at, view.at))
            .remove(view.spaced(closer))
    })
}
