//! Comments that were meant as divisions: `stages D // 2` is accepted, and means `stages D`.

use super::grammar::{Grammar, Rule};
use super::scan::Tokens;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::source::{FileId, Span};
use pest::Parser;

/// A warning for each comment right behind a value that is nothing but a divisor: of numbers, `D`, `M` and `S`.
pub fn divisions(file: FileId, text: &str) -> Diagnostics {
    let mut found = Diagnostics::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some((place, divisor)) = division(line) {
            let byte = |position: usize| u32::try_from(start + position).unwrap_or(u32::MAX);
            let span = Span { file, start: byte(place), end: byte(place + 2) };
            let message = format!("`// {divisor}` is a comment, and does not divide");
            found.push(
                Diagnostic::warning(Code::Syntax, span, "a comment begins here", message)
                    .help(
                        "write `/` to divide, which rounds down in schedules; two spaces before `//` make it a comment",
                    )
                    .edit(span, "/"),
            );
        }
        start += line.len();
    }
    found
}

/// Where the comment of a line begins, and the divisor in it, if it looks like one.
fn division(line: &str) -> Option<(usize, &str)> {
    let start = line.find("//")?;
    let (code, comment) = line.split_at(start);
    let value = code.strip_suffix(' ').unwrap_or(code);
    let is_value = value.ends_with(|mark: char| mark.is_ascii_alphanumeric() || matches!(mark, '_' | ')'));
    let divisor = comment.get(2..)?.split("//").next()?.trim();
    if !is_value || code.contains('"') || divisor.is_empty() || divisor.len() > 40 {
        return None;
    }
    let is_part = |part: &str| {
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        is_number || matches!(part, "D" | "M" | "S" | "(" | ")" | "+" | "-" | "*" | "/" | "%")
    };
    let is_divisor = Tokens::new(divisor).all(|part| is_part(&divisor[part]));
    let parsed = Grammar::parse(Rule::expr, divisor).ok().filter(|_| is_divisor && !divisor.starts_with('-'))?;
    (parsed.as_str() == divisor).then_some((start, divisor))
}

#[cfg(test)]
mod tests {
    use super::division;

    #[test]
    fn divisors_are_told_from_comments() {
        for (line, divisor) in [
            ("stages D // 2\n", Some("2")),
            ("stages D//2", Some("2")),
            ("let half = (D - 1) // (2 * M) // halves", Some("(2 * M)")),
            ("stages D  // 2", None),
            ("F[s] at s // the forward", None),
            ("F[s] at s // 3 slots", None),
            ("// 2", None),
            ("/// 2", None),
            ("stages D // -2", None),
            ("order d { // 2", None),
            ("data \"http://3\"", None),
            ("stages D //", None),
        ] {
            assert_eq!(division(line).map(|(_, divisor)| divisor), divisor, "{line}");
        }
    }
}
