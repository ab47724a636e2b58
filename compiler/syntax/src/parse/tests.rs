//! The parser: what it accepts, and what it says of what it does not.

use super::*;
use crate::ast::{Declaration, ExprKind, ScheduleItem};

fn declarations(text: &str) -> Vec<Declaration> {
    parse(FileId(0), text).unwrap_or_else(|errors| panic!("{errors:#?}")).declarations
}

fn messages(text: &str) -> Vec<String> {
    parse(FileId(0), text).expect_err("it is wrong").into_iter().map(|error| error.message).collect()
}

#[test]
fn everything_of_the_language_parses() {
    let text = include_str!("tests/everything.pipe");
    let found = declarations(text);
    assert_eq!(found.len(), 15);
    let Declaration::Let(tokens) = &found[4] else { panic!("{:?}", found[4]) };
    assert_eq!(tokens.file.as_ref().map(|file| file.text.as_str()), Some("tokens.txt"));
    let Declaration::Function(function) = &found[6] else { panic!("{:?}", found[6]) };
    assert_eq!(
        (function.name.text.as_str(), function.doc.as_str()),
        ("warmup_of", "Forwards before the first backward.")
    );
    let Declaration::Schedule(schedule) = &found[8] else { panic!("{:?}", found[8]) };
    assert_eq!(schedule.name.text, "1f1b_twice");
    assert_eq!(schedule.doc, "Two lines\nof documentation.");
    let place = schedule.items.iter().find_map(|item| match item {
        ScheduleItem::Place { span, .. } => Some(&text[span.start as usize..span.end as usize]),
        _ => None,
    });
    assert_eq!(place, Some("place s on s % D"));
}

#[test]
fn operators_bind_as_everywhere() {
    let show = |text: &str| {
        let found = declarations(&format!("param x = {text}"));
        let Declaration::Parameter(parameter) = &found[0] else { panic!("{found:?}") };
        shown(parameter.default.as_ref().expect("it has a value"))
    };
    assert_eq!(show("1 + 2 * 3 - 4"), "((1 + (2 * 3)) - 4)");
    assert_eq!(show("k / D % c * D + d"), "((((k / D) % c) * D) + d)");
    assert_eq!(show("not a == b and c or d"), "(((not (a == b)) and c) or d)");
    assert_eq!(show("-a * b"), "((-a) * b)");
    assert_eq!(show("if a then b else if c then d else e"), "(if a then b else (if c then d else e))");
    assert_eq!(show("(1 + 2) * 3"), "((1 + 2) * 3)");
    assert_eq!(show("-a[b + 1][c] * d[e] - 1"), "(((-a[(b + 1)][c]) * d[e]) - 1)");
    assert_eq!(show("[a, b][0] - [k for k in 0..c][1]"), "([a, b][0] - [k for k in 0..c][1])");
}

fn shown(expr: &ast::Expr) -> String {
    match &expr.kind {
        ExprKind::Integer(number) => number.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Unary(ast::UnaryOp::Negate, x) => format!("(-{})", shown(x)),
        ExprKind::Unary(ast::UnaryOp::Not, x) => format!("(not {})", shown(x)),
        ExprKind::Binary(op, x, y) => format!("({} {} {})", shown(x), op.symbol(), shown(y)),
        ExprKind::If { condition, then, otherwise } => {
            format!("(if {} then {} else {})", shown(condition), shown(then), shown(otherwise))
        }
        ExprKind::Index(list, position) => format!("{}[{}]", shown(list), shown(position)),
        ExprKind::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        ExprKind::Each { item, variable, start, end } => {
            format!("[{} for {} in {}..{}]", shown(item), variable.text, shown(start), shown(end))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn errors_say_what_was_expected() {
    for (text, message) in [
        ("schedule x {\n  block ebery of 3 { }\n}", "unknown keyword `ebery`"),
        ("schedule x { stages }", "`stages` has no value"),
        ("param x = )", "`x` has no value"),
        ("param x = 1 +", "nothing stands behind `+`"),
        ("import 3", "expected `std.` with a name or a text in quotes, found `3`"),
        ("schedule x { place s on s && 1 }", "there is no operator `&&`"),
        ("pipeline p { require peak < 3 }", "a limit is written with `<=`, not with `<`"),
        ("model m() { head(1 }", "this `(` is never closed"),
        ("schedule x { order d { F[d }", "never closed"),
        ("layer l { weight w: [2] = spread }", "expected `zeros`, `ones` or `normal(deviation)`, found `spread`"),
        ("schedule x {", "this `{` is never closed"),
        ("wat", "found `wat`"),
        ("param é = 1", "names cannot contain the letter `é`"),
    ] {
        let found = messages(text);
        assert!(found[0].contains(message), "{text}: {found:?}");
    }
}

#[test]
fn errors_of_later_declarations_are_found_too() {
    let text = "schedule a { stages }\nschedule b { stages 1 }\nmodel m {\n  head(,)\n}\nparam x 3\n";
    assert_eq!(messages(text).len(), 3, "{:?}", messages(text));
}

#[test]
fn deep_nesting_is_an_error() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("if ", ""), ("if 1 then ", ""), ("f(", ")")]
    {
        for n in [60, 100_000] {
            let text = format!("param x = {}1{}", open.repeat(n), close.repeat(n));
            assert!(parse(FileId(0), &text).is_err(), "{open}");
        }
    }
    let statements = format!("schedule x {{ order d {} }}", "{ repeat 2 ".repeat(100_000));
    assert!(parse(FileId(0), &statements).is_err());
    let chain = format!("param x = 1{}", " + 1".repeat(100_000));
    assert!(messages(&chain)[0].contains("more than 200 operations"));
    let elses = format!("param x = {}1", "if a then 1 else ".repeat(100_000));
    assert!(parse(FileId(0), &elses).is_err());
    let branches = format!("schedule x {{ order d {{ if 1 == 1 {{ }} {} }} }}", "else if 1 == 1 { } ".repeat(3_000));
    assert_eq!(declarations(&branches).len(), 1, "branches lie side by side");
}

#[test]
fn allowed_nesting_fits_on_a_small_stack() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("if 1 then ", " else 2"), ("f(", ")")] {
        let n = MAX_NESTING;
        let text = format!("param x = {}1{}", open.repeat(n), close.repeat(n));
        assert_eq!(declarations(&text).len(), 1, "{open}");
    }
}
