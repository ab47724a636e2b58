//! Answers of the server in a form to be read.

use super::Document;
use serde_json::{Value, json};
use std::fmt::Write;

/// The byte at a place of the protocol.
fn byte(text: &str, place: &Value) -> usize {
    let number = |name: &str| usize::try_from(place[name].as_u64().expect("a number")).expect("a small one");
    let start = text.split_inclusive('\n').take(number("line")).map(str::len).sum::<usize>();
    let mut units = number("character");
    let behind = text[start..].char_indices().find(|(_, letter)| {
        let is_there = units == 0;
        units = units.saturating_sub(letter.len_utf16());
        is_there
    });
    behind.map_or(text.len(), |(index, _)| start + index)
}

/// The text after the edits of a document.
fn edited(text: &str, edits: &[Value]) -> String {
    let mut edits: Vec<(usize, usize, &str)> = edits
        .iter()
        .map(|edit| {
            let place = |end: &str| byte(text, &edit["range"][end]);
            (place("start"), place("end"), edit["newText"].as_str().expect("a text"))
        })
        .collect();
    edits.sort_unstable();
    let mut text = text.to_owned();
    edits.into_iter().rev().for_each(|(start, end, new)| text.replace_range(start..end, new));
    text
}

/// Each action with the lines that it changes or adds.
pub(crate) fn actions(document: &mut Document<'_>) -> String {
    let findings = document.findings();
    let (line, character) = document.place;
    let place = json!({"line": line, "character": character});
    let params = json!({
        "textDocument": {"uri": document.uri}, "range": {"start": place, "end": place},
        "context": {"diagnostics": findings},
    });
    let actions = document.client.ask("textDocument/codeAction", params);
    let old: Vec<&str> = document.text.lines().collect();
    let mut shown = String::new();
    for action in actions.as_array().expect("a list") {
        let preferred = if action["isPreferred"] == true { ", preferred" } else { "" };
        let _ = writeln!(shown, "{}{preferred}: {}", text(&action["kind"]), text(&action["title"]));
        let edits = action["edit"]["changes"][&document.uri].as_array().expect("edits of this document");
        let new = edited(&document.text, edits);
        new.lines().filter(|line| !old.contains(line)).for_each(|line| shown += &format!("> {line}\n"));
        let about = action["diagnostics"].as_array().into_iter().flatten();
        assert!(about.into_iter().all(|about| findings.contains(about)), "{action}");
    }
    shown
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
