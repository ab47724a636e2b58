//! What can be written next: the parser says which words it would take, and the names that fit there.

use crate::parts;
use crate::place::{Place, in_comment, word};
use crate::reference::{self, CONSTANTS, NUMBERS, described};
use crate::settings::settings;
use crate::signature::innermost;
use crate::{Definition, NameKind};
use pipe_ir::training::Optimizer;
use pipe_syntax::{parse, stdlib};
use std::collections::BTreeMap;
use std::ops::Range;

/// What an offer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferKind {
    /// A function with its arguments, or an optimizer.
    Function,
    /// The name of a number.
    Variable,
    /// A schedule, layer or model.
    Declaration,
    /// The path of an import.
    Import,
    /// An argument by its name.
    Argument,
    /// A word of the language.
    Keyword,
    /// A name that every source has.
    Constant,
    /// A part of stages, or a lane.
    Part,
}

/// Something that can be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// How it is listed.
    pub label: String,
    /// What it is.
    pub kind: OfferKind,
    /// What it means, in a line; may be empty.
    pub detail: String,
}

impl Offer {
    /// What to write.
    pub fn text(&self) -> String {
        if self.kind == OfferKind::Argument { format!("{} = ", self.label) } else { self.label.clone() }
    }
}

/// What can be written at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The bytes that it is written for: what was begun before the place.
    pub begun: Range<usize>,
    /// By their labels, in alphabetical order.
    pub offers: Vec<Offer>,
}

/// What is offered, by what is listed.
pub(crate) type Offers = BTreeMap<String, (OfferKind, String)>;

/// What can be written at a place, whether or not the text before it is sound.
pub fn complete(place: &Place<'_>) -> Completion {
    let (text, byte) = (place.text(), place.byte);
    let (mut start, _) = word(text, byte);
    let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let is_import = text[line..start].trim_start().starts_with("import ");
    if is_import {
        start = text[..start].rfind(char::is_whitespace).map_or(line, |space| space + 1);
    }
    let mut offers = Offers::new();
    match (is_import, in_comment(text, start)) {
        (_, true) => {}
        (true, false) => {
            offers.extend(stdlib::paths().map(|path| (format!("std.{path}"), (OfferKind::Import, String::new()))));
        }
        (false, false) => {
            let begins = parse::declaration_starts(text).take_while(|begins| *begins < start).last().unwrap_or(0);
            offer(place, &text[begins..start], text.get(byte..).unwrap_or_default(), &mut offers);
        }
    }
    let offers = offers.into_iter().map(|(label, (kind, detail))| Offer { label, kind, detail }).collect();
    Completion { begun: start..byte.max(start), offers }
}

/// Offers what fits behind the beginning of a declaration; `rest` is what follows.
fn offer(place: &Place<'_>, begin: &str, rest: &str, offers: &mut Offers) {
    if let Some(wanted) = parts::wanted(begin) {
        offers.extend(parts::known(place, wanted, begin, rest));
        return;
    }
    let phrases = parse::expected_behind(begin);
    for word in phrases.iter().flat_map(|phrase| phrase.split('`').skip(1).step_by(2)) {
        if let Some(text) = described(word) {
            let line = text.lines().next().unwrap_or_default().to_owned();
            offers.insert(word.to_owned(), (OfferKind::Keyword, line));
        }
    }
    let expects = |wanted: &str| phrases.iter().any(|phrase| phrase.contains(wanted));
    let declares = begin.split_whitespace().next().unwrap_or_default();
    let is_head = !begin.contains('{');
    let last = begin.split_whitespace().last().unwrap_or_default();
    let globals = |kind: NameKind| {
        let all = place.names.definitions.iter().filter(move |found| found.kind == kind && found.owner.is_none());
        all.map(|found| (found.name.clone(), (OfferKind::Declaration, first_line(found))))
    };
    match (declares, last) {
        _ if is_head && !expects("an expression") => {}
        ("pipeline", "model") => offers.extend(globals(NameKind::Model)),
        ("pipeline", "optimizer") => {
            let rule = |name: &str| Optimizer::rule(name).unwrap_or_default().to_owned();
            let named = |name: &str| (name.to_owned(), (OfferKind::Function, rule(name)));
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
        offers.insert("if".to_owned(), (OfferKind::Keyword, text.lines().next().unwrap_or_default().to_owned()));
        offers.extend(numbers(place, begin, rest, declares));
    }
    if let Some((before, callee, None)) = innermost(begin) {
        let all = settings(before, callee).into_iter().flatten();
        offers.extend(all.map(|setting| (setting.name.to_owned(), (OfferKind::Argument, setting.doc))));
    }
    if let Some(callee) = open_call(begin) {
        let called = |found: &Definition| found.owner.is_none() && found.name == callee;
        for (index, _) in place.names.definitions.iter().enumerate().filter(|(_, found)| called(found)) {
            let parameters = place.names.inside(index).filter(|(_, inside)| inside.kind == NameKind::Parameter);
            offers.extend(parameters.map(|(_, parameter)| {
                (parameter.name.clone(), (OfferKind::Argument, place.written(parameter.whole).to_owned()))
            }));
        }
    }
}

fn first_line(definition: &Definition) -> String {
    definition.doc.lines().next().unwrap_or_default().to_owned()
}

/// Names of numbers and functions: those that every source has, parameters of files, and names of
/// the declaration at hand, which may not parse yet.
fn numbers(place: &Place<'_>, begin: &str, rest: &str, declares: &str) -> Offers {
    let mut offers: Offers = Offers::new();
    if declares == "layer" {
        offers.extend(reference::functions().map(|(name, usage, _)| (name.to_owned(), (OfferKind::Function, usage))));
    } else {
        let constants =
            CONSTANTS.iter().map(|(name, text)| ((*name).to_owned(), (OfferKind::Constant, (*text).to_owned())));
        let functions =
            NUMBERS.iter().map(|(name, usage, _)| ((*name).to_owned(), (OfferKind::Function, (*usage).to_owned())));
        offers.extend(constants.chain(functions));
    }
    for found in place.names.definitions.iter().filter(|found| found.owner.is_none()) {
        let offer = match found.kind {
            NameKind::FileParameter => (OfferKind::Variable, format!("param {}", place.written(found.whole))),
            NameKind::Let => (OfferKind::Variable, format!("let {}", place.written(found.whole))),
            NameKind::Function => (OfferKind::Function, first_line(found)),
            _ => continue,
        };
        offers.insert(found.name.clone(), offer);
    }
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
            offers.insert(name, (OfferKind::Variable, String::new()));
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
