//! Operators that other languages have, and marks of a word processor.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_number};
use std::ops::Range;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    letters,
    single_quotes,
    open_quote,
    at_most,
    power,
    bits,
    spelt,
    negation,
    comparison,
    assignment,
    indexed,
    range,
    braces,
    call_without_brackets,
    no_operand,
    no_value,
];

/// Marks with the one of this language that they look like.
const MARKS: &[(&str, &str)] = &[
    ("−", "-"),
    ("–", "-"),
    ("—", "-"),
    ("×", "*"),
    ("·", "*"),
    ("∗", "*"),
    ("÷", "/"),
    ("∕", "/"),
    ("≤", "<="),
    ("≥", ">="),
    ("≠", "!="),
    ("“", "\""),
    ("”", "\""),
    ("„", "\""),
    ("’", "\""),
    ("‘", "\""),
    ("…", ".."),
    ("（", "("),
    ("）", ")"),
    ("，", ","),
    ("｛", "{"),
    ("｝", "}"),
    ("＝", "="),
    ("：", ":"),
    ("；", ";"),
    ("∧", "and"),
    ("∨", "or"),
    ("¬", "not"),
    ("«", "\""),
    ("»", "\""),
];

/// `M − 1` with the minus of a typesetter.
fn letters(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let (_, meant) = MARKS.iter().find(|(mark, _)| word == *mark)?;
    let mistake = Mistake::new(
        view.range(0),
        "not a mark of the language",
        format!("`{word}` looks like `{meant}`, and is another mark"),
    )
    .help(format!("write `{meant}`"));
    if *meant != "\"" {
        return Some(mistake.replace(view.range(0), *meant));
    }
    // The other end of the text in quotes.
    let line = view.text[view.range(0).end..].split('\n').next().unwrap_or_default();
    let other = line
        .char_indices()
        .find(|(_, mark)| *mark == '"' || MARKS.iter().any(|(from, to)| from.starts_with(*mark) && *to == "\""));
    let mistake = mistake.replace(view.range(0), "\"");
    Some(match other {
        Some((start, mark)) => {
            let start = view.range(0).end + start;
            mistake.replace(start..start + mark.len_utf8(), "\"")
        }
        None => mistake,
    })
}

/// `'data.txt'`.
fn single_quotes(view: &View<'_>) -> Option<Mistake> {
    let mark = view.word(0);
    let start = view.range(0);
    let line = view.text[start.end..].split('\n').next().unwrap_or_default();
    let end = start.end + line.find(mark)?;
    let inside = &view.text[start.end..end];
    (matches!(mark, "'" | "`") && !inside.contains('"')).then(|| {
        Mistake::new(start.start..end + 1, "other quotes", "texts stand in double quotes")
            .help(format!("write `\"{inside}\"`"))
            .replace(start, "\"")
            .replace(end..end + 1, "\"")
    })
}

/// `"data.txt` without its end.
fn open_quote(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let is_open = word.starts_with('"') && (word.len() == 1 || !word.ends_with('"'));
    let written = word.trim_end();
    let path = written.find([' ', '\t']).map_or(written, |end| &written[..end]);
    let end = view.range(0).start + path.len();
    is_open.then(|| {
        Mistake::new(
            view.range(0).start..end,
            "`\"` is missing at its end",
            "a text in quotes does not end in its line",
        )
        .help(format!("write `{path}\"`"))
        .insert(end, "\"")
    })
}

/// `require peak < 3`.
fn at_most(view: &View<'_>) -> Option<Mistake> {
    if !view.expects(&[Rule::at_most]) || view.expects_operator() {
        return None;
    }
    let subject = view.word(-1);
    let mark = view.word(0);
    if is_number(mark) || is_name(mark) && view.follows_on_line(0) {
        let end = view.range(-1).end;
        return Some(
            Mistake::new(end..end, "`<=` is missing here", "a limit is written with `<=`")
                .help(format!("write `require {subject} <= {mark}`"))
                .insert(end, " <="),
        );
    }
    let last = match (mark, view.word(1)) {
        ("=" | ">" | "<" | "!", "=" | "<") => view.at + 1,
        ("<" | "=" | ":" | ">" | "≤", _) => view.at,
        _ => return None,
    };
    let written = view.slice(view.at, last);
    Some(
        Mistake::new(
            view.span(view.at, last),
            "`<=` is expected here",
            format!("a limit is written with `<=`, not with `{written}`"),
        )
        .help(format!("write `require {subject} <= ..`: a limit is the most that is allowed"))
        .replace(view.span(view.at, last), "<="),
    )
}

