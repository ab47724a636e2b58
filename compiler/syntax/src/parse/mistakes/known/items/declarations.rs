//! Declarations, and the first words of statements, as other languages write them.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_word};
use crate::parse::mistakes::within::Within;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    definition,
    order_variable,
    block_period,
    parameters,
    bare_arguments,
    bare_checkpoint,
    decorator,
    modifier,
    bare_layer,
];

/// `def my_schedule() {` and `var width = 4` outside of braces.
fn definition(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    if view.within() != Within::File || !view.is_between_lines() || !is_name(view.word(1)) {
        return None;
    }
    let what = "not a keyword";
    if matches!(word, "const" | "var" | "val" | "static" | "set" | "int" | "float" | "auto" | "parameter") {
        return Some(
            Mistake::new(
                view.range(0),
                "not at this place",
                format!("a file has no `{word}` outside of its declarations"),
            )
            .help("write `param` for a number that all declarations can use")
            .replace(view.range(0), "param"),
        );
    }
    if !matches!(word, "def" | "fn" | "func" | "function" | "class" | "struct" | "fun" | "sub" | "proc" | "type") {
        return None;
    }
    let is_inside = |words: &[&str]| {
        let end =
            (view.at + 1..view.tokens.len()).find(|index| view.begins_line(*index) && view.indentation(*index) == 0);
        (view.at..end.unwrap_or(view.tokens.len())).any(|index| words.contains(&view.token(index)))
    };
    let meant = if is_inside(&["stages", "place", "order"]) {
        "schedule"
    } else if is_inside(&["weight", "input", "output", "loss"]) {
        "layer"
    } else if is_inside(&["devices", "microbatches", "train"]) {
        "pipeline"
    } else {
        "model"
    };
    Some(
        Mistake::new(view.range(0), what, format!("unknown keyword `{word}`"))
            .help(format!("declarations begin with `schedule`, `layer`, `model` or `pipeline`: write `{meant}`"))
            .replace(view.range(0), meant),
    )
}

/// `order(d) {`, `order 0 {`.
fn order_variable(view: &View<'_>) -> Option<Mistake> {
    if view.word(-1) != "order" {
        return None;
    }
    if view.word(0) == "(" && view.word(2) == ")" {
        let name = view.word(1);
        return Some(
            Mistake::new(
                view.range(0).start..view.range(2).end,
                "not in brackets",
                "the device of an order stands without brackets",
            )
            .help(format!("write `order {name}`"))
            .replace(view.range(-1).end..view.range(2).end, format!(" {name}")),
        );
    }
    let number = view.word(0);
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| {
        Mistake::new(view.range(0), "a name is expected here", "an order is for every device, not for one")
            .help(format!("write `order d {{ if d == {number} {{ .. }} else {{ .. }} }}`"))
            .replace(view.range(0), "d")
            .guess()
    })
}

/// `block {`, `block 3 {` and `every 3 {`.
fn block_period(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) == "every"
        && view.word(-1) != "block"
        && view.within() == Within::Schedule
        && view.is_between_lines()
    {
        return Some(
            Mistake::new(view.range(0), "`block` is missing before this", "a block begins with `block`")
                .help("write `block every`")
                .insert(view.range(0).start, "block "),
        );
    }
    let is_bare = view.word(-1) == "block" || view.word(0) == "{";
    if !is_bare || !view.expects(&[Rule::kw_every]) {
        return None;
    }
    let end = view.range(-1).end;
    let mistake =
        Mistake::new(end..end, "`every` is missing here", "a block does not say when the next microbatch starts");
    Some(match view.word(0) {
        "{" => mistake
            .help("write `block every n`: microbatch m + 1 starts n slots after microbatch m")
            .insert(end, " every 3")
            .guess(),
        "(" if view.word(2) == ")" => {
            let period = view.word(1);
            let place = view.range(0).start..view.range(2).end;
            mistake.help(format!("write `block every {period}`")).replace(end..place.end, format!(" every {period}"))
        }
        period if is_word(period) => mistake.help(format!("write `block every {period}`")).insert(end, " every"),
        _ => return None,
    })
}

