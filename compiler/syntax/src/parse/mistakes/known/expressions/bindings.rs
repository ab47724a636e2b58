//! Names that are given a value, as other languages do it.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_word};
use crate::parse::mistakes::within::Within;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] =
    &[counted_up, without_let, changed_name, typed_name, two_names, second_name, function];

/// `i = i + 1`.
fn counted_up(view: &View<'_>) -> Option<Mistake> {
    let name = if view.word(1) == "=" { view.at } else { view.at.checked_sub(1).filter(|_| view.word(0) == "=")? };
    let word = view.token(name);
    let last = view.expression_behind(name + 2)?;
    let is_again = (name + 2..=last).any(|index| view.token(index) == word);
    if !is_name(word) || !is_again || view.within() != Within::Order || view.token(name.checked_sub(1)?) == "let" {
        return None;
    }
    Some(
        Mistake::new(view.span(name, last), "keeps its value", format!("the value of `{word}` cannot change"))
            .help(format!("let a loop count: `for {word} in 0..M {{ .. }}`"))
            .remove(view.span(name, last))
            .guess(),
    )
}

/// `x = 3`, `var x = 3`.
fn without_let(view: &View<'_>) -> Option<Mistake> {
    let within = view.within();
    if !matches!(within, Within::Schedule | Within::Layer | Within::Model | Within::Order | Within::File) {
        return None;
    }
    let keyword = if within == Within::File { "param" } else { "let" };
    if matches!(
        view.word(0),
        "var" | "val" | "const" | "auto" | "constant" | "number" | "int" | "float" | "local" | "set" | "define"
    ) && is_name(view.word(1))
    {
        return Some(
            Mistake::new(view.range(0), "not a keyword", format!("unknown keyword `{}`", view.word(0)))
                .help(format!("write `{keyword}`"))
                .replace(view.range(0), keyword),
        );
    }
    let name = if view.word(1) == "=" || view.word(1) == ":" && view.word(2) == "=" {
        view.at
    } else if view.word(0) == "=" {
        view.at.checked_sub(1)?
    } else {
        return None;
    };
    let begins = view.begins_line(name) || matches!(view.token(name.wrapping_sub(1)), "{" | "}");
    let is_keyword = keywords::beginnings(within).iter().any(|word| word == view.token(name));
    if !is_name(view.token(name)) || !begins || is_keyword {
        return None;
    }
    let start = view.span(name, name).start;
    let word = view.token(name);
    Some(
        Mistake::new(
            view.span(name, name),
            format!("`{keyword}` is missing before this"),
            format!("`{word}` is given a value without `{keyword}`"),
        )
        .help(format!("write `{keyword} {word} = ..`"))
        .insert(start, format!("{keyword} ")),
    )
}

/// `param f(x) = x + 1`, and `let f(x) = x + 1` where there are no functions.
fn function(view: &View<'_>) -> Option<Mistake> {
    let is_declared = view.word(0) == "(" && matches!(view.word(-2), "let" | "param");
    let closer = view.closer(view.at).filter(|_| is_declared)?;
    let parameters = view.span(view.at, closer);
    if view.word(-2) == "param" {
        return Some(
            Mistake::new(parameters, "not a value", "`param` names one value")
                .help("write `let` for a function")
                .replace(view.range(-2), "let"),
        );
    }
    let message = format!("{} has no functions of its own", view.within().phrase());
    Some(
        Mistake::new(parameters, "not a value", message)
            .help("declare the function in the schedule, or outside of all braces: here `let` names one value")
            .remove(view.span(view.at, closer))
            .guess(),
    )
}

/// `x += 1` and `x++`.
fn changed_name(view: &View<'_>) -> Option<Mistake> {
    let mark = if is_name(view.word(0)) { view.at + 1 } else { view.at };
    let is_step = matches!(view.token(mark), "+" | "-" | "*" | "/") && view.token(mark + 1) == "=";
    let is_doubled = matches!(view.token(mark), "+" | "-")
        && view.token(mark + 1) == view.token(mark)
        && (!is_word(view.token(mark + 2)) || view.begins_line(mark + 2));
    let name = mark.checked_sub(1)?;
    if !(is_step || is_doubled) || !is_name(view.token(name)) || !view.begins_line(name) {
        return None;
    }
    let word = view.token(name);
    let mistake =
        Mistake::new(view.span(name, mark + 1), "keeps its value", format!("the value of `{word}` cannot change"));
    if let Some((last, value)) = changed_value(view, name, mark) {
        let meant = format!("let {word} = {value}");
        return Some(mistake.help(format!("write `{meant}`")).replace(view.span(name, last), meant));
    }
    let last = view.last_of_line(mark + 1);
    Some(
        mistake
            .help("give the new value a name of its own with `let`, or compute it from the number of the loop")
            .remove(view.span(name, last))
            .guess(),
    )
}

