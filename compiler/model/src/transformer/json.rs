//! A `config.json` with places: an object whose values know where they stand, so that a message can point at them.

use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::json::{Entries, mark, place, reason, span};
use pipe_syntax::source::{FileId, Span};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The outermost object of a text.
pub(super) struct Object<'t> {
    file: FileId,
    text: &'t str,
    entries: BTreeMap<String, &'t RawValue>,
}

/// A value, as it is written.
#[derive(Clone, Copy)]
pub(super) struct JsonValue<'t> {
    /// Its text.
    pub text: &'t str,
    /// Where that is.
    pub span: Span,
}

impl<'t> Object<'t> {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it is no JSON, or no object, or has a key twice.
    pub(super) fn read(file: FileId, name: &str, text: &'t str) -> Result<Self, Diagnostic> {
        let read: Result<Entries<'t>, _> = serde_json::from_str(text);
        let Entries { entries, repeated } = read.map_err(|error| {
            let at = place(text, error.line(), error.column());
            let (message, label) = match error.is_data() {
                true => (format!("`{name}` is not a JSON object with the sizes of a model"), "not `{ .. }`".to_owned()),
                false => (format!("`{name}` is not valid JSON: {}", reason(&error)), "here".to_owned()),
            };
            Diagnostic::error(Code::UnusableConfig, mark(file, text, at), label, message)
                .help("write the `config.json` of the model as it is published")
        })?;
        let object = Self { file, text, entries };
        match repeated {
            None => Ok(object),
            Some((key, [first, second])) => {
                let message = format!("`{name}` has the key `{key}` twice");
                let error = Diagnostic::error(Code::UnusableConfig, object.place(second), "the second value", message);
                Err(error.label(object.place(first), "the first one").help("keep one of them"))
            }
        }
    }

    /// The value of the first of these keys that is there and not `null`, with that key.
    pub(super) fn get<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, JsonValue<'t>)> {
        keys.iter().find_map(|key| {
            let raw = self.entries.get(*key)?;
            let written = JsonValue { text: raw.get(), span: self.place(raw) };
            (raw.get() != "null").then_some((*key, written))
        })
    }

    /// Where a value stands.
    fn place(&self, value: &RawValue) -> Span {
        // The value is a part of the text, so that the distance of the two beginnings is its place.
        let start = (value.get().as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        span(self.file, start, start + value.get().len())
    }

    /// The place of a key, without its quotes. None where the key has escapes, or stands in the text twice.
    pub(super) fn key(&self, key: &str) -> Option<Span> {
        let quoted = format!("\"{key}\"");
        let mut places = self.text.match_indices(&quoted).map(|(place, _)| place);
        let place = places.next().filter(|_| places.next().is_none())?;
        Some(span(self.file, place + 1, place + 1 + key.len()))
    }

    /// The beginning of the text.
    pub(super) fn start(&self) -> Span {
        let start = self.text.len() - self.text.trim_start().len();
        span(self.file, start, (start + 1).min(self.text.len()))
    }

    /// All keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}
