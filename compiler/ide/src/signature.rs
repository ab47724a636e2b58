//! Signature help: the parameters of schedules, layers, models, functions and optimizers.

use crate::place::Place;
use crate::reference::{self, NUMBERS};
use crate::settings::settings;
use crate::{Definition, NameKind};
use pipe_ir::training::Optimizer;
use pipe_syntax::parse;
use pipe_syntax::parse::tokens::{Token, TokenKind, tokens};

/// A call that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What is called.
    pub name: String,
    /// Its parameters, with their defaults where they have some.
    pub parameters: Vec<String>,
    /// What it is, in Markdown; may be empty.
    pub doc: String,
    /// The parameter that is written, as a position; none where there are more arguments than parameters.
    pub active: Option<usize>,
}

/// A call whose bracket is open.
struct Open<'t> {
    name: &'t str,
    /// The word before the name.
    before: &'t str,
    /// How many arguments are complete.
    complete: usize,
    /// The name of the argument that is written.
    named: Option<&'t str>,
}

/// What is called by the innermost bracket that is open behind a text, the word before that, and the argument that is
/// written, where it is named.
pub(crate) fn innermost(before: &str) -> Option<(&str, &str, Option<&str>)> {
    let begin = &before[parse::declaration_starts(before).last().unwrap_or(0)..];
    let words: Vec<&str> = tokens(begin).iter().map(|token| &begin[token.place.clone()]).collect();
    let call = open(&words).pop()?;
    Some((call.before, call.name, call.named))
}

/// The innermost call around a position whose callee is known.
pub fn signature(place: &Place<'_>) -> Option<Signature> {
    let before = place.text().get(..place.byte)?;
    let begins = parse::declaration_starts(before).last().unwrap_or(0);
    let begin = &before[begins..];
    let tokens = tokens(begin);
    let is_comment = |token: &&Token| matches!(token.kind, TokenKind::Comment | TokenKind::Documentation);
    if tokens.last().filter(is_comment).is_some_and(|comment| !begin[comment.place.end..].contains('\n')) {
        return None;
    }
    let words: Vec<&str> =
        tokens.iter().filter(|token| !is_comment(token)).map(|token| &begin[token.place.clone()]).collect();
    let declares = words.first().copied().unwrap_or_default();
    open(&words).iter().rev().find_map(|call| {
        let (parameters, doc) = takes(place, declares, call)?;
        let name_of = |parameter: &String| parameter.split(" = ").next().unwrap_or_default().to_owned();
        let active = match call.named {
            Some(named) => parameters.iter().position(|parameter| name_of(parameter) == named),
            // `..` stands for any number of those before it.
            None => Some(call.complete)
                .filter(|complete| *complete < parameters.len())
                .or_else(|| parameters.iter().rposition(|parameter| parameter.ends_with(".."))),
        };
        Some(Signature { name: call.name.to_owned(), parameters, doc, active })
    })
}

/// Every call whose bracket is open at the end of some words, from the outermost to the innermost.
fn open<'t>(words: &[&'t str]) -> Vec<Open<'t>> {
    let mut brackets: Vec<Option<Open<'t>>> = Vec::new();
    let mut depth = 0_u32;
    for (index, word) in words.iter().enumerate() {
        let back = |by: usize| index.checked_sub(by).and_then(|index| words.get(index)).copied().unwrap_or_default();
        match *word {
            "(" => {
                let (name, before) = (back(1), back(2));
                // The parameters of a declaration are no arguments.
                let is_head = depth == 0 && matches!(before, "schedule" | "layer" | "model");
                let is_name = name.starts_with(|letter: char| letter.is_ascii_alphanumeric() || "_\"".contains(letter));
                let call = Open { name, before, complete: 0, named: None };
                brackets.push(Some(call).filter(|_| is_name && !is_head));
            }
            "[" => brackets.push(None),
            ")" | "]" => drop(brackets.pop()),
            "{" => {
                depth += 1;
                brackets.clear();
            }
            "}" => {
                depth = depth.saturating_sub(1);
                brackets.clear();
            }
            "," => {
                if let Some(Some(call)) = brackets.last_mut() {
                    call.complete += 1;
                    call.named = None;
                }
            }
            "=" => {
                if let (Some(Some(call)), "(" | ",") = (brackets.last_mut(), back(2)) {
                    call.named = Some(back(1));
                }
            }
            _ => {}
        }
    }
    brackets.into_iter().flatten().collect()
}

/// The parameters of what is called, and what it is.
fn takes(place: &Place<'_>, declares: &str, call: &Open<'_>) -> Option<(Vec<String>, String)> {
    let declared = |kind: NameKind| {
        let index = place.names.find(kind, call.name).or_else(|| place.names.find_inside(kind, call.name))?;
        let parameters = place.names.inside(index).filter(|(_, inside)| inside.kind == NameKind::Parameter);
        let parameters = parameters.map(|(_, parameter)| in_a_line(place.written(parameter.whole))).collect();
        let doc = place.names.definitions.get(index).map(|found: &Definition| found.doc.clone());
        Some((parameters, doc.unwrap_or_default()))
    };
    let of_call = settings(call.before, call.name).map(|all| {
        let doc = Optimizer::rule(call.name).filter(|_| call.before == "optimizer").unwrap_or_default();
        (all.into_iter().map(|setting| setting.usage).collect(), doc.to_owned())
    });
    match (call.before, declares) {
        _ if of_call.is_some() => of_call,
        ("optimizer", _) => None,
        ("schedule", _) => declared(NameKind::Schedule),
        ("model", _) => declared(NameKind::Model),
        (_, "model") => declared(NameKind::Layer).or_else(|| function(call.name, false)),
        (_, "pipeline") => declared(NameKind::Schedule).or_else(|| function(call.name, false)),
        _ => declared(NameKind::Function).or_else(|| function(call.name, declares == "layer")),
    }
}

/// The arguments of a function of layers, or of numbers.
fn function(name: &str, of_tensors: bool) -> Option<(Vec<String>, String)> {
    let tensors = reference::functions().find(|(known, ..)| of_tensors && *known == name);
    let tensors = tensors.map(|(_, usage, doc)| (usage, doc));
    let number =
        || NUMBERS.iter().find(|(known, ..)| *known == name).map(|(_, usage, doc)| ((*usage).to_owned(), *doc));
    let (usage, doc) = tensors.or_else(number)?;
    let inside = usage.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
    Some((inside.split(", ").map(str::to_owned).collect(), doc.to_owned()))
}

fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