/// The last token of `x += 1`, and the value `x + 1`, where a second `let` may name it: behind the first one, between
/// the same braces, and before something that reads it.
fn changed_value(view: &View<'_>, name: usize, mark: usize) -> Option<(usize, String)> {
    let (word, sign) = (view.token(name), view.token(mark));
    let opener = view.opener(name, &["{"])?;
    let is_let = |index: usize| view.token(index) == "let" && view.token(index + 1) == word;
    let first = (opener..name).rev().find(|index| is_let(*index) && view.opener(*index, &["{"]) == Some(opener));
    if view.within() != Within::Order || first.is_none() {
        return None;
    }
    let (last, value) = match view.token(mark + 1) {
        "=" => {
            let last = view.expression_behind(mark + 2)?;
            let value = view.slice(mark + 2, last);
            (last, if last > mark + 2 { format!("({value})") } else { value.to_owned() })
        }
        _ => (mark + 1, "1".to_owned()),
    };
    (view.token(last + 1) != "}").then(|| (last, format!("{word} {sign} {value}")))
}

/// `let x: int = 3`, and types in the brackets of a declaration.
fn typed_name(view: &View<'_>) -> Option<Mistake> {
    let before = view.at.checked_sub(2)?;
    let is_declared = matches!(view.token(before), "let" | "param" | "(" | ",");
    if view.word(0) != ":" || !is_declared || !is_name(view.word(-1)) || !view.expects(&[Rule::assign, Rule::comma]) {
        return None;
    }
    let mut last = view.at + 1;
    if view.word(1) == "=" {
        return Some(
            Mistake::new(
                view.range(0).start..view.range(1).end,
                "`=` is expected here",
                "a value is given with `=`, not with `:=`",
            )
            .help("write `=`")
            .replace(view.range(0).start..view.range(1).end, "="),
        );
    }
    while view.token(last + 1) == "[" {
        last = view.closer(last + 1)?;
    }
    if !matches!(
        view.token(last),
        "int"
            | "float"
            | "number"
            | "Tensor"
            | "tensor"
            | "i32"
            | "i64"
            | "u32"
            | "usize"
            | "f32"
            | "f64"
            | "str"
            | "bool"
            | "List"
            | "]"
    ) {
        let value = view.expression_behind(view.at + 1)?;
        return Some(
            Mistake::new(view.range(0), "`=` is expected here", "a value is given with `=`, not with `:`")
                .help(format!("write `{} = {}`", view.word(-1), view.slice(view.at + 1, value)))
                .replace(view.range(-1).end..view.range(0).end, " ="),
        );
    }
    Some(
        Mistake::new(view.span(view.at, last), "too many", "names have no type")
            .help("leave the type out")
            .remove(view.range(-1).end..view.span(last, last).end),
    )
}

/// `let a, b = 1, 2` and `let mut x = 3`.
fn two_names(view: &View<'_>) -> Option<Mistake> {
    let is_word_before = matches!(
        view.word(-1),
        "mut" | "int" | "float" | "const" | "device" | "stage" | "ref" | "auto" | "each" | "all" | "lambda"
    ) && is_name(view.word(0))
        && matches!(view.word(-2), "let" | "order" | "place" | "param" | "for" | "on" | ",");
    if is_word_before {
        let word = view.word(-1);
        return Some(
            Mistake::new(
                view.range(-1),
                "too many",
                format!("`{word}` is not expected before the name `{}`", view.word(0)),
            )
            .help(format!("leave `{word}` out"))
            .remove(view.range(-1).start..view.range(0).start),
        );
    }
    let last = view.at + 1;
    let assign = last + 1;
    if view.word(0) != "," || view.word(-2) != "let" || view.token(assign) != "=" {
        return None;
    }
    let first_value = view.expression_behind(assign + 1)?;
    let second_value = view.expression_behind(first_value + 2)?;
    if view.token(first_value + 1) != "," {
        return None;
    }
    let meant = format!(
        "let {} = {} let {} = {}",
        view.word(-1),
        view.slice(assign + 1, first_value),
        view.token(last),
        view.slice(first_value + 2, second_value)
    );
    Some(
        Mistake::new(view.range(0), "a second name", "`let` names one value")
            .help(format!("write `{meant}`"))
            .replace(view.span(view.at - 2, second_value), meant),
    )
}

/// `let x = 1, y = 2` and `param x = 1, y = 2`.
fn second_name(view: &View<'_>) -> Option<Mistake> {
    let first =
        (0..view.at).rev().find(|index| view.begins_line(*index) || matches!(view.token(*index), "let" | "param"))?;
    let keyword = view.token(first);
    let is_second = view.word(0) == "," && is_name(view.word(1)) && view.word(2) == "=";
    (is_second && matches!(keyword, "let" | "param")).then(|| {
        Mistake::new(view.range(0), "a second name", format!("`{keyword}` names one value"))
            .help(format!("write `{keyword}` before `{}` as well", view.word(1)))
            .replace(view.range(0).start..view.range(1).start, format!(" {keyword} "))
    })
}
