//! Declarations, and the first words of statements, as other languages write them.

use super::keywords;
use super::mistake::Mistake;
use super::view::{Expert, View, Within, is_name, is_word};
use crate::parse::grammar::Rule;
use crate::stdlib;
use crate::suggest;

pub(super) const EXPERTS: &[Expert] = &[
    import,
    from_import,
    unquoted_path,
    definition,
    without_let,
    changed_name,
    typed_name,
    two_names,
    second_name,
    order_variable,
    block_period,
    parameters,
    bare_arguments,
    bare_layer,
    bare_shape,
    no_first_value,
];

/// `import gpt`, `import models.gpt`, `import std/models/gpt`.
fn import(view: &View<'_>) -> Option<Mistake> {
    let first = (view.at.saturating_sub(3)..=view.at).find(|index| view.token(index.wrapping_sub(1)) == "import")?;
    let touches = |index: usize| {
        let (before, token) = (view.tokens.get(index - 1), view.tokens.get(index));
        before.zip(token).is_some_and(|(before, token)| before.end == token.start)
    };
    let mut last = first;
    loop {
        let mut next = last + 1;
        while touches(next) && matches!(view.token(next), "." | "/" | ":") {
            next += 1;
        }
        if next == last + 1 || !touches(next) || !is_word(view.token(next)) {
            break;
        }
        last = next;
    }
    let written = view.slice(first, last);
    if !is_name(view.token(first)) {
        return None;
    }
    let place = view.span(first, last);
    let dotted = written.replace("::", ".").replace(['/', ':'], ".");
    if let Some(path) = standard(&dotted) {
        let meant = format!("std.{path}");
        return Some(
            Mistake::new(place.clone(), "not a file", format!("`{written}` is not a file of the standard library"))
                .help(format!("write `{meant}`"))
                .replace(place, meant),
        );
    }
    let is_file = written.ends_with(".pipe");
    let meant = if is_file { written.to_owned() } else { format!("{written}.pipe") };
    Some(
        Mistake::new(place.clone(), "not in quotes", "the path of a file stands in quotes")
            .help(format!("write `\"{meant}\"`"))
            .replace(place, format!("\"{meant}\"")),
    )
}

/// The file of the standard library that is meant by a path, without `std.`.
fn standard(path: &str) -> Option<String> {
    let path = path.strip_prefix("std.").unwrap_or(path);
    let known: Vec<String> = stdlib::paths().collect();
    let is_part = |known: &&String| known.split('.').any(|part| part == path) || *known == path;
    let whole = known.iter().find(is_part).map(String::as_str);
    whole.or_else(|| suggest::closest(path, known.iter().map(String::as_str))).map(str::to_owned)
}

/// `from std.models.gpt import gpt` and `import std.models.gpt as g`.
fn from_import(view: &View<'_>) -> Option<Mistake> {
    let last = view.last_of_line(view.at);
    if view.word(0) == "as" && (view.first_of_line(view.at)..view.at).any(|index| view.token(index) == "import") {
        return Some(
            Mistake::new(view.span(view.at, last), "too many", "an import gives no other name")
                .help("leave it out: declarations are used by their own names")
                .remove(view.range(-1).end..view.span(last, last).end),
        );
    }
    let import = (view.at..=last).find(|index| view.token(*index) == "import")?;
    if view.word(0) != "from" || import < view.at + 2 || view.within() != Within::File {
        return None;
    }
    let module = view.slice(view.at + 1, import - 1);
    let known = standard(&format!("{module}.{}", view.token(import + 1))).or_else(|| standard(module));
    let path = known.map_or_else(|| module.to_owned(), |path| format!("std.{path}"));
    Some(
        Mistake::new(view.range(0), "not a keyword", "an import names a file, and brings all that it declares")
            .help(format!("write `import {path}`"))
            .replace(view.span(view.at, last), format!("import {path}")),
    )
}

/// `data shakespeare.txt`, `model llama.json`.
fn unquoted_path(view: &View<'_>) -> Option<Mistake> {
    let strings = [Rule::string, Rule::config_use];
    let first = if view.expects(&strings) && is_name(view.word(0)) {
        view.at
    } else if matches!(view.word(0), "." | "/") && view.touches(0) {
        view.at.checked_sub(1)?
    } else {
        return None;
    };
    if !matches!(view.token(first.checked_sub(1)?), "data" | "model" | "checkpoint") {
        return None;
    }
    let mut last = first;
    while view.tokens.get(last + 1).is_some_and(|next| next.start == view.tokens[last].end)
        && (is_word(view.token(last + 1)) || matches!(view.token(last + 1), "." | "/" | "-"))
    {
        last += 1;
    }
    let path = view.slice(first, last);
    Some(
        Mistake::new(view.span(first, last), "not in quotes", "the path of a file stands in quotes")
            .help(format!("write `\"{path}\"`"))
            .replace(view.span(first, last), format!("\"{path}\"")),
    )
}