/// `2 ** k` and `2 ^ k`.
fn power(view: &View<'_>) -> Option<Mistake> {
    let is_doubled = view.word(0) == "*" && view.word(-1) == "*" && view.touches(0);
    let (mark, behind) = match view.word(0) {
        "*" if is_doubled => (view.at - 1, view.at + 1),
        "^" => (view.at, view.at + 1),
        _ => return None,
    };
    let first = view.operand_before(mark.checked_sub(1)?)?;
    let last = view.operand_behind(behind)?;
    let (base, exponent) = (view.slice(first, mark - 1), view.slice(behind, last));
    let written = view.slice(mark, behind - 1);
    let mistake =
        Mistake::new(view.span(mark, behind - 1), "not an operator", format!("there is no operator `{written}`"));
    let place = view.span(first, last);
    let value = match (base.parse::<u64>(), exponent.parse::<u32>()) {
        (Ok(base), Ok(exponent)) => base.checked_pow(exponent).filter(|value| i64::try_from(*value).is_ok()),
        _ => None,
    };
    Some(match (value, exponent) {
        (Some(value), _) => mistake.help(format!("write `{value}`")).replace(place, value.to_string()),
        (None, "2" | "3") => {
            let product = vec![base; exponent.parse().unwrap_or(2)].join(" * ");
            let is_alone = !matches!(view.token(first.wrapping_sub(1)), "*" | "/" | "%" | "-")
                && !matches!(view.token(last + 1), "*" | "/" | "%");
            let meant = if is_alone { product } else { format!("({product})") };
            mistake.help(format!("write `{meant}`")).replace(place, meant)
        }
        _ => mistake
            .help("there are no powers; write a product")
            .replace(place, format!("({base} * {exponent})"))
            .guess(),
    })
}

/// `1 << k` and `k & 1`.
fn bits(view: &View<'_>) -> Option<Mistake> {
    let (mark, before) = (view.word(0), view.word(-1));
    if matches!(mark, "<" | ">") && before == mark && view.touches(0) {
        let place = view.range(-1).start..view.range(0).end;
        let (operation, meant) = if mark == "<" { ("product", "*") } else { ("quotient", "/") };
        return Some(
            Mistake::new(place.clone(), "not an operator", format!("there is no operator `{mark}{mark}`"))
                .help(format!("numbers have no bits; write a {operation}"))
                .replace(place, meant)
                .guess(),
        );
    }
    let is_bits = matches!(mark, "&" | "|") && view.expects_operator() && is_number(view.word(1));
    is_bits.then(|| {
        let place = view.span(view.at, view.at + 1);
        let mistake = Mistake::new(view.range(0), "not an operator", format!("there is no operator `{mark}`"));
        match (mark, view.word(1)) {
            ("&", "1") => mistake.help("write `% 2`").replace(place, "% 2"),
            _ => {
                mistake.help("numbers have no bits; write what you need with `/` and `%`").replace(place, "% 2").guess()
            }
        }
    })
}

/// `&&`, `||`, `mod` and the like.
fn spelt(view: &View<'_>) -> Option<Mistake> {
    if !view.expects_operator() {
        return None;
    }
    let (word, next) = (view.word(0), view.word(1));
    let doubled = next == word && view.touches(1);
    let (last, meant) = match word {
        "&" | "|" if doubled => (view.at + 1, if word == "&" { "and" } else { "or" }),
        "&" => (view.at, "and"),
        "|" => (view.at, "or"),
        "mod" | "rem" => (view.at, "%"),
        "div" => (view.at, "/"),
        "x" | "X" if is_number(view.word(-1)) && view.follows_on_line(1) => (view.at, "*"),
        "is" if next == "not" => (view.at + 1, "!="),
        "is" | "eq" => (view.at, "=="),
        "ne" => (view.at, "!="),
        "AND" | "And" => (view.at, "and"),
        "OR" | "Or" => (view.at, "or"),
        "=" if next == "<" && view.touches(1) => (view.at + 1, "<="),
        _ => return None,
    };
    let written = view.slice(view.at, last);
    let place = view.span(view.at, last);
    let touches = |near: bool| if near { " " } else { "" };
    let text = format!(
        "{}{meant}{}",
        touches(view.touches(0)),
        touches(view.tokens.get(last + 1).is_some_and(|token| token.start == place.end))
    );
    Some(
        Mistake::new(place.clone(), "not an operator", format!("there is no operator `{written}`"))
            .help(format!("write `{meant}`"))
            .replace(place, text),
    )
}