/// `schedule x[chunks] {`.
fn parameters(view: &View<'_>) -> Option<Mistake> {
    let is_declared = matches!(view.word(-2), "schedule" | "layer" | "model");
    if view.word(0) != "[" || !is_declared {
        return None;
    }
    let closer = view.closer(view.at)?;
    let is_use = view.within() == Within::Pipeline;
    let what = if is_use { "arguments stand in round brackets" } else { "parameters stand in round brackets" };
    Some(
        Mistake::new(view.range(0), "`(` is expected here", what)
            .help("write `(` and `)`")
            .replace(view.range(0), "(")
            .replace(view.span(closer, closer), ")"),
    )
}

/// `checkpoint every 100`.
fn bare_checkpoint(view: &View<'_>) -> Option<Mistake> {
    let end = view.range(-1).end;
    (view.word(-1) == "checkpoint" && view.word(0) == "every" && view.expects(&[Rule::string])).then(|| {
        Mistake::new(end..end, "a path is missing here", "`checkpoint` does not say where to save")
            .help("write the path of a folder in quotes: `checkpoint \"checkpoints\" every n`")
            .insert(end, " \"checkpoints\"")
    })
}

/// `@schedule` in a line of its own.
fn decorator(view: &View<'_>) -> Option<Mistake> {
    let is_decorator = view.word(0) == "@" && view.within() == Within::File && view.begins_line(view.at);
    let last = view.last_of_line(view.at);
    is_decorator.then(|| {
        Mistake::new(view.span(view.at, last), "not needed", "declarations have no decorators")
            .help("leave this line out")
            .remove(view.span(view.at, last))
    })
}

/// `pub schedule`.
fn modifier(view: &View<'_>) -> Option<Mistake> {
    let is_declared = ["schedule", "layer", "model", "pipeline", "param", "import"].contains(&view.word(1));
    (view.within() == Within::File && is_name(view.word(0)) && is_declared && view.follows_on_line(1)).then(|| {
        let word = view.word(0);
        Mistake::new(view.range(0), "not needed", format!("`{word}` stands before a declaration"))
            .help(format!("leave `{word}` out: all declarations can be used everywhere"))
            .remove(view.range(0).start..view.range(1).start)
    })
}

/// `model gpt blocks = 8`.
fn bare_arguments(view: &View<'_>) -> Option<Mistake> {
    let is_use = matches!(view.word(-2), "model" | "schedule" | "optimizer") && is_word(view.word(-1));
    if !is_use || !is_name(view.word(0)) || view.word(1) != "=" || !view.follows_on_line(0) {
        return None;
    }
    let line = view.last_of_line(view.at);
    let last = if view.token(line) == "}" { line - 1 } else { line };
    let end = view.span(last, last).end;
    let meant = format!("{}({})", view.word(-1), view.slice(view.at, last));
    Some(
        Mistake::new(view.span(view.at, last), "not in brackets", "arguments stand in brackets")
            .help(format!("write `{meant}`"))
            .replace(view.range(-1).end..view.range(0).start, "(")
            .insert(end, ")"),
    )
}

/// `block` for `block()` in a model.
fn bare_layer(view: &View<'_>) -> Option<Mistake> {
    let ends = view.begins_line(view.at) || matches!(view.word(0), "}" | "");
    let is_bare = view.within() == Within::Model && is_name(view.word(-1)) && ends;
    let (name, end) = (view.word(-1), view.range(-1).end);
    (is_bare && view.expects(&[Rule::open_round, Rule::arguments])).then(|| {
        Mistake::new(end..end, "`()` is missing here", "a layer stands in a model with its arguments")
            .help(format!("write `{name}()`"))
            .insert(end, "()")
    })
}
