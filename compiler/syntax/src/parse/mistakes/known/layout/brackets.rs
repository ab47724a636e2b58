//! Brackets without a partner: how lines are indented says which one, and where its partner is missing.

use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_word};

/// Those that know braces, which make what follows look wrong.
pub(in crate::parse::mistakes) const BRACES: &[Detector] = &[unclosed_brace, unclosed_at_end, needless_brace];
/// Those that know the other brackets.
pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[wrong_kind, unclosed];

/// An open brace and the line that it opened in.
struct Open {
    token: usize,
    indentation: usize,
}

/// What the braces of a text lack, going by the indentation of its lines.
enum Fault {
    /// A brace is open where a line begins that does not belong to it.
    Unclosed { opener: usize, before: usize },
    /// A brace closes nothing.
    Needless(usize),
}

/// The first fault of the braces, if any has no partner.
fn fault(view: &View<'_>) -> Option<Fault> {
    let count = |mark: &str| (0..view.tokens.len()).filter(|index| view.token(*index) == mark).count();
    let (opened, closed) = (count("{"), count("}"));
    if opened == closed {
        return None;
    }
    let mut open: Vec<Open> = Vec::new();
    for index in 0..view.tokens.len() {
        let word = view.token(index);
        if view.begins_line(index) && opened > closed {
            let indentation = view.indentation(index);
            let closes = usize::from(word == "}");
            if let Some(top) = open.last().filter(|top| indentation + closes <= top.indentation) {
                return Some(Fault::Unclosed { opener: top.token, before: index });
            }
        }
        match word {
            "{" => open.push(Open { token: index, indentation: view.indentation(index) }),
            "}" => {
                let is_alone = view.begins_line(index);
                let top = open.pop();
                let is_deeper = |top: &Open| is_alone && view.indentation(index) > top.indentation;
                if closed > opened && top.as_ref().is_none_or(is_deeper) {
                    return Some(Fault::Needless(index));
                }
            }
            _ => {}
        }
    }
    open.pop().map(|top| Fault::Unclosed { opener: top.token, before: view.tokens.len() })
}

/// `schedule x {` and no `}` before the next declaration.
fn unclosed_brace(view: &View<'_>) -> Option<Mistake> {
    let Fault::Unclosed { opener, before } = fault(view)? else { return None };
    // A fault behind the place is not the reason.
    if before > view.at {
        return None;
    }
    let end = view.tokens.get(before.checked_sub(1)?)?.end;
    let in_line = !(opener..before).skip(1).any(|index| view.begins_line(index));
    let text = if in_line { " }".to_owned() } else { format!("\n{}}}", " ".repeat(view.indentation(opener))) };
    let line = header(view, opener);
    Some(
        Mistake::new(view.span(opener, opener), "opened here", "this `{` is never closed")
            .other(end..end, "`}` is missing here")
            .help(format!("close `{line}` with `}}`"))
            .insert(end, text),
    )
}

/// The line that opens a brace; the one above, if the brace stands alone.
fn header(view: &View<'_>, opener: usize) -> String {
    let first = view.first_of_line(opener);
    match opener.checked_sub(1).filter(|_| first == opener) {
        Some(last) => format!("{} {{", view.slice(view.first_of_line(last), last)),
        None => view.slice(first, opener).to_owned(),
    }
}

/// A brace that is open at the end of a text whose lines do not say which.
fn unclosed_at_end(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.tokens.len(), &["{"]).filter(|_| view.word(0).is_empty())?;
    let end = view.range(-1).end;
    Some(
        Mistake::new(view.span(opener, opener), "opened here", "this `{` is never closed")
            .other(end..end, "`}` is missing here")
            .help(format!("close `{}` with `}}`", header(view, opener)))
            .insert(end, "\n}"),
    )
}

/// One `}` too many.
fn needless_brace(view: &View<'_>) -> Option<Mistake> {
    let index = match fault(view) {
        Some(Fault::Needless(index)) if index <= view.at => index,
        _ if view.word(0) == "}" && view.opener(view.at, &["{"]).is_none() => view.at,
        _ => return None,
    };
    let brace = view.span(index, index);
    Some(
        Mistake::new(brace.clone(), "no brace is open here", "this `}` closes nothing")
            .help("leave it out")
            .remove(brace),
    )
}

/// `F[d }` and `min(s, 3` at the end of a line.
fn unclosed(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["(", "[", "{"])?;
    let mark = match view.token(opener) {
        "(" => ")",
        "[" => "]",
        _ => return None,
    };
    let closer = view.closer(opener).filter(|closer| *closer <= view.last_of_line(opener));
    if closer.is_some_and(|closer| view.token(closer) == mark) {
        return None;
    }
    let ends = matches!(view.word(0), "{" | "}" | "") || is_word(view.word(0)) || is_partner(view.word(0));
    let expected = view.expected_words();
    if !ends || !expected.iter().any(|word| word == mark) {
        return None;
    }
    let end = view.range(-1).end;
    Some(
        Mistake::new(
            view.span(opener, opener),
            "opened here",
            format!("this `{}` is never closed", view.token(opener)),
        )
        .other(end..end, if mark == ")" { "`)` is missing here" } else { "`]` is missing here" })
        .help(format!("write `{}{mark}`", view.slice(opener.saturating_sub(1), view.at.saturating_sub(1))))
        .insert(end, mark),
    )
}

fn is_partner(word: &str) -> bool {
    matches!(word, ")" | "]")
}

/// `F[d)` and a bracket that closes nothing.
fn wrong_kind(view: &View<'_>) -> Option<Mistake> {
    let mark = view.word(0);
    if !is_partner(mark) {
        return None;
    }
    let opener = view.opener(view.at, &["(", "[", "{"]);
    let meant = match opener.map_or("{", |opener| view.token(opener)) {
        "(" => ")",
        "[" => "]",
        _ => {
            return Some(
                Mistake::new(view.range(0), "no bracket is open here", format!("this `{mark}` closes nothing"))
                    .help("leave it out")
                    .remove(view.range(0)),
            );
        }
    };
    let opener = view.span(opener?, opener?);
    (meant != mark).then(|| {
        Mistake::new(
            view.range(0),
            format!("`{meant}` is expected here"),
            format!("`{mark}` does not close `{}`", &view.text[opener.clone()]),
        )
        .other(opener, "opened here")
        .help(format!("write `{meant}`"))
        .replace(view.range(0), meant)
    })
}
