//! Findings for code review: SARIF 2.1.0, the form that GitHub's code scanning and editors read.
//!
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>

use pipe_compiler::Compilation;
use pipe_compiler::report::Finding;
use pipe_syntax::diagnostic::{Code, Severity};
use pipe_syntax::source::{Sources, Span};
use pipe_syntax::stdlib;
use serde_json::{Value, json};

/// The rules of programs in the instruction form: name, and what it means to break one.
const PROGRAM_RULES: [(&str, &str); 2] = [
    ("ir-form", "The text is not of the instruction form (docs/ir.md)."),
    (
        "ir-rule",
        "The program breaks a rule of the verifier: it could fail, hang or compute something else (docs/ir.md).",
    ),
];

/// Everything that speaks against a target, and warnings.
pub(crate) fn of_target(target: &str, compilation: &Compilation, sources: &Sources) -> Value {
    let found = &compilation.diagnostics;
    let rules: Vec<Code> = Code::ALL.iter().copied().filter(|code| found.iter().any(|one| one.code == *code)).collect();
    let results = found.iter().map(|one| {
        let index = rules.iter().position(|code| *code == one.code);
        let mut result =
            result(one.code.name(), index, one.severity, &words(&one.message, &one.notes, one.help.as_deref()));
        let mut places = one.labels.iter().map(|label| place(sources, label.span, &label.text));
        result["locations"] = json!([places.next().unwrap_or_else(|| whole(target))]);
        let others: Vec<Value> = places.zip(1..).map(|(place, id)| with(place, "id", json!(id))).collect();
        if !others.is_empty() {
            result["relatedLocations"] = json!(others);
        }
        result
    });
    let mistakes = compilation.mistakes().map(|text| json!({"level": "error", "message": {"text": text}}));
    log(rules.iter().map(|code| rule(*code)).collect(), results.collect(), mistakes.collect(), compilation.report.ok)
}

/// What speaks against a program in the instruction form.
pub(crate) fn of_program(name: &str, text: &str, found: &[Finding]) -> Value {
    let rules: Vec<_> = PROGRAM_RULES.iter().filter(|(rule, _)| found.iter().any(|one| one.code == *rule)).collect();
    let results = found.iter().map(|one| {
        let index = rules.iter().position(|(rule, _)| one.code == *rule);
        let mut result = result(&one.code, index, one.severity, &words(&one.message, &one.notes, one.help.as_deref()));
        let line = text.lines().nth(one.line.saturating_sub(1) as usize).unwrap_or_default();
        let before =
            |column: u32| line.chars().take(column.saturating_sub(1) as usize).map(char::len_utf16).sum::<usize>();
        result["locations"] = json!([located(
            name,
            json!({
                "startLine": one.line.max(1), "startColumn": before(one.column) + 1,
                "endLine": one.end_line.max(1), "endColumn": before(one.end_column) + 1,
            })
        )]);
        result
    });
    let rules = rules.iter().map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}})).collect();
    log(rules, results.collect(), Vec::new(), found.is_empty())
}

/// One run of `pipec check`.
fn log(rules: Vec<Value>, results: Vec<Value>, mistakes: Vec<Value>, accepted: bool) -> Value {
    let mut invocation = json!({"executionSuccessful": mistakes.is_empty(), "exitCode": u8::from(!accepted)});
    if !mistakes.is_empty() {
        invocation["toolExecutionNotifications"] = json!(mistakes);
    }
    let driver = json!({
        "name": "pipec", "version": env!("CARGO_PKG_VERSION"), "semanticVersion": env!("CARGO_PKG_VERSION"), "rules": rules,
    });
    json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": driver},
            "columnKind": "utf16CodeUnits",
            "invocations": [invocation],
            "results": results,
        }],
    })
}

/// A rule, explained by its page.
fn rule(code: Code) -> Value {
    let page = code.page();
    let mut parts = page.split("\n\n").map(str::trim);
    let title = parts.next().unwrap_or_default().trim_start_matches("# ");
    let meaning = parts.next().unwrap_or_default();
    json!({
        "id": code.name(),
        "shortDescription": {"text": title},
        "fullDescription": {"text": meaning},
        "help": {"text": page, "markdown": page},
    })
}

