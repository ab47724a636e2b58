//! `tests/ir/verify/*.ir`: the verifier objects where a comment says so, in these words, and nowhere else.

use pipe_ir::text::{Rejected, check};
use std::collections::BTreeSet;
use std::path::Path;

/// Lines with the words that are expected there.
fn expected(text: &str) -> BTreeSet<(u32, String)> {
    let marked = |(line, text): (u32, &str)| Some((line, text.split_once("; error: ")?.1.to_owned()));
    (1..).zip(text.lines()).filter_map(marked).collect()
}

fn found(text: &str) -> Vec<(u32, String)> {
    match check(text) {
        Ok(_) => Vec::new(),
        Err(Rejected::Parse(error)) => vec![(error.line, format!("expected {}", error.expected))],
        Err(Rejected::Verify(errors)) => {
            errors.into_iter().map(|error| (error.line.unwrap_or(0), error.message)).collect()
        }
    }
}

#[test]
fn the_verifier_objects_there_and_only_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ir/verify");
    let mut complaints = String::new();
    let mut n_cases = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of cases") {
        let path = entry.expect("a case").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let expected = expected(&text);
        let found = found(&text);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for (line, message) in &found {
            if !expected.iter().any(|(other, words)| other == line && message.contains(words)) {
                complaints.push_str(&format!("{name}:{line}: unexpected: {message}\n"));
            }
        }
        for (line, words) in &expected {
            if !found.iter().any(|(other, message)| other == line && message.contains(words)) {
                complaints.push_str(&format!("{name}:{line}: missing: {words}\n"));
            }
        }
        n_cases += 1;
    }
    assert!(complaints.is_empty(), "{complaints}");
    assert!(n_cases > 50, "only {n_cases} cases were found");
}
