//! What stands under the pointer: a declaration with its figures, a word of the language, the page of an error.

use crate::place::{Place, in_comment, word};
use crate::settings::{optimizer, recompute, settings};
use crate::signature::innermost;
use crate::{Definition, NameKind, reference};
use pipe_ir::units::Bytes;
use pipe_syntax::diagnostic::Code;
use pipe_syntax::parse::tokens::{TokenKind, tokens};
use pipe_syntax::source::FileId;
use pipe_syntax::{parse, stdlib};
use std::ops::Range;

/// The most characters of a declaration that are shown.
const LONGEST: usize = 400;
/// Larger sizes are not shown in bytes: above 2^53, an `f64` does not hold every whole number.
const MOST_BYTES: f64 = 9_007_199_254_740_992.0;

/// What is told of a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hover {
    /// In Markdown.
    pub text: String,
    /// The word that it is about, in bytes; none if it is about an error only.
    pub word: Option<Range<usize>>,
}

/// What is known of a place: of its name, with the figure of a declaration of this file, of its word, and of the errors
/// that lie there.
pub fn hover(place: &Place<'_>, figure: &dyn Fn(&Definition) -> Option<String>, errors: &[Code]) -> Option<Hover> {
    let text = place.text();
    let (start, end) = word(text, place.byte);
    let named = place.name().map(|(span, _, definition)| {
        let figure = Some(definition).filter(|one| one.span.file == FileId(0)).and_then(figure);
        (declaration(place, definition, figure), span.start as usize..span.end as usize)
    });
    let described = named.or_else(|| told(place)).or_else(|| {
        if in_comment(text, start) {
            return None;
        }
        // A keyword of several rules: what it means here.
        let here = || parse::rule_of_keyword(text, start).and_then(|rule| reference::rule(&rule));
        Some((here().or_else(|| reference::described(text.get(start..end)?))?, start..end))
    });
    let (told, word) = described.map_or((None, None), |(told, word)| (Some(told), Some(word)));
    let told: Vec<String> = told.into_iter().chain(errors.iter().map(page)).collect();
    (!told.is_empty()).then(|| Hover { text: told.join("\n\n---\n\n"), word })
}

/// What is known of a token that no declaration names, by its role.
fn told(place: &Place<'_>) -> Option<(String, Range<usize>)> {
    let (text, byte) = (place.text(), place.byte);
    let all = tokens(text);
    let behind = all.partition_point(|token| token.place.start <= byte);
    let index = behind.checked_sub(1)?;
    let token = all.get(index).filter(|token| byte <= token.place.end)?;
    let word = text.get(token.place.clone())?;
    let before = || index.checked_sub(1).and_then(|before| text.get(all.get(before)?.place.clone()));
    let call = || innermost(text.get(..token.place.start)?);
    let words = match token.kind {
        TokenKind::Path => Some(declares(place, word)?),
        TokenKind::String => of_string(place, word, before()?),
        TokenKind::Number => size(word),
        TokenKind::Type | TokenKind::Constant => reference::value(word).map(str::to_owned),
        TokenKind::Argument => {
            let (before, callee, _) = call()?;
            let setting = settings(before, callee)?.into_iter().find(|setting| setting.name == word)?;
            Some(format!("`{}`\n\n{}", setting.usage, setting.doc))
        }
        TokenKind::Called if before() == Some("optimizer") => optimizer(word),
        TokenKind::Called => {
            let begins = parse::declaration_starts(text).take_while(|begins| *begins <= byte).last()?;
            reference::function(word, text.get(begins..)?.starts_with("layer"))
        }
        TokenKind::Name if call().is_some_and(|(.., named)| named == Some("recompute")) => {
            recompute(word).map(str::to_owned)
        }
        TokenKind::Name
        | TokenKind::Keyword
        | TokenKind::Task
        | TokenKind::Operator
        | TokenKind::Mark
        | TokenKind::Word
        | TokenKind::Comment
        | TokenKind::Documentation => None,
    };
    Some((words?, token.place.clone()))
}

/// What a file declares that an import names.
fn declares(place: &Place<'_>, path: &str) -> Option<String> {
    let is_it = |name: &str| name == path || name.strip_suffix(path).is_some_and(|before| before.ends_with('/'));
    let own = |found: &&Definition| found.owner.is_none() && is_it(&place.sources.get(found.span.file).name);
    let names = place.names.definitions.iter().filter(own);
    let names: Vec<String> = names.map(|found| format!("{} `{}`", found.kind.word(), found.name)).collect();
    let summary = path.strip_prefix("std.").and_then(stdlib::file).map(stdlib::summary).unwrap_or_default();
    let declared = if names.is_empty() { String::new() } else { format!("Declares {}.", names.join(", ")) };
    let parts: Vec<String> = [summary, declared].into_iter().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// What a path in quotes is for.
fn of_string(place: &Place<'_>, quoted: &str, before: &str) -> Option<String> {
    let path = quoted.trim_matches('"');
    match before {
        "import" => declares(place, path),
        "model" => Some(
            "The `config.json` of a model, as it is published; its path starts from the folder of this file."
                .to_owned(),
        ),
        "data" => Some(
            "A text to learn, byte by byte: each byte is a token. Its path starts from the folder of this file."
                .to_owned(),
        ),
        "checkpoint" => {
            Some("The folder where checkpoints are saved; its path starts from the working directory.".to_owned())
        }
        _ => None,
    }
}

/// How many bytes a size is: `64MiB`.
fn size(written: &str) -> Option<String> {
    let (unit, each) = Bytes::UNITS.iter().find(|(unit, _)| written.ends_with(unit))?;
    let number: f64 = written.strip_suffix(unit)?.parse().ok()?;
    let bytes = number * *each as f64;
    (bytes < MOST_BYTES).then(|| format!("{} bytes", bytes as u64))
}

/// A declaration as it is written, its figure and its comment.
fn declaration(place: &Place<'_>, definition: &Definition, figure: Option<String>) -> String {
    let whole = place.written(definition.whole);
    let head = match definition.kind {
        NameKind::Function | NameKind::Schedule | NameKind::Layer | NameKind::Model | NameKind::Pipeline => {
            whole.split('{').next().unwrap_or_default().trim().to_owned()
        }
        NameKind::Weight | NameKind::Data => whole.to_owned(),
        NameKind::FileParameter => format!("param {whole}"),
        NameKind::Lane => whole.to_owned(),
        kind @ (NameKind::Parameter | NameKind::Let | NameKind::Variable | NameKind::Input | NameKind::Part) => {
            format!("{} {whole}", kind.word())
        }
    };
    let head: String = head.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect();
    let doc = Some(definition.doc.clone()).filter(|doc| !doc.is_empty());
    let parts: Vec<String> = [Some(format!("```pipe\n{head}\n```")), figure, doc].into_iter().flatten().collect();
    parts.join("\n\n")
}

/// The beginning of the page of an error: what it means, and why it matters.
fn page(code: &Code) -> String {
    let page = code.page().split("\n## Example").next().unwrap_or_default().trim();
    format!("{page}\n\nExample and fix: `pipec explain {code}`")
}
