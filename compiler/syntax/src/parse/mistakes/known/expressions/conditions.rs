//! Conditions as other languages write them.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::resume;
use crate::parse::mistakes::view::{Detector, View};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    else_if,
    unless,
    one_of,
    question_mark,
    behind_value,
    braces_in_expression,
    then_before_body,
    missing_else,
    else_with_condition,
    condition_behind_value,
    no_condition,
    lonely_else,
];

/// `elif`.
fn else_if(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    let is_known = matches!(word, "elif" | "elsif" | "elseif" | "elsf" | "elsefif");
    is_known.then(|| {
        Mistake::new(view.range(0), "not a keyword", format!("unknown keyword `{word}`"))
            .help("write `else if`")
            .replace(view.range(0), "else if")
    })
}

/// `unless d == 0 {`.
fn unless(view: &View<'_>) -> Option<Mistake> {
    let is_statement = view.word(0) == "unless" && view.is_between_lines();
    let last = view.expression_behind(view.at + 1).filter(|_| is_statement)?;
    let meant = format!("if not ({})", view.slice(view.at + 1, last));
    Some(
        Mistake::new(view.range(0), "not a keyword", "unknown keyword `unless`")
            .help(format!("write `{meant}`"))
            .replace(view.span(view.at, last), meant),
    )
}

/// `d in [0, 1]`.
fn one_of(view: &View<'_>) -> Option<Mistake> {
    let is_list = view.word(0) == "in" && matches!(view.word(1), "[" | "(" | "{") && view.expects_operator();
    let closer = view.closer(view.at + 1).filter(|_| is_list)?;
    let first = view.operand_before(view.at.checked_sub(1)?)?;
    let operand = view.slice(first, view.at - 1);
    let equals: Vec<String> =
        view.arguments(view.at + 1, closer).iter().map(|value| format!("{operand} == {value}")).collect();
    let meant = format!("({})", equals.join(" or "));
    Some(
        Mistake::new(view.range(0), "not an operator", "there is no operator `in`")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, closer), meant),
    )
}

/// `d == 0 ? 1 : 2`.
fn question_mark(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "?" {
        return None;
    }
    let first = view.expression_before(view.at.checked_sub(1)?)?;
    let then = view.expression_behind(view.at + 1)?;
    if view.token(then + 1) != ":" {
        return None;
    }
    let otherwise = view.expression_behind(then + 2)?;
    let condition = view.slice(first, view.at - 1);
    let meant =
        format!("if {condition} then {} else {}", view.slice(view.at + 1, then), view.slice(then + 2, otherwise));
    Some(
        Mistake::new(view.range(0), "not an operator", "there is no operator `?`")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, otherwise), bracketed(view, first, meant)),
    )
}

/// `1 if d == 0 else 2`.
fn behind_value(view: &View<'_>) -> Option<Mistake> {
    let start = view.first_of_line(view.at.min(view.tokens.len().checked_sub(1)?));
    let keyword = match view.word(0) {
        "if" => view.at,
        "else" => (start..view.at).rev().find(|index| view.token(*index) == "if")?,
        _ => return None,
    };
    let condition = view.expression_behind(keyword + 1)?;
    if view.token(condition + 1) != "else" {
        return None;
    }
    let first = view.expression_before(keyword.checked_sub(1)?)?;
    let otherwise = view.expression_behind(condition + 2)?;
    let value = view.slice(first, keyword - 1);
    let meant =
        format!("if {} then {value} else {}", view.slice(keyword + 1, condition), view.slice(condition + 2, otherwise));
    Some(
        Mistake::new(view.span(keyword, keyword), "the condition comes first", "a value stands before its condition")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, otherwise), bracketed(view, first, meant)),
    )
}

/// A condition in brackets, if an operator stands before it.
fn bracketed(view: &View<'_>, first: usize, meant: String) -> String {
    let is_operand = first > 0 && matches!(view.token(first - 1), "+" | "-" | "*" | "/" | "%");
    if is_operand { format!("({meant})") } else { meant }
}

