//! Terminals of any width: no line is wider, and no word or number is cut. `terminal.txt` says of which commands.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const CASES: &str = include_str!("terminal.txt");
const WIDTHS: [usize; 5] = [60, 80, 100, 140, 200];
/// A terminal on which every line fits.
const WIDE: usize = 900;

/// Whether this machine has `script`, which gives a command a terminal.
fn has_terminals() -> bool {
    Command::new("script").args(["-qec", "true", "/dev/null"]).output().is_ok_and(|ended| ended.status.success())
}

/// Runs `pipec` with `arguments` in a terminal of `columns` columns, and returns what it writes.
fn shown(folder: &Path, arguments: &str, columns: usize) -> String {
    let line = format!("stty cols {columns} rows 50; exec {} {arguments}", env!("CARGO_BIN_EXE_pipec"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(folder).env("TERM", "xterm");
    let ended = command.env_remove("COLUMNS").env_remove("NO_COLOR").output().expect("`script` starts");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// The lines of a text without what moves the cursor or colours it.
fn lines(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let end = after.find(|mark: char| mark.is_ascii_alphabetic()).map_or(after.len(), |end| end + 1);
        rest = &after[end..];
    }
    plain.push_str(rest);
    plain.split(['\n', '\r']).map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The words of lines. If figures differ from run to run, their digits and their units of time do not count.
fn words(lines: &[String], differ: bool) -> BTreeSet<String> {
    let said = |word: &&str| word.chars().any(char::is_alphanumeric);
    let without_digits = |word: &str| {
        let mut text = String::new();
        for mark in word.chars() {
            match mark {
                // `6MiB` and `5.98MiB` are one.
                '0'..='9' | '.' | ',' if text.ends_with('#') => {}
                '0'..='9' => text.push('#'),
                _ => text.push(mark),
            }
        }
        // A busy machine takes `1.2 us` for what takes `400 ns` otherwise.
        if ["ns", "us", "ms", "s"].contains(&text.as_str()) { "#s".to_owned() } else { text }
    };
    // Marks around a word are those of a picture or a sentence.
    let bare = |word: &'_ str| word.trim_matches(|mark: char| !mark.is_alphanumeric()).to_owned();
    let all = lines.iter().flat_map(|line| line.split_whitespace()).filter(said).map(bare);
    all.map(|word| if differ { without_digits(&word) } else { word }).collect()
}

/// What is wrong with a command, if anything is.
fn failures(folder: &Path, case: &str) -> Vec<String> {
    let (kind, arguments) = case.split_once('$').expect("a command behind `$`");
    let arguments = arguments.trim();
    let differ = kind.trim() == "differs";
    let wide = words(&lines(&shown(folder, arguments, WIDE)), differ);
    assert!(!wide.is_empty(), "{arguments} says nothing");
    let mut failures = Vec::new();
    for columns in WIDTHS {
        let own = lines(&shown(folder, arguments, columns));
        // A single word, such as what to copy behind `--cost`, is not cut even if it is longer.
        let is_word = |line: &str| line.split_whitespace().count() == 1;
        let wider = own.iter().filter(|line| line.chars().count() > columns && !is_word(line));
        failures.extend(wider.map(|line| format!("{arguments}: {columns} columns are too few for `{line}`")));
        if kind.trim() != "drawing" {
            let cut = words(&own, differ);
            let cut = cut.difference(&wide).map(|word| format!("{arguments}: {columns} columns show `{word}`"));
            failures.extend(cut);
        }
    }
    failures
}

#[test]
fn every_command_is_among_them() {
    let help = Command::new(env!("CARGO_BIN_EXE_pipec")).arg("--help").output().expect("`pipec` starts");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list of commands");
    let names =
        list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty());
    let missing: Vec<&str> = names.filter(|name| *name != "help" && !CASES.contains(&format!("$ {name}"))).collect();
    assert!(missing.is_empty(), "{missing:?} in\n{list}");
}

#[test]
fn what_people_read_fits_terminals_of_every_width() {
    if !has_terminals() {
        eprintln!("skipped: there is no `script` that gives a command a terminal");
        return;
    }
    let files = [
        ("adam.pipe", include_str!("data/adam.pipe")),
        ("adam_trace.json", include_str!("data/adam_trace.json")),
        ("clustered.pipe", include_str!("data/clustered.pipe")),
        ("config.json", include_str!("../../../tests/data/configs/gpt2.json")),
        ("cluster.toml", include_str!("../../../examples/cluster.toml")),
        ("long.pipe", include_str!("data/long.pipe")),
        ("stuck.pipe", include_str!("../../../tests/ui/deadlock/first_device_wants_its_backward.pipe")),
    ];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("terminal");
    fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("the folder was just made");
    }
    let cases: Vec<&str> = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(cases.len() > 10, "{cases:?}");
    let failures: Vec<String> = cases.iter().flat_map(|case| failures(&folder, case)).collect();
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}