/// `!done`.
fn negation(view: &View<'_>) -> Option<Mistake> {
    let is_negated = matches!(view.word(0), "!" | "~") && view.expects_expression() && view.word(1) != "=";
    is_negated.then(|| {
        let mark = view.word(0);
        Mistake::new(view.range(0), "not an operator", format!("there is no operator `{mark}`"))
            .help("write `not`")
            .replace(view.range(0).start..view.range(1).start, "not ")
    })
}

/// `===`, `<>` and `=>` between operands.
fn comparison(view: &View<'_>) -> Option<Mistake> {
    let before = view.range(-1);
    let joined = |place: Range<usize>, meant: &str| {
        let written = &view.text[place.clone()];
        Mistake::new(place.clone(), "not an operator", format!("there is no operator `{written}`"))
            .help(format!("write `{meant}`"))
            .replace(place, meant)
    };
    let two_before = view.range(-2);
    match (view.word(-2), view.word(-1), view.word(0)) {
        ("=" | "!", "=", "=") if view.touches(0) => {
            Some(joined(two_before.start..view.range(0).end, if view.word(-2) == "=" { "==" } else { "!=" }))
        }
        (_, "<", ">") if view.touches(0) => Some(joined(before.start..view.range(0).end, "!=")),
        _ if view.word(0) == "=" && view.word(1) == ">" && view.expects_operator() => {
            Some(joined(view.range(0).start..view.range(1).end, ">="))
        }
        _ => None,
    }
}

/// `if d = 0 {`.
fn assignment(view: &View<'_>) -> Option<Mistake> {
    let is_condition = view.word(0) == "=" && view.expects(&[Rule::equal]) && view.word(1) != "=";
    let first = view.expression_before(view.at.checked_sub(1)?)?;
    let last = view.expression_behind(view.at + 1)?;
    is_condition.then(|| {
        Mistake::new(view.range(0), "gives a value", "`=` does not compare")
            .help(format!("write `{} == {}`", view.slice(first, view.at - 1), view.slice(view.at + 1, last)))
            .replace(view.range(0), "==")
    })
}

/// `list[0]`.
fn indexed(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "["
        || view.expects(&[Rule::colon])
        || !view.touches(0)
        || !(is_name(view.word(-1)) || view.word(-1) == ")")
        || is_number(view.word(-1))
    {
        return None;
    }
    let closer = view.closer(view.at)?;
    let first = view.operand_before(view.at.checked_sub(1)?)?;
    let name = view.slice(first, view.at - 1);
    let is_device = matches!(
        name.to_ascii_lowercase().trim_end_matches('s'),
        "gpu" | "tpu" | "cuda" | "device" | "dev" | "d" | "rank" | "node" | "worker"
    );
    let is_placed = first.checked_sub(1).is_some_and(|before| view.token(before) == "on");
    if is_device && is_placed {
        let number = view.slice(view.at + 1, closer - 1);
        return Some(
            Mistake::new(view.span(first, closer), "a number is expected here", "devices are numbers, and no list")
                .help(format!("write `on {number}`"))
                .replace(view.span(first, closer), number),
        );
    }
    Some(
        Mistake::new(view.span(view.at, closer), "not an operator", format!("`{name}` has no parts to choose from"))
            .help("numbers are no lists; compute the value: `if k == 0 then a else b`")
            .remove(view.span(view.at, closer))
            .guess(),
    )
}

/// `1 + (0..2)`.
fn range(view: &View<'_>) -> Option<Mistake> {
    let is_range = view.word(0) == "." && view.word(1) == "." && view.expects_operator();
    let last = view.expression_behind(view.at + 2).filter(|_| is_range)?;
    let first = (0..view.at).rev().find(|index| matches!(view.token(*index), "in" | "on" | "=" | "{" | "(" | "["));
    if view.slice(first?, view.at - 1).contains("..") {
        let step = view.slice(view.at + 2, last);
        return Some(
            Mistake::new(view.span(view.at, last), "not a step", "a range has no step")
                .help(format!("a range counts one by one; compute what you need from its number: `{step} * k`"))
                .remove(view.span(view.at, last))
                .guess(),
        );
    }
    Some(
        Mistake::new(view.span(view.at, view.at + 1), "not an operator", "a range is not a number")
            .help("a range stands alone, behind `on`, `then`, `else` or the `in` of a loop")
            .remove(view.span(view.at, last))
            .guess(),
    )
}

