//! The tutorial of the book: its files are written, its commands are run in order, and their
//! outputs are those on the page.

mod process;

use process::{folder, pipec};
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/tutorial.md");

/// A block of code with the text before it.
struct Block<'t> {
    before: &'t str,
    /// What stands behind the three marks.
    kind: &'t str,
    text: &'t str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut parts = page.split("```");
    let mut blocks = Vec::new();
    while let (Some(before), Some(block)) = (parts.next(), parts.next()) {
        let (kind, text) = block.split_once('\n').expect("code begins on a line of its own");
        blocks.push(Block { before, kind, text });
    }
    blocks
}

/// The file that the text before a block names last: the block is what is in it.
fn named(before: &str) -> &str {
    let names = before.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".pipe"));
    names.last().expect("a source follows the name of its file")
}

/// Whether a line is as expected, where `..` stands for anything.
fn is_like(line: &str, expected: &str) -> bool {
    let Some((start, end)) = expected.split_once("..") else { return line == expected.trim_end() };
    line.starts_with(start) && line[start.len()..].ends_with(end.trim_end())
}

/// Whether lines are as expected, where a line `..` stands for any number of them.
fn are_like(lines: &[&str], expected: &[&str]) -> bool {
    match (lines, expected) {
        ([], []) => true,
        (_, ["..", rest @ ..]) => (0..=lines.len()).any(|skipped| are_like(&lines[skipped..], rest)),
        ([line, lines @ ..], [wanted, rest @ ..]) => is_like(line, wanted) && are_like(lines, rest),
        _ => false,
    }
}

/// Runs the commands of a block.
fn run(folder: &Path, text: &str) {
    let mut commands = text.split("$ pipec ").skip(1).peekable();
    assert!(commands.peek().is_some(), "no command: {text}");
    for command in commands {
        let (arguments, expected) = command.split_once('\n').expect("a command is a line");
        let is_rejected = expected.contains("error[");
        let ended = pipec(folder, arguments, "").with(i32::from(is_rejected));
        let all = format!("{}{}{}", ended.out, if ended.out.ends_with('\n') { "" } else { "\n" }, ended.error);
        let lines: Vec<&str> = all.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let wanted: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
        assert!(are_like(&lines, &wanted), "pipec {arguments}\n--- on the page\n{expected}\n--- printed\n{all}");
    }
}

#[test]
fn its_commands_print_what_is_on_the_page() {
    let folder = folder("tutorial", &[]);
    let mut counts = (0, 0);
    for Block { before, kind, text } in blocks(PAGE) {
        // The text may ask for another line in a file that is there.
        if let Some((_, rest)) = before.split_once("With `memory ") {
            let memory = rest.split('`').next().expect("a size");
            let path = folder.join("train.pipe");
            let source = std::fs::read_to_string(&path).expect("written before");
            std::fs::write(&path, source.replace("memory 6MiB", &format!("memory {memory}"))).expect("writable");
        }
        match kind.split(',').next() {
            Some("pipe") => {
                std::fs::write(folder.join(named(before)), text).expect("writable");
                counts.0 += 1;
            }
            Some("console") => {
                run(&folder, text);
                counts.1 += 1;
            }
            _ => {}
        }
    }
    assert_eq!(counts, (6, 11), "sources and outputs of the page");
}
