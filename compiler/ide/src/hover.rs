//! What stands under the pointer: a declaration with its figures, a word of the language, the page of an error.

use crate::place::{Place, in_comment, word};
use crate::{Definition, NameKind, reference};
use pipe_syntax::diagnostic::Code;
use pipe_syntax::source::FileId;
use std::ops::Range;

/// The most characters of a declaration that are shown.
const LONGEST: usize = 400;

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
    let described = named.or_else(|| {
        let told = reference::described(text.get(start..end)?).filter(|_| !in_comment(text, start))?;
        Some((told, start..end))
    });
    let (told, word) = described.map_or((None, None), |(told, word)| (Some(told), Some(word)));
    let told: Vec<String> = told.into_iter().chain(errors.iter().map(page)).collect();
    (!told.is_empty()).then(|| Hover { text: told.join("\n\n---\n\n"), word })
}

/// A declaration as it is written, its figure and its comment.
fn declaration(place: &Place<'_>, definition: &Definition, figure: Option<String>) -> String {
    let whole = place.written(definition.whole);
    let head = match definition.kind {
        NameKind::Schedule | NameKind::Layer | NameKind::Model | NameKind::Pipeline => {
            whole.split('{').next().unwrap_or_default().trim().to_owned()
        }
        NameKind::Weight | NameKind::Data => whole.to_owned(),
        NameKind::FileParameter => format!("param {whole}"),
        kind @ (NameKind::Parameter | NameKind::Let | NameKind::Variable | NameKind::Input) => {
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
