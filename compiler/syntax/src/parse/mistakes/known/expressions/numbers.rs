//! Numbers and sizes.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_number};
use std::ops::Range;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[apart, bare_memory, decimal_unit, grouped, no_digit, hexadecimal, exponent, percent, time, suffix, product, sign];

/// The unit that was meant: letters as people write them.
fn unit(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    })
}

/// What looks like a number at a token: digits, a part behind a point, letters that touch it.
fn literal(view: &View<'_>, index: usize) -> Option<Range<usize>> {
    let start = view.tokens.get(index).filter(|_| is_number(view.token(index)))?.start;
    let bytes = view.text.as_bytes();
    let word = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count()
    };
    let mut end = word(start);
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = word(end + 1);
    }
    Some(start..end)
}

/// The literal at the place, its number, and the letters behind it.
fn parts<'t>(view: &View<'t>) -> Option<(Range<usize>, &'t str, &'t str)> {
    let range = literal(view, view.at)?;
    let text = &view.text[range.clone()];
    let number = text.trim_end_matches(|mark: char| mark.is_ascii_alphabetic());
    Some((range, number, &text[number.len()..]))
}

/// `8 GiB`.
fn apart(view: &View<'_>) -> Option<Mistake> {
    let unit = unit(view.word(0))
        .filter(|_| view.follows_on_line(0) && is_number(view.word(-1)) && !matches!(view.word(1), "=" | "["))?;
    let first = view.operand_before(view.at.checked_sub(1)?)?;
    let number = view.slice(first, view.at - 1);
    let meant = format!("{number}{unit}");
    Some(
        Mistake::new(view.span(first, view.at), "a size is one word", "a space stands between a number and its unit")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, view.at), meant),
    )
}

/// `devices 4 8GiB`.
fn bare_memory(view: &View<'_>) -> Option<Mistake> {
    let (range, ..) = parts(view).filter(|(_, _, letters)| unit(letters).is_some())?;
    let end = view.range(-1).end;
    view.expects(&[Rule::kw_memory]).then(|| {
        Mistake::new(range.clone(), "`memory` is missing before this", "a size stands behind a number")
            .help(format!("write `memory {}`", &view.text[range]))
            .insert(end, " memory")
    })
}

/// `80GB`.
fn decimal_unit(view: &View<'_>) -> Option<Mistake> {
    let (range, number, letters) = parts(view)?;
    let unit = unit(letters).filter(|unit| *unit != letters)?;
    let meant = format!("{number}{unit}");
    Some(
        Mistake::new(range.clone(), "not a unit", format!("there is no unit `{letters}`"))
            .help(format!("sizes are counted in `B`, `KiB`, `MiB`, `GiB` and `TiB`: write `{meant}`"))
            .replace(range, meant),
    )
}

/// `1_000_000`.
fn grouped(view: &View<'_>) -> Option<Mistake> {
    let range = literal(view, view.at)?;
    let text = &view.text[range.clone()];
    let is_grouped =
        text.contains('_') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_' || byte == b'.');
    let meant = text.replace('_', "");
    is_grouped.then(|| {
        Mistake::new(range.clone(), "not a number", "digits cannot be grouped with `_`")
            .help(format!("write `{meant}`"))
            .replace(range, meant)
    })
}

/// `.5` and `5.`.
fn no_digit(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "." {
        return None;
    }
    let place = view.range(0);
    if view.expects_expression() && is_number(view.word(1)) && view.touches(1) {
        let meant = format!("0.{}", view.word(1));
        return Some(
            Mistake::new(place.start..view.range(1).end, "a digit is missing", "a number begins with a digit")
                .help(format!("write `{meant}`"))
                .insert(place.start, "0"),
        );
    }
    let is_last = is_number(view.word(-1)) && view.touches(0) && !view.touches(1) && view.word(1) != ".";
    is_last.then(|| {
        let number = view.word(-1);
        Mistake::new(view.range(-1).start..place.end, "a digit is missing", "a number ends with a digit")
            .help(format!("write `{number}` or `{number}.0`"))
            .remove(place)
    })
}

/// `0x10`.
fn hexadecimal(view: &View<'_>) -> Option<Mistake> {
    let range = literal(view, view.at)?;
    let text = view.text[range.clone()].to_ascii_lowercase();
    let radix = if text.starts_with("0x") {
        16
    } else if text.starts_with("0b") {
        2
    } else {
        8
    };
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0b")).or_else(|| text.strip_prefix("0o"))?;
    let value = i64::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    Some(
        Mistake::new(range.clone(), "not a number", "numbers are decimal")
            .help(format!("write `{value}`"))
            .replace(range, value.to_string()),
    )
}

