//! Code actions: a quick fix for each finding, and one action that fixes all errors.

use crate::commands::lsp::diagnostics::{Remedy, remedy};
use crate::commands::lsp::here::Here;
use lsp_types::{CodeActionKind, CodeActionParams, DiagnosticSeverity, Range, TextEdit};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kind of the action that fixes all errors.
pub(in crate::commands::lsp) const FIX_ALL: &str = "source.fixAll.pipec";

/// A finding, as the editor has it, with its fix.
struct Fixable<'f> {
    finding: &'f Value,
    range: Range,
    remedy: Remedy,
}

/// The quick fixes of findings in a range, and the action that fixes all errors. There are none while the findings
/// belong to an older version of the text, because their edits would be applied in wrong places.
pub(in crate::commands::lsp) fn actions(here: &Here<'_>, wanted: &CodeActionParams) -> Value {
    if !here.is_fresh {
        return json!([]);
    }
    let fixable: Vec<Fixable<'_>> = here.findings.iter().filter_map(read).collect();
    let accepts = |kind: &str| wanted.context.only.as_ref().is_none_or(|only| only.iter().any(|one| holds(one, kind)));
    let edit = |edits: &[TextEdit]| json!({"changes": {here.document.uri.as_str(): edits}});
    let mut actions = Vec::new();
    if accepts(CodeActionKind::QUICKFIX.as_str()) {
        let near = |one: &&Fixable<'_>| {
            let edited = one.remedy.edits.iter().map(|edit| edit.range);
            std::iter::once(one.range).chain(edited).any(|range| meets(range, wanted.range))
        };
        actions.extend(fixable.iter().filter(near).map(|Fixable { finding, remedy, .. }| {
            json!({
                "title": remedy.title, "kind": CodeActionKind::QUICKFIX, "diagnostics": [finding],
                "isPreferred": true, "edit": edit(&remedy.edits),
            })
        }));
    }
    let all = together(fixable.iter().filter(|one| is_error(one.finding)).map(|one| one.remedy.edits.as_slice()));
    if accepts(FIX_ALL) && !all.is_empty() {
        actions.push(json!({"title": "fix all errors that have a fix", "kind": FIX_ALL, "edit": edit(&all)}));
    }
    Value::Array(actions)
}

fn read(finding: &Value) -> Option<Fixable<'_>> {
    let range = serde_json::from_value(finding["range"].clone()).ok()?;
    Some(Fixable { finding, range, remedy: remedy(finding)? })
}

/// Only errors. A warning may be intended.
fn is_error(finding: &Value) -> bool {
    finding["severity"] == json!(DiagnosticSeverity::ERROR)
}

/// Whether actions of a kind belong to a wanted one: `source.fixAll.pipec` to `source.fixAll`.
fn holds(wanted: &CodeActionKind, kind: &str) -> bool {
    kind.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether two ranges overlap or touch.
fn meets(one: Range, other: Range) -> bool {
    one.start <= other.end && other.start <= one.end
}

/// The edits of all fixes in order, without those that overlap an earlier one.
fn together<'f>(fixes: impl Iterator<Item = &'f [TextEdit]>) -> Vec<TextEdit> {
    let mut taken: Vec<TextEdit> = Vec::new();
    let mut starts = BTreeSet::new();
    for fix in fixes {
        let start = |edit: &TextEdit| (edit.range.start.line, edit.range.start.character);
        let clash = |edit: &TextEdit| {
            let overlaps = |other: &TextEdit| edit.range.start < other.range.end && other.range.start < edit.range.end;
            starts.contains(&start(edit)) || taken.iter().any(overlaps)
        };
        if !fix.iter().any(clash) {
            starts.extend(fix.iter().map(start));
            taken.extend(fix.iter().cloned());
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use lsp_types::Position;

    fn edit(start: u32, end: u32, text: &str) -> TextEdit {
        TextEdit::new(Range::new(Position::new(0, start), Position::new(0, end)), text.to_owned())
    }

    #[test]
    fn fixes_of_the_same_place_are_made_one_after_the_other() {
        let fixes = [
            vec![edit(0, 4, "a"), edit(9, 9, "b")],
            vec![edit(3, 5, "c")],
            vec![edit(9, 9, "b")],
            vec![edit(4, 4, "d"), edit(6, 8, "")],
        ];
        let made: Vec<String> =
            together(fixes.iter().map(Vec::as_slice)).into_iter().map(|edit| edit.new_text).collect();
        assert_eq!(made, ["a", "b", "d", ""]);
    }

    #[test]
    fn kinds_are_parts_of_others() {
        assert!(holds(&CodeActionKind::from("source"), FIX_ALL) && holds(&CodeActionKind::from(FIX_ALL), FIX_ALL));
        assert!(holds(&CodeActionKind::QUICKFIX, "quickfix") && !holds(&CodeActionKind::QUICKFIX, FIX_ALL));
        assert!(!holds(&CodeActionKind::from("source.fix"), FIX_ALL));
    }
}
