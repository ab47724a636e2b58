//! Loops as other languages write them.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_number, is_word};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    of_c,
    range_call,
    over_list,
    bracketed,
    two_loops,
    two_variables,
    included_end,
    other_mark,
    stride,
    one_bound,
    no_variable,
    other_word,
    times,
    no_count,
    half_range,
];

/// `for (k = 0; k < M; k++) {`.
fn of_c(view: &View<'_>) -> Option<Mistake> {
    let opener = if view.word(0) == "(" { view.at } else { view.at.checked_sub(1)? };
    if view.token(opener) != "(" || opener == 0 || view.token(opener - 1) != "for" {
        return None;
    }
    let closer = view.closer(opener)?;
    let inside: Vec<usize> = (opener + 1..closer).collect();
    let find = |mark: &str| inside.iter().copied().find(|index| view.token(*index) == mark);
    let mistake = |text: String| {
        Mistake::new(view.span(opener - 1, closer), "a loop of another language", "a loop counts over a range")
            .help(format!("write `{text}`"))
            .replace(view.span(opener - 1, closer), text)
    };
    if let (Some(assign), Some(semicolon), Some(less)) = (find("="), find(";"), find("<")) {
        let name = view.token(assign - 1);
        let last = inside.iter().copied().filter(|index| view.token(*index) == ";").nth(1)? - 1;
        let is_included = view.token(less + 1) == "=";
        let from = view.slice(assign + 1, semicolon - 1);
        let to = view.slice(less + 1 + usize::from(is_included), last);
        let to = if is_included { one_more(to) } else { to.to_owned() };
        return Some(mistake(format!("for {name} in {from}..{to}")));
    }
    let meant = view.slice(opener + 1, closer - 1);
    meant.contains(" in ").then(|| mistake(format!("for {meant}")))
}

/// The number after an expression.
fn one_more(value: &str) -> String {
    match value.strip_suffix("- 1").or_else(|| value.strip_suffix("-1")) {
        Some(before) => before.trim_end().to_owned(),
        None => format!("{value} + 1"),
    }
}

/// `for k in range(M) {`.
fn range_call(view: &View<'_>) -> Option<Mistake> {
    let closer = view.at.checked_sub(1)?;
    if view.token(closer) != ")" || !view.expects(&[Rule::range]) {
        return None;
    }
    let opener = view.opener_of(closer)?;
    let function = opener.checked_sub(1)?;
    if !matches!(view.token(function), "range" | "xrange" | "arange" | "enumerate") || opener + 1 >= closer {
        return None;
    }
    let first = if view.token(function.wrapping_sub(1)) == "." { function.checked_sub(2)? } else { function };
    let arguments = view.arguments(opener, closer);
    let mistake = Mistake::new(
        view.span(first, function),
        "not a function of this language",
        format!("a loop counts over `first..end`, not over `{}`", view.slice(first, closer)),
    );
    let meant = match arguments.as_slice() {
        [end] => format!("0..{end}"),
        [first, end] | [first, end, "1"] => format!("{first}..{end}"),
        _ => {
            let (from, to) = (arguments.first()?, arguments.get(1)?);
            return Some(
                mistake
                    .help("a loop counts up, one by one; write what you need in terms of its number: `M - 1 - k`")
                    .replace(view.span(first, closer), format!("{from}..{to}"))
                    .guess(),
            );
        }
    };
    Some(mistake.help(format!("write `{meant}`")).replace(view.span(first, closer), meant))
}

/// `for k in [0, 1, 2] {`.
fn over_list(view: &View<'_>) -> Option<Mistake> {
    let closer = view.at.checked_sub(1)?;
    if view.token(closer) != "]" || !view.expects(&[Rule::range]) {
        return None;
    }
    let opener = view.opener_of(closer)?;
    if view.token(opener.checked_sub(1)?) != "in" {
        return None;
    }
    let items = view.arguments(opener, closer);
    let numbers: Option<Vec<i64>> = items.iter().map(|item| item.parse().ok()).collect();
    let counts = numbers.filter(|numbers| numbers.is_sorted_by(|left, right| left.checked_add(1) == Some(*right)));
    let mistake = Mistake::new(view.span(opener, closer), "a list", "a loop counts over a range, not over a list");
    Some(match counts.as_deref() {
        Some([first, .., last]) => {
            let meant = format!("{first}..{}", last.saturating_add(1));
            mistake.help(format!("write `{meant}`")).replace(view.span(opener, closer), meant)
        }
        _ => mistake
            .help("write `for k in 0..n`, and what you need in terms of `k`")
            .replace(view.span(opener, closer), "0..1")
            .guess(),
    })
}