fn result(rule: &str, index: Option<usize>, severity: Severity, text: &str) -> Value {
    json!({"ruleId": rule, "ruleIndex": index, "level": severity, "message": {"text": text}})
}

/// The message with what stands below it.
fn words(message: &str, notes: &[String], help: Option<&str>) -> String {
    let notes = notes.iter().map(|note| format!("\nnote: {note}"));
    std::iter::once(message.to_owned()).chain(notes).chain(help.map(|help| format!("\nhelp: {help}"))).collect()
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

/// A place with the words beside it.
fn place(sources: &Sources, span: Span, text: &str) -> Value {
    let source = sources.get(span.file);
    let ((line, column), (end_line, end_column)) =
        (line_column(&source.text, span.start), line_column(&source.text, span.end.max(span.start)));
    let region = json!({"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column});
    let place = located(&source.name, region);
    if text.is_empty() { place } else { with(place, "message", json!({"text": text})) }
}

fn located(name: &str, region: Value) -> Value {
    json!({"physicalLocation": {"artifactLocation": artifact(name), "region": region}})
}

/// A finding about no place in a text, such as one about an option.
fn whole(target: &str) -> Value {
    json!({"physicalLocation": {"artifactLocation": artifact(target)}})
}

/// Line and column of a byte, both from 1. Columns count UTF-16 code units.
fn line_column(text: &str, byte: u32) -> (usize, usize) {
    let before = text.get(..byte as usize).unwrap_or(text);
    let line = before.rfind('\n').map_or(before, |newline| &before[newline + 1..]);
    (before.matches('\n').count() + 1, line.encode_utf16().count() + 1)
}

/// Where a text is: a path as a relative URI, if it is below the working folder; a text of the
/// standard library, or standard input, by its name.
fn artifact(name: &str) -> Value {
    if name == "<stdin>" || name == "-" {
        return json!({"uri": "stdin:", "description": {"text": "standard input"}});
    }
    let imported = || name.strip_prefix("std.").filter(|path| stdlib::file(path).is_some());
    if let Some(standard) = name.strip_prefix("std:").or_else(imported) {
        return json!({"uri": format!("std:{}", escaped(standard)), "description": {"text": "the standard library"}});
    }
    let here = std::env::current_dir().unwrap_or_default();
    let path = std::path::Path::new(name);
    let below = path.strip_prefix(&here).unwrap_or(path);
    let text = below.strip_prefix(".").unwrap_or(below).to_string_lossy().replace('\\', "/");
    let scheme = if below.is_absolute() { "file://" } else { "" };
    json!({"uri": format!("{scheme}{}", escaped(&text))})
}

/// A path with everything escaped that a URI has another use for.
fn escaped(path: &str) -> String {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().map(|byte| if kept(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_what_editors_count() {
        let text = "é🦀x\n\u{1F600}y";
        let places = [0, 2, 6, 7, 8, 12, 13].map(|byte| line_column(text, byte));
        assert_eq!(places, [(1, 1), (1, 2), (1, 4), (1, 5), (2, 1), (2, 3), (2, 4)]);
    }

    #[test]
    fn names_become_uris() {
        let uri = |name: &str| artifact(name)["uri"].as_str().unwrap_or_default().to_owned();
        let here = std::env::current_dir().expect("there is one").join("a b.pipe");
        let cases = [
            ("x.pipe", "x.pipe"),
            ("./sub/x.pipe", "sub/x.pipe"),
            ("../x.pipe", "../x.pipe"),
            ("ä#1%.pipe", "%C3%A4%231%25.pipe"),
            ("a:b.pipe", "a%3Ab.pipe"),
            ("/elsewhere/x.pipe", "file:///elsewhere/x.pipe"),
            ("std:1f1b", "std:1f1b"),
            ("std.models.gpt", "std:models.gpt"),
            ("std.pipe", "std.pipe"),
            ("<stdin>", "stdin:"),
            (here.to_str().expect("the folder has a name"), "a%20b.pipe"),
        ];
        for (name, expected) in cases {
            assert_eq!(uri(name), expected, "{name}");
        }
    }
}
