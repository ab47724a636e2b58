//! Mistakes of users that no session can show: texts of every length, and readers that go away.

mod process;

use process::{folder, pipec};
use std::path::Path;
use std::process::{Command, Stdio};

/// One microbatch after the other through a model that trains in a moment.
const TINY: &str = include_str!("data/sgd.pipe");

#[test]
fn files_that_the_help_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for command in ["", "check", "plot", "search", "tune", "build", "run", "profile", "explain"] {
        let help = pipec(&root, &format!("{command} --help"), "").with(0).out;
        for word in help.split_whitespace().filter(|word| word.starts_with("examples/")) {
            assert!(root.join(word).exists(), "{command}: {word}");
            named += 1;
        }
    }
    assert!(named >= 10, "{named}");
}

#[test]
fn texts_of_every_length_and_kind_are_answered() {
    let folder = folder("mistakes-texts", &[]);
    let long = |length: usize| format!("schedule {} {{ stages 0 place s on s }}", "x".repeat(length));
    let sum = format!("schedule x {{ stages {}1 }}", "1 + ".repeat(30_000));
    let bracket = "(".repeat(100_000);
    let repeated = "schedule x { stages D place s on s }\n".repeat(3_000);
    let digits = format!("param a = {}", "9".repeat(100_000));
    for source in [long(300), long(70_000), sum, bracket, repeated, digits, "\0\u{1b}[2J".to_owned(), String::new()] {
        let error = pipec(&folder, "check -", &source).with(1).error;
        assert!(error.starts_with("error["), "{:.80}\n{error:.2000}", source);
        assert!(!error.lines().next().unwrap_or_default().contains('\u{1b}'), "{error:?}");
    }
    pipec(&folder, "check -", &format!("\u{feff}{}", TINY.replace('\n', "\r\n"))).with(0);
}

#[test]
fn a_reader_that_goes_away_does_not_change_the_verdict() {
    for (arguments, code) in [("check std:1f1b", 0), ("check std:1f1b --memory 1", 1), ("plot std:1f1b", 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the command starts");
        drop(child.stdout.take());
        let status = child.wait().expect("the command ends");
        assert_eq!(status.code(), Some(code), "{arguments}");
    }
}
