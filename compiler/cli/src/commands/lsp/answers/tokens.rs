//! Semantic tokens: each has its position relative to the one before.

use crate::commands::lsp::here::Here;
use pipe_ide::roles::{Role, TRAITS, roles};
use pipe_syntax::source::FileId;
use serde_json::{Value, json};

pub(in crate::commands::lsp) fn legend() -> Value {
    json!({"tokenTypes": Role::WORDS, "tokenModifiers": TRAITS})
}

pub(in crate::commands::lsp) fn tokens(here: &Here<'_>) -> Value {
    let (project, text) = (&here.project, &here.document.text);
    let lines = project.lines(FileId(0));
    let mut data: Vec<u32> = Vec::new();
    let (mut line, mut character) = (0, 0);
    for word in roles(&project.names, &project.sources) {
        let range = lines.range(text, word.place.start, word.place.end);
        let (start, end) = (range.start, range.end);
        let behind = if start.line == line { start.character.saturating_sub(character) } else { start.character };
        let length = end.character.saturating_sub(start.character);
        data.extend([start.line.saturating_sub(line), behind, length, word.role as u32, word.traits]);
        (line, character) = (start.line, start.character);
    }
    json!({"data": data})
}
