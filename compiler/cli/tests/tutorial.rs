//! Pages of the book that one follows at a terminal: their files are written, their commands are run
//! in order, and their outputs are those on the page.

mod process;

use process::{folder, pipec};
use std::path::Path;

/// A page, with how many files it writes and how many outputs it shows.
struct Page {
    name: &'static str,
    text: &'static str,
    counts: (usize, usize),
}

const TUTORIAL: Page = Page { name: "tutorial", text: include_str!("../../../docs/tutorial.md"), counts: (6, 11) };
const COMING_FROM: [Page; 4] = [
    Page { name: "pytorch", text: include_str!("../../../docs/coming_from/pytorch.md"), counts: (2, 2) },
    Page { name: "torchtitan", text: include_str!("../../../docs/coming_from/torchtitan.md"), counts: (1, 2) },
    Page { name: "megatron", text: include_str!("../../../docs/coming_from/megatron.md"), counts: (1, 1) },
    Page { name: "deepspeed", text: include_str!("../../../docs/coming_from/deepspeed.md"), counts: (1, 2) },
];

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
    let names = before
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| [".pipe", ".csv"].iter().any(|ending| name.ends_with(ending)));
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

/// Follows a page.
fn follow(page: &Page) {
    let config = include_str!("../../../examples/llama3_70b.json");
    let folder = folder(&format!("page_{}", page.name), &[("llama3_70b.json", config)]);
    let mut counts = (0, 0);
    for Block { before, kind, text } in blocks(page.text) {
        // The text may ask for another line in a file that is there.
        if let Some((_, rest)) = before.split_once("With `memory ") {
            let memory = rest.split('`').next().expect("a size");
            let path = folder.join("train.pipe");
            let source = std::fs::read_to_string(&path).expect("written before");
            std::fs::write(&path, source.replace("memory 6MiB", &format!("memory {memory}"))).expect("writable");
        }
        match kind.split(',').next() {
            Some("pipe" | "csv") => {
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
    assert_eq!(counts, page.counts, "sources and outputs of {}", page.name);
}

#[test]
fn the_tutorial_prints_what_is_on_the_page() {
    follow(&TUTORIAL);
}

#[test]
fn pages_for_those_who_come_from_elsewhere_print_what_is_on_them() {
    COMING_FROM.iter().for_each(follow);
}
