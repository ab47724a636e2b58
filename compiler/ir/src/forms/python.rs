//! The instruction table as a module of Python, `python/src/pipec/instructions.py`: a class for each row.

use crate::instruction::{Field, REFERENCE, Row};

/// Fields that are named otherwise in Python: keywords, and `operands`, which become buffers.
const RENAMED: [(&str, &str); 4] =
    [("class", "kind"), ("from", "source"), ("with", "contents"), ("operands", "buffers")];

/// The module.
pub fn instructions() -> String {
    let mut text = String::from(
        "\"\"\"The instructions of a device, one class for each; generated from the table in `compiler/ir/src/instruction.rs`.\"\"\"\n\n\
         from __future__ import annotations\n\nfrom collections.abc import Mapping\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n\n\
         from .instruction import Instruction\n",
    );
    REFERENCE.iter().for_each(|row| text.push_str(&class(row)));
    text
}

/// `send.start` is `SendStart`.
fn class_name(row: &Row) -> String {
    let parts = row.word.split('.').map(|part| part[..1].to_uppercase() + &part[1..]);
    parts.collect()
}

fn class(row: &Row) -> String {
    let name = class_name(row);
    // The first sentence alone; `docs/ir.md` has all of them.
    let doc = row.doc.trim();
    let first = wrapped(doc.split_inclusive(". ").next().unwrap_or(doc).trim());
    let words = row.fields.iter().map(|field| format!(" {}{}", before(field), template(field)));
    let renamed = row.fields.iter().filter(|field| name_of(field) != field.name);
    let keys: Vec<String> = renamed.map(|field| format!("\"{}\": \"{}\"", name_of(field), field.name)).collect();
    let keys = match keys.is_empty() {
        true => String::new(),
        false => format!("    KEYS: ClassVar[Mapping[str, str]] = {{{}}}\n", keys.join(", ")),
    };
    let mut text = format!(
        "\n\n@dataclass(frozen=True)\nclass {name}(Instruction):\n    \"\"\"{first}\"\"\"\n\n    \
         WORD: ClassVar[str] = \"{0}\"\n    TEXT: ClassVar[str] = \"{0}{1}\"\n{keys}\n",
        row.word,
        words.collect::<String>()
    );
    for field in row.fields {
        let ty = match field.shape {
            shape if shape.starts_with('(') => "tuple[int, ...]",
            shape if shape.contains('|') => "str",
            _ => "int",
        };
        text.push_str(&format!("    {}: {ty}\n", name_of(field)));
    }
    text
}

/// A docstring whose lines end before column 110.
fn wrapped(text: &str) -> String {
    let (mut lines, mut column) = (String::new(), 7);
    for word in text.split_whitespace() {
        let breaks = column + word.len() > 110;
        lines.push_str(if breaks {
            "\n    "
        } else if lines.is_empty() {
            ""
        } else {
            " "
        });
        lines.push_str(word);
        column = if breaks { 4 + word.len() } else { column + 1 + word.len() };
    }
    lines
}

fn before(field: &Field) -> String {
    if field.before.is_empty() { String::new() } else { format!("{} ", field.before) }
}

fn name_of(field: &Field) -> &'static str {
    // `from` is a device of `recv.start` and a buffer of `copy.start`: both are where something comes from.
    RENAMED.iter().find(|(name, _)| *name == field.name).map_or(field.name, |(_, name)| name)
}

/// The text of a field: what stands before its number, and its name in braces.
fn template(field: &Field) -> String {
    let name = name_of(field);
    let sigil = match field.shape {
        "value" => "v",
        "N" => "",
        shape if shape.starts_with('(') => return format!("({{{name}}})"),
        shape if shape.contains('|') => "",
        shape => &shape[..1],
    };
    format!("{sigil}{{{name}}}")
}
