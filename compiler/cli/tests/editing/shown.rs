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

/// What is said of the word at a place.
pub(crate) fn hover(document: &mut Document<'_>) -> String {
    let told = document.ask("textDocument/hover");
    let told = told["contents"]["value"].as_str().unwrap_or("nothing");
    told.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("> {line}\n")).collect()
}

/// Lines that can be folded, and which stay to be seen of them.
pub(crate) fn folds(document: &mut Document<'_>) -> String {
    let folds = document.ask("textDocument/foldingRange");
    let line = |fold: &Value| {
        let number = |name: &str| fold[name].as_u64().expect("a number");
        let first = document.text.lines().nth(number("startLine") as usize).unwrap_or_default();
        format!("{}..{} {}: {}\n", number("startLine") + 1, number("endLine") + 1, text(&fold["kind"]), first.trim())
    };
    folds.as_array().expect("a list").iter().map(line).collect()
}

/// The call with its parameters, the one that is written in `«»`.
pub(crate) fn signature(document: &mut Document<'_>) -> String {
    let help = document.ask("textDocument/signatureHelp");
    let Some(signature) = help["signatures"].get(0) else { return "nothing\n".to_owned() };
    let label: Vec<u16> = text(&signature["label"]).encode_utf16().collect();
    let active = help["activeParameter"].as_u64().expect("a number") as usize;
    let ends = &signature["parameters"][active]["label"];
    let part = |from: usize, to: usize| String::from_utf16(&label[from..to]).expect("whole letters");
    let end = |index: usize| ends[index].as_u64().map(|end| end as usize);
    let shown = match (end(0), end(1)) {
        (Some(start), Some(end)) => part(0, start) + "«" + &part(start, end) + "»" + &part(end, label.len()),
        _ => part(0, label.len()),
    };
    let doc = text(&signature["documentation"]["value"]).lines().next().unwrap_or_default();
    format!("{shown}\n{}", if doc.is_empty() { String::new() } else { format!("doc: {doc}\n") })
}

/// Every word with a role, a line for each line of the text.
pub(crate) fn roles(document: &mut Document<'_>, legend: &Value) -> String {
    let tokens = document.ask("textDocument/semanticTokens/full");
    let data: Vec<u64> = tokens["data"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    let (mut line, mut character) = (0, 0);
    let mut lines: Vec<Vec<String>> = vec![Vec::new(); document.text.lines().count()];
    for token in data.chunks(5) {
        let &[down, right, length, kind, bits] = token else { panic!("{} numbers", data.len()) };
        character = if down == 0 { character + right } else { right };
        line += down;
        let place = |character: u64| byte(&document.text, &json!({"line": line, "character": character}));
        let word = &document.text[place(character)..place(character + length)];
        let traits = legend["tokenModifiers"].as_array().into_iter().flatten().enumerate();
        let traits = traits.filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| format!(".{}", text(name)));
        let kind = text(&legend["tokenTypes"][kind as usize]);
        lines[line as usize].push(format!("{word}:{kind}{}", traits.collect::<String>()));
    }
    lines.iter().filter(|line| !line.is_empty()).map(|line| line.join("  ") + "\n").collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
