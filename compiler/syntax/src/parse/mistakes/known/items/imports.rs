//! Imports and other paths.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::known::vocabulary::keywords;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_word};
use crate::parse::mistakes::within::Within;
use crate::stdlib;
use crate::suggest;

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[import, from_import, unquoted_path, second_path];

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
    if !written.contains(['/', '.']) {
        return Some(
            Mistake::new(place.clone(), "not a file", format!("there is no file `{written}` in the standard library"))
                .help("an import names a file: `std.models.gpt`, or a path in quotes")
                .remove(view.range(0).start.min(view.span(first - 1, first - 1).start)..place.end)
                .guess(),
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
    let is_path = matches!(view.token(first.checked_sub(1)?), "data" | "model" | "checkpoint");
    if !is_path || keywords::is_keyword(view.token(first)) {
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

/// `import a, b`.
fn second_path(view: &View<'_>) -> Option<Mistake> {
    let is_import = view.token(view.first_of_line(view.at)) == "import" && view.within() == Within::File;
    (view.word(0) == "," && is_import && view.follows_on_line(1)).then(|| {
        Mistake::new(view.range(0), "`import` is expected here", "an import names one file")
            .help("write `import` before each")
            .replace(view.range(0).start..view.range(1).start, " import ")
    })
}
