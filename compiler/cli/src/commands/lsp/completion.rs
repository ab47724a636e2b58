//! What can be written next: the parser says which words it would take, and the names that fit there.

use super::hover::{described, in_comment, word};
use super::server::Here;
use lsp_types::Range;
use pipe_ide::reference::{self, CONSTANTS, NUMBERS};
use pipe_ide::{Definition, NameKind};
use pipe_ir::training::Optimizer;
use pipe_syntax::source::FileId;
use pipe_syntax::{parse, stdlib};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kinds of completions, as the protocol counts them.
mod kind {
    pub(super) const FUNCTION: u8 = 3;
    pub(super) const VARIABLE: u8 = 6;
    pub(super) const CLASS: u8 = 7;
    pub(super) const MODULE: u8 = 9;
    pub(super) const PROPERTY: u8 = 10;
    pub(super) const KEYWORD: u8 = 14;
    pub(super) const CONSTANT: u8 = 21;
}

/// What is offered, by what is written.
type Offers = BTreeMap<String, (u8, String)>;

pub(super) fn complete(here: &Here<'_>) -> Value {
    let text = &here.document.text;
    let (mut start, _) = word(text, here.byte);
    let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let is_import = text[line..start].trim_start().starts_with("import ");
    if is_import {
        start = text[..start].rfind(char::is_whitespace).map_or(line, |space| space + 1);
    } else if in_comment(text, start) {
        return json!([]);
    }
    let mut offers = Offers::new();
    if is_import && !in_comment(text, start) {
        offers.extend(stdlib::paths().map(|path| (format!("std.{path}"), (kind::MODULE, String::new()))));
    } else if !is_import {
        let begins = parse::declaration_starts(text).take_while(|begins| *begins < start).last().unwrap_or(0);
        offer(here, &text[begins..start], text.get(here.byte..).unwrap_or_default(), &mut offers);
    }
    let lines = here.project.lines(FileId(0));
    let range = lines.range(text, start, here.byte.max(start));
    Value::Array(offers.into_iter().map(|(label, (kind, detail))| item(&label, kind, &detail, range)).collect())
}

fn item(label: &str, kind: u8, detail: &str, range: Range) -> Value {
    let text = if kind == kind::PROPERTY { format!("{label} = ") } else { label.to_owned() };
    json!({"label": label, "kind": kind, "detail": detail, "textEdit": {"range": range, "newText": text}})
}

/// Offers what fits behind the beginning of a declaration; `rest` is what follows.
fn offer(here: &Here<'_>, begin: &str, rest: &str, offers: &mut Offers) {
    let phrases = parse::expected_behind(begin);
    for word in phrases.iter().flat_map(|phrase| phrase.split('`').skip(1).step_by(2)) {
        if let Some(text) = described(word).or_else(|| reference::words().any(|known| known == word).then(String::new))
        {
            let line = text.lines().next().unwrap_or_default().to_owned();
            offers.insert(word.to_owned(), (kind::KEYWORD, line));
        }
    }
    let expects = |wanted: &str| phrases.iter().any(|phrase| phrase.contains(wanted));
    let declares = begin.split_whitespace().next().unwrap_or_default();
    let is_head = !begin.contains('{');
    let last = begin.split_whitespace().last().unwrap_or_default();
    let globals = |kind: NameKind| {
        let all =
            here.project.names.definitions.iter().filter(move |found| found.kind == kind && found.owner.is_none());
        all.map(|found| (found.name.clone(), (kind::CLASS, first_line(found))))
    };
    match (declares, last) {
        _ if is_head && !expects("an expression") => {}
        ("pipeline", "model") => offers.extend(globals(NameKind::Model)),
        ("pipeline", "optimizer") => {
            let named = |name: &str| (name.to_owned(), (kind::FUNCTION, "an optimizer".to_owned()));
            offers.extend(Optimizer::NAMES.iter().map(|name| named(name)));
        }
        _ if expects("the name of a schedule") => offers.extend(globals(NameKind::Schedule)),
        _ => {}
    }
    let is_layer_place = declares == "model" && !is_head && (expects("`repeat`") || last == "=");
    if is_layer_place {
        offers.extend(globals(NameKind::Layer));
    }
    if expects("an expression") {
        let text = described("if").unwrap_or_default();
        offers.insert("if".to_owned(), (kind::KEYWORD, text.lines().next().unwrap_or_default().to_owned()));
        offers.extend(numbers(here, begin, rest, declares));
    }
    if let Some(callee) = open_call(begin) {
        let called = |found: &Definition| found.owner.is_none() && found.name == callee;
        for (index, _) in here.project.names.definitions.iter().enumerate().filter(|(_, found)| called(found)) {
            let parameters = here.project.names.inside(index).filter(|(_, inside)| inside.kind == NameKind::Parameter);
            offers.extend(parameters.map(|(_, parameter)| {
                (parameter.name.clone(), (kind::PROPERTY, here.project.written(parameter.whole).to_owned()))
            }));
        }
    }
}

fn first_line(definition: &Definition) -> String {
    definition.doc.lines().next().unwrap_or_default().to_owned()
}

/// Names of numbers and functions: those that every source has, parameters of files, and names of
/// the declaration at hand, which may not parse yet.
fn numbers(here: &Here<'_>, begin: &str, rest: &str, declares: &str) -> Offers {
    let mut offers: Offers = Offers::new();
    if declares == "layer" {
        offers.extend(reference::functions().map(|(name, usage)| (name.to_owned(), (kind::FUNCTION, usage))));
    } else {
        let constants = CONSTANTS.iter().map(|(name, text)| ((*name).to_owned(), (kind::CONSTANT, (*text).to_owned())));
        let functions = NUMBERS.iter().map(|(name, usage)| ((*name).to_owned(), (kind::FUNCTION, (*usage).to_owned())));
        offers.extend(constants.chain(functions));
    }
    let parameters = here.project.names.definitions.iter().filter(|found| found.kind == NameKind::FileParameter);
    offers.extend(
        parameters.map(|found| {
            (found.name.clone(), (kind::VARIABLE, format!("param {}", here.project.written(found.whole))))
        }),
    );
    let end = parse::declaration_starts(rest).find(|begins| *begins > 0).unwrap_or(rest.len());
    let pieces = |text: &str| -> Vec<String> {
        let code =
            text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect::<String>();
        let words = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.map(str::to_owned).collect()
    };
    let behind = pieces(&rest[..end]);
    for name in pieces(begin).into_iter().skip(2).chain(behind.into_iter().skip(1)) {
        let is_free = !offers.contains_key(&name) && described(&name).is_none() && parse::is_name(&name, false);
        if is_free && !reference::words().any(|known| known == name) {
            offers.insert(name, (kind::VARIABLE, String::new()));
        }
    }
    offers
}

/// What is called by the innermost bracket that is still open.
fn open_call(begin: &str) -> Option<&str> {
    let mut depth = 0_u32;
    for (index, letter) in begin.char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' if depth == 0 => {
                let (start, end) = word(begin, index);
                return begin.get(start..end).filter(|name| !name.is_empty());
            }
            '(' => depth -= 1,
            '{' | '}' => return None,
            _ => {}
        }
    }
    None
}