/// `for m in (0..M) {`, `for m in reversed(0..M) {`.
fn bracketed(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["(", "[", "{"])?;
    let closer = view.closer(opener)?;
    if view.word(0) != "." || view.word(1) != "." || view.token(opener) == "{" {
        return None;
    }
    let function = opener.checked_sub(1).filter(|index| view.token(*index) != "in");
    let first = function.unwrap_or(opener);
    if view.token(first.checked_sub(1)?) != "in" {
        return None;
    }
    let range = view.slice(opener + 1, closer.checked_sub(1)?);
    let place = view.span(first, closer);
    Some(match function {
        Some(function) => {
            let function = view.token(function);
            let message = format!("a loop counts over `first..end`, not over `{function}(..)`");
            Mistake::new(view.span(first, first), "not a function of this language", message)
                .help("a loop counts up, one by one; write what you need in terms of its number: `M - 1 - k`")
                .replace(place, range)
                .guess()
        }
        None => Mistake::new(view.span(opener, opener), "not needed", "the range of a loop stands without brackets")
            .help(format!("write `{range}`"))
            .replace(place, range),
    })
}

/// `for m in 0..M, k in 0..2 {`.
fn two_loops(view: &View<'_>) -> Option<Mistake> {
    let line = view.first_of_line(view.at)..view.at;
    if view.word(0) != "," || view.word(2) != "in" || !line.into_iter().any(|index| view.token(index) == "for") {
        return None;
    }
    let brace = (view.at..=view.last_of_line(view.at)).find(|index| view.token(*index) == "{")?;
    let closer = view.closer(brace)?;
    Some(
        Mistake::new(view.range(0), "another loop", "a loop counts one number")
            .help("write one loop inside the other")
            .replace(view.range(0), " { for")
            .insert(view.span(closer, closer).end, " }"),
    )
}

/// `for i, m in ..`.
fn two_variables(view: &View<'_>) -> Option<Mistake> {
    let is_second = view.word(0) == "," && view.word(-2) == "for" && view.word(2) == "in" && is_name(view.word(1));
    is_second.then(|| {
        Mistake::new(view.range(-1).start..view.range(1).end, "two names", "a loop counts one number")
            .help(format!("write `for {} in first..end`", view.word(1)))
            .remove(view.range(-1).start..view.range(1).start)
    })
}

/// `0..=M` and `0...M`.
fn included_end(view: &View<'_>) -> Option<Mistake> {
    if !matches!(view.word(0), "=" | ".") || view.word(-1) != "." || view.word(-2) != "." {
        return None;
    }
    let written = format!("..{}", view.word(0));
    let mistake =
        Mistake::new(view.range(-2).start..view.range(0).end, "not a range", format!("there is no mark `{written}`"));
    let last = view.expression_behind(view.at + 1)?;
    let end = view.span(last, last).end;
    if view.word(0) == "=" {
        let value = view.slice(view.at + 1, last);
        let meant = one_more(value);
        let help = format!("a range ends before its second number: write `..{meant}`");
        return Some(mistake.help(help).replace(view.range(0).start..end, meant));
    }
    Some(mistake.help("write `..`: the range ends before its second number").remove(view.range(0)))
}

/// `0:M`, `0 to M` and `0, M`.
fn other_mark(view: &View<'_>) -> Option<Mistake> {
    let mark = view.word(0);
    if !view.expects(&[Rule::range]) || !matches!(mark, ":" | "," | "to" | "until" | "till" | "upto" | "through") {
        return None;
    }
    let is_loop = (view.first_of_line(view.at)..view.at).any(|index| view.token(index) == "in");
    if !view.follows_on_line(1) || view.word(-1) == ")" {
        return None;
    }
    let last = view.expression_behind(view.at + 1)?;
    // Pascal and Lua count up to the second number, and so do those who write `to M - 1`.
    let end = view.slice(view.at + 1, last);
    let is_included = mark == "through" || mark == "to" && one_more(end).len() < end.len();
    let mistake = Mistake::new(view.range(0), "`..` is expected here", format!("a range is not written with `{mark}`"))
        .help("write `first..end`: the range ends before its second number")
        .replace(view.range(-1).end..view.range(1).start, "..");
    let place = view.span(view.at + 1, last);
    let mistake = if is_included { mistake.replace(place, one_more(end)) } else { mistake };
    (is_loop || mark == ":").then_some(mistake)
}

