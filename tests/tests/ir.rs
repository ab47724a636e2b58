//! `tests/ir/verify/*.ir`: the verifier objects where a comment says so, in these words, and
//! nowhere else. `tests/ir/deadlock`: programs that get stuck beside the shortest cycles of
//! instructions that wait for each other.

use pipe_ir::text::{Rejected, check};
use pipe_tests::cases::{expect, files, read, report, root};
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

#[test]
fn deadlocks_are_shown_as_their_shortest_cycles() {
    let cases = files(&root().join("tests/ir/deadlock"), "ir");
    let failure = |path: &std::path::PathBuf| match check(&read(path)) {
        Err(Rejected::Verify(errors)) => {
            let text: String = errors.iter().map(|error| format!("{error}\n")).collect();
            let wrong = errors.iter().find(|error| !(2..=6).contains(&error.notes.len()));
            let wrong = wrong.map(|error| format!("{} instructions in {}", error.notes.len(), path.display()));
            wrong.or_else(|| expect(&path.with_extension("stderr"), &text))
        }
        other => Some(format!("{}: {other:?}", path.display())),
    };
    report(&cases.iter().filter_map(failure).collect::<Vec<_>>());
    assert!(cases.len() >= 8);
}

/// The Python package has a class for each row of the instruction table: `cargo bless` writes them.
#[test]
fn python_has_the_instructions_of_the_table() {
    let path = root().join("python/src/pipec/instructions.py");
    report(&expect(&path, &pipe_ir::forms::python::instructions()).into_iter().collect::<Vec<_>>());
}