/// `let x = if d == 0 { 1 } else { 2 }`.
fn braces_in_expression(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "{" || !view.expects(&[Rule::kw_then]) {
        return None;
    }
    let closer = view.closer(view.at)?;
    let mut mistake =
        Mistake::new(view.range(0), "`then` is expected here", "an `if` inside an expression has no braces")
            .help("inside an expression, write `if condition then value else other`")
            .replace(view.range(0), "then")
            .remove(view.spaced(closer));
    if view.token(closer + 1) == "else" && view.token(closer + 2) == "{" {
        let last = view.closer(closer + 2)?;
        let opener = view.span(closer + 2, closer + 2);
        let behind = view.tokens.get(closer + 3).map_or(opener.end, |token| token.start);
        mistake = mistake.remove(opener.start..behind).remove(view.spaced(last));
    }
    Some(mistake)
}

/// `if d == 0 then { F[d] }`.
fn then_before_body(view: &View<'_>) -> Option<Mistake> {
    let is_statement = view.word(0) == "then" && view.word(1) == "{" && view.expects(&[Rule::open, Rule::body]);
    is_statement.then(|| {
        Mistake::new(view.range(0), "too many", "an `if` with braces has no `then`")
            .help("leave `then` out")
            .remove(view.range(0).start..view.range(1).start)
    })
}

/// `let x = if d == 0 then 1`.
fn missing_else(view: &View<'_>) -> Option<Mistake> {
    if !view.expects(&[Rule::kw_else]) || view.is_between_lines() || view.word(0) == "else" {
        return None;
    }
    let then = (0..view.at).rev().find(|index| matches!(view.token(*index), "then" | "{" | "}"))?;
    if view.token(then) != "then" {
        return None;
    }
    let end = view.range(-1).end;
    Some(
        Mistake::new(end..end, "`else` is missing here", "an `if` in an expression has no `else`")
            .help("say what the value is otherwise: `if condition then value else other`")
            .insert(end, " else 0")
            .guess(),
    )
}

/// `else d == 1 {`.
fn else_with_condition(view: &View<'_>) -> Option<Mistake> {
    let last = view.expression_behind(view.at)?;
    let end = view.range(-1).end;
    (view.word(-1) == "else" && view.token(last + 1) == "{" && view.expects(&[Rule::open, Rule::body])).then(|| {
        Mistake::new(end..end, "`if` is missing here", "a condition stands behind `else`")
            .help(format!("write `else if {}`", view.slice(view.at, last)))
            .insert(end, " if")
    })
}

/// `let x = 1 if d > 0`.
fn condition_behind_value(view: &View<'_>) -> Option<Mistake> {
    let last = view.expression_behind(view.at + 1)?;
    let is_behind = view.word(0) == "if" && view.follows_on_line(0) && view.expects_operator();
    (is_behind && view.token(last + 1) != "{").then(|| {
        let condition = view.slice(view.at + 1, last);
        let start = view.first_of_line(view.at) + 1;
        if view.token(start - 1) == "recompute" {
            let is_name = |index: usize| {
                let token = view.token(index);
                token == "," || token != "F" && token.starts_with(|first: char| first.is_ascii_alphabetic())
            };
            let are_names = (start..view.at).all(is_name);
            let names = if are_names { view.slice(start, view.at - 1) } else { "s, m" };
            let meant = format!("F[{names}] if {condition}");
            let message = "`recompute` with a condition needs `F[..]`";
            let mistake = Mistake::new(view.span(start, view.at - 1), "not a forward", message)
                .help(format!("write `recompute {meant}`"))
                .replace(view.span(start, last), meant);
            return if are_names { mistake } else { mistake.guess() };
        }
        Mistake::new(view.range(0), "the condition comes first", "a value stands before its condition")
            .help(format!("write `if {condition} then value else other`"))
            .remove(view.span(view.at, last))
            .guess()
    })
}

/// `if {`.
fn no_condition(view: &View<'_>) -> Option<Mistake> {
    let end = view.range(-1).end;
    (view.word(-1) == "if" && matches!(view.word(0), "{" | "then")).then(|| {
        Mistake::new(end..end, "a condition is missing here", "`if` has no condition")
            .help("write `if d == 0`, or what must hold instead")
            .insert(end, " 1 == 1")
            .guess()
    })
}

/// `else` without `if`.
fn lonely_else(view: &View<'_>) -> Option<Mistake> {
    let is_lonely = view.word(0) == "else" && view.is_between_lines() && !view.expects(&[Rule::kw_else]);
    is_lonely.then(|| {
        Mistake::new(view.range(0), "no `if` before this", "`else` belongs to no `if`")
            .help("write `else` right behind the `}` of an `if`")
            .remove(resume::statement(view))
            .guess()
    })
}