/// `for k in 0..M step 2 {`.
fn stride(view: &View<'_>) -> Option<Mistake> {
    let is_mark = matches!(view.word(0), "step" | "by" | "stride" | ":" | ",");
    let is_inside = view.opener(view.at, &["(", "[", "{"]).is_some_and(|opener| view.token(opener) != "{");
    if !is_mark || is_inside || !view.expects_operator() || !view.follows_on_line(1) {
        return None;
    }
    let in_loop = (view.first_of_line(view.at)..view.at).any(|index| view.token(index) == "in");
    let last = view.expression_behind(view.at + 1)?;
    let has_range = view.slice(view.first_of_line(view.at), view.at).contains("..");
    (in_loop && has_range).then(|| {
        Mistake::new(view.span(view.at, last), "loops have no stride", "a loop counts up one by one")
            .help("count to the number of turns, and multiply: `for k in 0..n { let m = 2 * k .. }`")
            .remove(view.range(-1).end..view.span(last, last).end)
            .guess()
    })
}

/// `for k in M {`.
fn one_bound(view: &View<'_>) -> Option<Mistake> {
    if !view.expects(&[Rule::range]) || !matches!(view.word(0), "{" | ":") {
        return None;
    }
    let last = view.at.checked_sub(1)?;
    let first = view.expression_before(last)?;
    if view.token(first.checked_sub(1)?) != "in" {
        return None;
    }
    let bound = view.slice(first, last);
    Some(
        Mistake::new(view.span(first, last), "only one number", "a loop counts from one number to another")
            .help(format!("write `0..{bound}`"))
            .insert(view.span(first, first).start, "0.."),
    )
}

/// `for 0..M {`.
fn no_variable(view: &View<'_>) -> Option<Mistake> {
    let begins = is_number(view.word(0)) || is_name(view.word(0));
    if view.word(-1) == "for" && view.word(0) == "in" {
        let end = view.range(-1).end;
        return Some(
            Mistake::new(end..end, "a name is missing here", "a loop needs a name for its number")
                .help("write `for k in first..end`")
                .insert(end, " k"),
        );
    }
    let is_bare = view.word(-1) == "for" && view.expects_name() && begins;
    let named = view.word(-2) == "for" && view.word(0) == "." && view.expects(&[Rule::kw_in]);
    let start = if is_bare && is_number(view.word(0)) {
        view.range(0).start
    } else if named {
        view.range(-1).start
    } else {
        return None;
    };
    Some(
        Mistake::new(start..start, "a name is missing here", "a loop needs a name for its number")
            .help("write `for k in first..end`")
            .insert(start, "k in "),
    )
}

/// `while`, `loop` and `foreach`.
fn other_word(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let mistake = Mistake::new(view.range(0), "not a keyword", format!("unknown keyword `{word}`"));
    match word {
        "while" | "until" => Some(
            mistake
                .help("a schedule knows how often a loop runs: `repeat n { .. }`, or `for k in 0..n { .. }`")
                .replace(view.range(0), "if")
                .guess(),
        ),
        "foreach" => Some(mistake.help("write `for k in first..end`").replace(view.range(0), "for")),
        "loop" | "do" | "times" => {
            let meant = if view.word(1) == "{" { "repeat M" } else { "repeat" };
            Some(mistake.help("write `repeat n`, for n times").replace(view.range(0), meant))
        }
        _ => None,
    }
}

/// `repeat M times {`.
fn times(view: &View<'_>) -> Option<Mistake> {
    let is_one = matches!(view.word(0), "times" | "x" | "do") && view.expects_operator() && view.word(1) == "{";
    is_one.then(|| {
        Mistake::new(view.range(0), "too many", format!("`{}` stands between a number and `{{`", view.word(0)))
            .help(format!("leave `{}` out", view.word(0)))
            .remove(view.range(0).start..view.range(1).start)
    })
}

/// `repeat {`.
fn no_count(view: &View<'_>) -> Option<Mistake> {
    let is_bare = view.word(-1) == "repeat" && view.word(0) == "{" && !is_word(view.word(0));
    let end = view.range(-1).end;
    is_bare.then(|| {
        Mistake::new(end..end, "a number is missing here", "`repeat` does not say how often")
            .help("write `repeat M {` to run once for each microbatch")
            .insert(end, " M")
    })
}

/// `..M` and `0..`.
fn half_range(view: &View<'_>) -> Option<Mistake> {
    if view.word(-1) == "in" && view.word(0) == "." && view.word(1) == "." {
        let start = view.range(0).start;
        return Some(
            Mistake::new(start..start, "a number is missing here", "a range does not say where it begins")
                .help(format!("write `0..{}`", view.word(2)))
                .insert(start, "0"),
        );
    }
    let is_open = view.word(-1) == "." && view.word(-2) == "." && matches!(view.word(0), "{" | "}" | "");
    let end = view.range(-1).end;
    is_open.then(|| {
        Mistake::new(end..end, "a number is missing here", "a range does not say where it ends")
            .help("write `0..M` for all microbatches: the range ends before its second number")
            .insert(end, "M")
            .guess()
    })
}
