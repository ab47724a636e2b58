//! What the editor asks while one types: what can be written at a place, and what stands there.

use crate::answer::ROOT;
use crate::configs::loader;
use pipe_ide::completion::{self, Completion, OfferKind, complete};
use pipe_ide::hover::{Hover, hover};
use pipe_ide::{Names, place::Place};
use pipe_syntax::diagnostic::Code;
use pipe_syntax::files;
use pipe_syntax::source::{Source, Sources};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A place in a source, counted in UTF-16 units as the browser does.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    about: About,
    source: String,
    at: usize,
    /// The codes of the findings that lie there.
    #[serde(default)]
    errors: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum About {
    /// What can be written.
    Completion,
    /// What is there.
    Hover,
}

/// Something that can be written.
#[derive(Serialize)]
struct Offer {
    label: String,
    kind: &'static str,
    detail: String,
    text: String,
}

/// Answers a question: offers with where what is begun begins and ends, or a text with the word that it is about, or
/// null where nothing is known.
pub(crate) fn assist(question: &str) -> String {
    let answer = match serde_json::from_str(question) {
        Ok(question) => told(question),
        Err(error) => json!({ "refused": error.to_string() }),
    };
    answer.to_string()
}

fn told(question: Question) -> Value {
    let mut sources = Sources::default();
    let byte = byte_of(&question.source, question.at);
    let root = Source { name: ROOT.to_owned(), text: question.source };
    let (files, _) = files::read(&mut sources, root, &loader);
    let names = Names::of(&files);
    let place = Place { names: &names, sources: &sources, byte };
    let units = |byte: usize| units_before(place.text(), byte);
    match question.about {
        About::Completion => {
            let Completion { begun, offers } = complete(&place);
            let offer = |offer: completion::Offer| {
                let text = offer.text();
                Offer { label: offer.label, kind: word(offer.kind), detail: offer.detail, text }
            };
            let offers: Vec<Offer> = offers.into_iter().map(offer).collect();
            json!({ "from": units(begun.start), "to": units(begun.end), "offers": offers })
        }
        About::Hover => {
            let is_there = |code: &&Code| question.errors.iter().any(|error| error == code.name());
            let errors: Vec<Code> = Code::ALL.iter().filter(is_there).copied().collect();
            let Some(Hover { text, word }) = hover(&place, &|_| None, &errors) else { return Value::Null };
            let [from, to] = word.map_or([question.at; 2], |word| [units(word.start), units(word.end)]);
            json!({ "from": from, "to": to, "text": text })
        }
    }
}

/// What an offer is, in a word.
const fn word(kind: OfferKind) -> &'static str {
    match kind {
        OfferKind::Function => "function",
        OfferKind::Variable => "name",
        OfferKind::Declaration => "declaration",
        OfferKind::Import => "import",
        OfferKind::Argument => "argument",
        OfferKind::Part => "part",
        OfferKind::Keyword => "keyword",
        OfferKind::Constant => "number",
    }
}

/// The byte at so many UTF-16 units; in the middle of a character is before it.
fn byte_of(text: &str, at: usize) -> usize {
    let mut units = 0;
    let begins = |(byte, letter): (usize, char)| {
        units += letter.len_utf16();
        (units > at).then_some(byte)
    };
    text.char_indices().find_map(begins).unwrap_or(text.len())
}

fn units_before(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or(text).chars().map(char::len_utf16).sum()
}

#[cfg(test)]
mod tests {
    use super::assist;
    use serde_json::{Value, json};

    /// Asks at the `^` of a text.
    fn ask(about: &str, text: &str) -> Value {
        let (before, behind) = text.split_once('^').expect("a mark");
        let at = before.encode_utf16().count();
        let question = json!({ "about": about, "source": format!("{before}{behind}"), "at": at, "errors": ["syntax"] });
        serde_json::from_str(&assist(&question.to_string())).expect("JSON")
    }

    #[test]
    fn completions_have_their_place_in_utf_16_units() {
        let told = ask("completion", "// 🦀 é\nschedule a {\n    st^\n}\n");
        assert_eq!((&told["from"], &told["to"]), (&json!(25), &json!(27)));
        let offers = told["offers"].as_array().expect("offers");
        let stages = offers.iter().find(|offer| offer["label"] == "stages").expect("it is offered");
        assert_eq!((&stages["text"], &stages["kind"]), (&json!("stages"), &json!("keyword")));
        let told = ask("completion", "pipeline p {\n    schedule interleaved_1f1b(^)\n}\n");
        assert!(told["offers"].to_string().contains(r#""text":"chunks = ""#), "{told}");
        assert_eq!(ask("completion", "// a comment ^")["offers"], json!([]));
    }

    #[test]
    fn hovers_tell_of_words_and_errors() {
        let told = ask("hover", "// 🦀\nschedule a { stages ^D }\n");
        assert_eq!((&told["from"], &told["to"]), (&json!(26), &json!(27)));
        let text = told["text"].as_str().expect("text");
        assert!(text.starts_with("The number of devices") && text.contains("pipec explain syntax"), "{text}");
        let refused = assist("{}");
        assert!(refused.contains("refused"), "{refused}");
    }
}
