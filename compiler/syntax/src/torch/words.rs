//! What checks say of a schedule, in the words of a table: `2F0` for `F s2 m0`, rank 1 for d1.

use super::action::ActionKind;
use crate::diagnostic::Diagnostic;
use pipe_ir::task::TaskKind;

/// A finding in the words of a table.
pub fn told(found: Diagnostic) -> Diagnostic {
    let labels = found.labels.into_iter().map(|mut label| {
        label.text = of_table(&label.text);
        label
    });
    Diagnostic {
        message: of_table(&found.message),
        labels: labels.collect(),
        notes: found.notes.iter().map(|note| of_table(note)).collect(),
        help: found.help.as_deref().map(of_table),
        ..found
    }
}

/// A text in the words of a table. What stands between backticks is written, the rest is said.
pub fn of_table(text: &str) -> String {
    let parts =
        text.split('`').enumerate().map(|(index, part)| if index % 2 == 1 { written(part) } else { said(part) });
    parts.collect::<Vec<_>>().join("`")
}

/// `2F0` for `F s2 m0`, `I` for `B`; anything else as it is.
fn written(part: &str) -> String {
    let mut words = part.split(' ');
    let letters = words.next().unwrap_or_default();
    let kind = TaskKind::ALL.into_iter().find(|kind| kind.letters() == letters).and_then(ActionKind::of_task);
    let number = |word: Option<&str>, letter: char| match word {
        None => Some(String::new()),
        Some(word) => word.strip_prefix(letter).filter(|digits| is_number(digits)).map(str::to_owned),
    };
    let numbers = number(words.next(), 's').zip(number(words.next(), 'm'));
    match (kind, numbers, words.next()) {
        (Some(kind), Some((stage, microbatch)), None) => format!("{stage}{}{microbatch}", kind.word()),
        _ => part.to_owned(),
    }
}

/// `rank 1` for `d1`, `stage 2` for `s2`, `microbatch 0` for `m0`.
fn said(part: &str) -> String {
    let mut text = String::new();
    for word in part.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let bare = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let named = [('d', "rank"), ('s', "stage"), ('m', "microbatch")].into_iter().find_map(|(letter, name)| {
            bare.strip_prefix(letter).filter(|digits| is_number(digits)).map(|digits| format!("{name} {digits}"))
        });
        text.push_str(&named.unwrap_or_else(|| bare.to_owned()));
        text.push_str(&word[bare.len()..]);
    }
    text
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::of_table;

    #[test]
    fn tasks_devices_and_stages_have_the_names_of_a_table() {
        let cases = [
            (
                "d0 waits for d1's `BW s1 m0`, and d1 for d0's `F s0 m1`",
                "rank 0 waits for rank 1's `1B0`, and rank 1 for rank 0's `0F1`",
            ),
            ("s2 runs `B` but never `W`", "stage 2 runs `I` but never `W`"),
            ("add `BW` of s2, or `B` and `W`", "add `B` of stage 2, or `I` and `W`"),
            ("reached: work of the busiest device (d13)", "reached: work of the busiest device (rank 13)"),
            ("`R s0` has no word, m3 has", "`R s0` has no word, microbatch 3 has"),
            ("`F s0 m1 q2`, `x` and s", "`F s0 m1 q2`, `x` and s"),
        ];
        for (text, wanted) in cases {
            assert_eq!(of_table(text), wanted);
        }
    }
}
