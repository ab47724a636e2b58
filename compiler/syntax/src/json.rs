//! Places in texts of JSON, and what is wrong there; objects whose values know their text.

use crate::source::{FileId, Span};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// What serde says, without the place.
pub fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    text.replace("invalid", "malformed")
}

/// The character at a byte.
pub fn mark(file: FileId, text: &str, at: usize) -> Span {
    span(file, at, text[at..].chars().next().map_or(at, |mark| at + mark.len_utf8()))
}

/// The bytes from `start` to below `end`.
pub fn span(file: FileId, start: usize, end: usize) -> Span {
    let byte = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Span { file, start: byte(start), end: byte(end) }
}

/// The byte at a line and column, both from 1; columns count bytes.
pub fn place(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut at = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// An object whose values are parts of the text.
pub struct Entries<'t> {
    /// By key; of a key that stands there twice, the last value.
    pub entries: BTreeMap<String, &'t RawValue>,
    /// The first key that stands there twice, with both values.
    pub repeated: Option<(String, [&'t RawValue; 2])>,
}

impl<'t> Deserialize<'t> for Entries<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap;
        impl<'t> Visitor<'t> for OfMap {
            type Value = Entries<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Entries<'t>, A::Error> {
                let mut read = Entries { entries: BTreeMap::new(), repeated: None };
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    if let Some(earlier) = read.entries.insert(key.clone(), value) {
                        read.repeated.get_or_insert((key, [earlier, value]));
                    }
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(OfMap)
    }
}
