//! Marks at the ends of lines, and between a keyword and its value.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_number, is_word};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[semicolons, comma_at_end, mark_behind_keyword, comma_before_keyword, arrow, message, second_limit, second_loss];

/// `stages D;`: all of the text are told at once.
fn semicolons(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != ";" {
        return None;
    }
    let mistake =
        Mistake::new(view.range(0), "not needed", "lines end without `;`").help("leave all of these marks out");
    let marks = (view.at..view.tokens.len()).filter(|index| view.token(*index) == ";");
    let first = mistake.remove(view.range(0));
    // One that stands for a comma in brackets is told by itself.
    let is_free = |index: &usize| view.opener(*index, &["(", "[", "{"]).is_none_or(|opener| view.token(opener) == "{");
    Some(marks.skip(1).filter(is_free).fold(first, |mistake, index| {
        let mark = view.span(index, index);
        // Words on both sides would become one.
        let parts = view.tokens.get(index + 1).is_some_and(|next| next.start == mark.end);
        mistake.replace(mark, if parts { " " } else { "" })
    }))
}

/// `stages D,`.
fn comma_at_end(view: &View<'_>) -> Option<Mistake> {
    let at_end = view.at + 1 >= view.tokens.len() || view.begins_line(view.at + 1) || view.word(1) == "}";
    let between = view.is_between_lines() && view.word(0) == ",";
    // The comma is a part of the line where more of the same may follow, and then the next line is in its way.
    let is_behind =
        view.word(-1) == "," && view.begins_line(view.at) && !between && view.opener(view.at, &["(", "["]).is_none();
    let index = if between && at_end {
        view.at
    } else if is_behind {
        view.at.checked_sub(1)?
    } else {
        return None;
    };
    Some(
        Mistake::new(view.span(index, index), "too many", "a line ends without `,`")
            .help("leave `,` out")
            .remove(view.span(index, index)),
    )
}

/// `stages = D` and `devices: 4`.
fn mark_behind_keyword(view: &View<'_>) -> Option<Mistake> {
    let mark = view.word(0);
    let word = view.word(-1);
    let is_line = view.at > 0
        && (view.begins_line(view.at - 1) || matches!(view.word(-2), "{" | "}" | ")") || is_word(view.word(-2)));
    let is_mark = matches!(mark, "=" | ":") && !matches!(view.word(1), "=" | ">");
    if !is_mark || !keywords::is_keyword(word) || !is_line || view.expects(&[Rule::at_most]) {
        return None;
    }
    let value = view.expression_behind(view.at + 1).map_or(view.word(1), |last| view.slice(view.at + 1, last));
    Some(
        Mistake::new(view.range(0), "not needed", format!("`{word}` takes its value without `{mark}`"))
            .help(format!("write `{word} {value}`"))
            .replace(view.spaced(view.at).start..view.range(1).start, " "),
    )
}

/// `devices 4, memory 64MiB` and `devices 4, microbatches 8`.
fn comma_before_keyword(view: &View<'_>) -> Option<Mistake> {
    let is_between = view.word(0) == "," && is_name(view.word(1)) && (is_word(view.word(-1)) || view.word(-1) == ")");
    is_between.then(|| {
        Mistake::new(view.range(0), "not needed", format!("`{}` follows without `,`", view.word(1)))
            .help("leave `,` out")
            .remove(view.range(0))
    })
}

/// `place s -> s` and `F[s] => s`: what an arrow stands for follows from what is expected.
fn arrow(view: &View<'_>) -> Option<Mistake> {
    let is_arrow = matches!(view.word(0), "-" | "=") && view.word(1) == ">" && view.touches(1);
    let expected = view.expected_words();
    let is_first = |word: &&String| is_name(word) && matches!(word.as_str(), "on" | "at" | "in");
    let meant = expected.iter().find(is_first)?;
    let name = view.slice(view.at, view.at + 1);
    (is_arrow && !is_number(view.word(0))).then(|| {
        Mistake::new(
            view.range(0).start..view.range(1).end,
            format!("`{meant}` is expected here"),
            format!("there is no mark `{name}`"),
        )
        .help(format!("write `{meant}`"))
        .replace(view.range(0).start..view.range(1).end, meant.as_str())
    })
}

/// `require M >= 1, "too few"`.
fn message(view: &View<'_>) -> Option<Mistake> {
    let is_text = view.word(0) == "," && view.word(1).starts_with('"') && view.is_between_lines();
    let is_text = is_text && view.token(view.first_of_line(view.at)) == "require";
    is_text.then(|| {
        Mistake::new(view.range(1), "not needed", "a condition has no message of its own")
            .help("leave it out: the condition itself is shown where it does not hold")
            .remove(view.range(-1).end..view.range(1).end)
    })
}

/// `require peak <= 8, bubble <= 0.2`.
fn second_limit(view: &View<'_>) -> Option<Mistake> {
    let is_limit =
        view.word(0) == "," && matches!(view.word(1), "peak" | "memory" | "bubble") && view.is_between_lines();
    is_limit.then(|| {
        Mistake::new(view.range(0), "`require` is expected here", "`require` has one limit")
            .help(format!("write `require {} <= ..` as well", view.word(1)))
            .replace(view.range(0).start..view.range(1).start, " require ")
    })
}

/// `loss x, y`.
fn second_loss(view: &View<'_>) -> Option<Mistake> {
    let is_loss = view.word(0) == "," && view.token(view.first_of_line(view.at)) == "loss";
    (is_loss && view.is_between_lines()).then(|| {
        Mistake::new(view.range(0), "a second value", "`loss` has one value")
            .help("add them up: `loss x + y`")
            .replace(view.range(0), " +")
    })
}