/// `place s on {0, 1}`.
fn braces(view: &View<'_>) -> Option<Mistake> {
    let closer = view.closer(view.at).filter(|closer| *closer <= view.last_of_line(view.at))?;
    let is_compared = view.word(-1) == "=" && matches!(view.word(-2), "=" | "!" | "<" | ">");
    let is_value = matches!(view.word(-1), "on" | "=" | "at" | "," | "(") && !is_compared;
    (view.word(0) == "{" && view.expects_expression() && is_value).then(|| {
        Mistake::new(view.range(0), "`[` is expected here", "a list stands in square brackets")
            .help(format!("write `[{}]`", view.slice(view.at + 1, closer.saturating_sub(1)).trim()))
            .replace(view.range(0), "[")
            .replace(view.span(closer, closer), "]")
    })
}

/// `min D M`.
fn call_without_brackets(view: &View<'_>) -> Option<Mistake> {
    let function = view.word(-1);
    let is_known = matches!(function, "min" | "max" | "abs" | "sqrt" | "matmul" | "relu" | "gelu" | "softmax" | "size");
    if !is_known || !view.follows_on_line(0) {
        return None;
    }
    let mut last = view.operand_behind(view.at)?;
    let mut arguments = vec![view.slice(view.at, last)];
    let line = view.last_of_line(view.at);
    while last < line {
        let next = if view.token(last + 1) == "," { last + 2 } else { last + 1 };
        let Some(end) = view.operand_behind(next).filter(|end| *end <= line) else { break };
        arguments.push(view.slice(next, end));
        last = end;
    }
    let meant = format!("{function}({})", arguments.join(", "));
    Some(
        Mistake::new(view.span(view.at, last), "not in brackets", "arguments stand in brackets")
            .help(format!("write `{meant}`"))
            .replace(view.span(view.at - 1, last), meant),
    )
}

/// The token behind which a value is missing: the last of its line, if the keyword that begins the next line was read
/// as the value, or if nothing was.
fn before_missing_value(view: &View<'_>) -> Option<usize> {
    let is_read = view.at >= 2 && view.begins_line(view.at - 1) && keywords::is_keyword(view.word(-1));
    if is_read {
        return Some(view.at - 2);
    }
    let ends = matches!(view.word(0), "{" | "}" | ")" | "]" | "" | "then" | "else") || view.begins_line(view.at);
    let is_expected = view.expects_expression() || view.expects(&[Rule::name, Rule::assign]);
    view.at.checked_sub(1).filter(|_| ends && is_expected)
}

/// `if d == {`: nothing stands behind an operator.
fn no_operand(view: &View<'_>) -> Option<Mistake> {
    let last = before_missing_value(view)?;
    let (word, before) = (view.token(last), view.token(last.checked_sub(1)?));
    let is_operator = matches!(word, "+" | "-" | "*" | "/" | "%" | "=" | "<" | ">" | "and" | "or" | "not");
    let is_pair = word == "=" && matches!(before, "=" | "!" | "<" | ">");
    if !is_operator || word == "=" && !is_pair {
        return None;
    }
    let end = view.span(last, last).end;
    let operator = if is_pair { view.slice(last - 1, last) } else { word };
    Some(
        Mistake::new(end..end, "a value is missing here", format!("nothing stands behind `{operator}`"))
            .help(format!("write what `{operator}` takes"))
            .insert(end, " 1")
            .guess(),
    )
}

/// `let x =` and `param x`.
fn no_value(view: &View<'_>) -> Option<Mistake> {
    let last = before_missing_value(view)?;
    let has_mark = view.token(last) == "=";
    let name = if has_mark { last.checked_sub(1)? } else { last };
    let is_declared = matches!(view.token(name.checked_sub(1)?), "let" | "param");
    let (word, end) = (view.token(name), view.span(last, last).end);
    (is_declared && is_name(word)).then(|| {
        Mistake::new(end..end, "a value is missing here", format!("`{word}` has no value"))
            .help(format!("write `{word} = ..`"))
            .insert(end, if has_mark { " 1" } else { " = 1" })
            .guess()
    })
}