/// `1E6` and `1e+6`.
fn exponent(view: &View<'_>) -> Option<Mistake> {
    let range = literal(view, view.at)?;
    let rest = &view.text[range.start..];
    let length = rest.find(|mark: char| !mark.is_ascii_alphanumeric() && !matches!(mark, '.' | '+' | '-'))?;
    let text = &rest[..length];
    let (mantissa, power) = text.split_once(['e', 'E'])?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let power = power.trim_start_matches('+');
    if !is_number(mantissa) || !is_number(power.trim_start_matches('-')) {
        return None;
    }
    let meant = format!("{mantissa}e{power}");
    let place = range.start..range.start + length;
    (meant != text).then(|| {
        Mistake::new(place.clone(), "not a number", "a power of ten is written `e` and a number without `+`")
            .help(format!("write `{meant}`"))
            .replace(place, meant)
    })
}

/// `50%`.
fn percent(view: &View<'_>) -> Option<Mistake> {
    let mark = (view.at.saturating_sub(2)..=view.at).find(|index| view.token(*index) == "%")?;
    let first = view.operand_before(mark.checked_sub(1)?)?;
    let number = view.slice(first, mark - 1);
    if !is_number(number) || view.tokens[mark - 1].end != view.tokens[mark].start {
        return None;
    }
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole:0>3}{part}");
    let (whole, part) = digits.split_at(digits.len() - 2 - part.len());
    let part = part.trim_end_matches('0');
    let meant = format!(
        "{}.{}",
        whole.trim_start_matches('0').parse::<u64>().unwrap_or(0),
        if part.is_empty() { "0" } else { part }
    );
    let ends_with_of = view.token(mark + 1) == "of";
    let end = if ends_with_of { mark + 1 } else { mark };
    let text = if ends_with_of { format!("{meant} *") } else { meant.clone() };
    Some(
        Mistake::new(view.span(first, mark), "not a number", "shares are numbers, not percentages")
            .help(format!("write `{text}`"))
            .replace(view.span(first, end), text),
    )
}

/// `3ms`.
fn time(view: &View<'_>) -> Option<Mistake> {
    let (range, number, letters) = parts(view)?;
    let is_time = matches!(letters, "ms" | "us" | "ns" | "s" | "sec" | "min");
    let costs =
        (view.first_of_line(view.at)..view.at).any(|index| matches!(view.token(index), "cost" | "slots" | "every"));
    (is_time && costs).then(|| {
        Mistake::new(range.clone(), "a number without unit", format!("durations have no unit such as `{letters}`"))
            .help(format!("write `{number}`: all durations are in the same unit, which you choose"))
            .replace(range, number)
    })
}

/// `1.0f` and `3L`.
fn suffix(view: &View<'_>) -> Option<Mistake> {
    let (range, number, letters) = parts(view)?;
    let text = &view.text[range.clone()];
    let typed = ["f32", "f64", "i32", "i64", "u32", "u64", "usize"].iter().find_map(|suffix| text.strip_suffix(suffix));
    let number = match typed {
        Some(number) => number,
        None if matches!(letters, "f" | "F" | "L" | "l" | "u" | "U" | "UL" | "ll") => number,
        None => return None,
    };
    let number = number.trim_end_matches('_');
    (!number.is_empty()).then(|| {
        Mistake::new(range.clone(), "not a number", "numbers have no suffix for their type")
            .help(format!("write `{number}`"))
            .replace(range.clone(), number)
    })
}

/// `2D`.
fn product(view: &View<'_>) -> Option<Mistake> {
    let (range, number, letters) = parts(view)?;
    let is_product =
        view.expects_expression() && !letters.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let meant = format!("{number} * {letters}");
    is_product.then(|| {
        Mistake::new(range.clone(), "not a number", format!("`*` is missing in `{number}{letters}`"))
            .help(format!("write `{meant}`"))
            .replace(range, meant)
    })
}

/// `+3`.
fn sign(view: &View<'_>) -> Option<Mistake> {
    let is_sign = view.word(0) == "+" && view.expects_expression() && view.word(1) != "+" && view.word(1) != "=";
    is_sign.then(|| {
        Mistake::new(view.range(0), "not a sign", "numbers have no sign `+`")
            .help("leave `+` out")
            .remove(view.range(0).start..view.range(1).start)
    })
}