/// `def my_schedule() {` and `let width = 4` outside of braces.
fn definition(view: &View<'_>) -> Option<Mistake> {
    let word = view.word(0);
    if view.within() != Within::File || !view.is_between_lines() || !is_name(view.word(1)) {
        return None;
    }
    let what = "not a keyword";
    if matches!(word, "let" | "const" | "var" | "val" | "static" | "set" | "int" | "float" | "auto" | "parameter") {
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

/// `x = 3`, `var x = 3`.
fn without_let(view: &View<'_>) -> Option<Mistake> {
    let within = view.within();
    if !matches!(within, Within::Schedule | Within::Layer | Within::Model | Within::Order | Within::File) {
        return None;
    }
    let keyword = if within == Within::File { "param" } else { "let" };
    if matches!(view.word(0), "var" | "val" | "const" | "auto" | "int" | "float" | "local" | "set" | "define")
        && is_name(view.word(1))
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

/// `x += 1` and `x++`.
fn changed_name(view: &View<'_>) -> Option<Mistake> {
    let mark = if is_name(view.word(0)) { view.at + 1 } else { view.at };
    let is_step = matches!(view.token(mark), "+" | "-" | "*" | "/") && view.token(mark + 1) == "=";
    let is_doubled = matches!(view.token(mark), "+" | "-")
        && view.token(mark + 1) == view.token(mark)
        && !is_word(view.token(mark + 2));
    let name = mark.checked_sub(1)?;
    if !(is_step || is_doubled) || !is_name(view.token(name)) || !view.begins_line(name) {
        return None;
    }
    let last = view.last_of_line(mark + 1);
    Some(
        Mistake::new(
            view.span(name, mark + 1),
            "keeps its value",
            format!("the value of `{}` cannot change", view.token(name)),
        )
        .help("give the new value a name of its own with `let`, or compute it from the number of the loop")
        .remove(view.span(name, last))
        .guess(),
    )
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
        "mut" | "int" | "float" | "const" | "device" | "stage" | "ref" | "auto" | "each" | "all"
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
    if view.word(0) == "every" && view.within() == Within::Schedule && view.is_between_lines() {
        return Some(
            Mistake::new(view.range(0), "`block` is missing before this", "a block begins with `block`")
                .help("write `block every`")
                .insert(view.range(0).start, "block "),
        );
    }
    if view.word(-1) != "block" || !view.expects(&[Rule::kw_every]) {
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
    Some(
        Mistake::new(view.range(0), "`(` is expected here", "parameters stand in round brackets")
            .help("write `(` and `)`")
            .replace(view.range(0), "(")
            .replace(view.span(closer, closer), ")"),
    )
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

/// `weight w: 4, 4 = zeros`.
fn bare_shape(view: &View<'_>) -> Option<Mistake> {
    if !view.expects(&[Rule::shape, Rule::open_square]) || view.within() != Within::Layer || !is_word(view.word(0)) {
        return None;
    }
    let assign = (view.at..=view.last_of_line(view.at)).find(|index| view.token(*index) == "=");
    let last = assign.map_or(view.last_of_line(view.at), |assign| assign.saturating_sub(1));
    let sizes = view.slice(view.at, last);
    Some(
        Mistake::new(view.span(view.at, last), "not in brackets", "the sizes of a tensor stand in square brackets")
            .help(format!("write `[{sizes}]`"))
            .replace(view.span(view.at, last), format!("[{sizes}]")),
    )
}

/// `weight w: [4, 4]`.
fn no_first_value(view: &View<'_>) -> Option<Mistake> {
    let ends = view.begins_line(view.at) || matches!(view.word(0), "}" | "");
    let end = view.range(-1).end;
    (view.within() == Within::Layer && view.word(-1) == "]" && view.expects(&[Rule::assign]) && ends).then(|| {
        Mistake::new(end..end, "`=` is missing here", "a weight does not say what it is before training")
            .help("write `= zeros`, `= ones` or `= normal(deviation)`")
            .insert(end, " = zeros")
            .guess()
    })
}
