//! Pages of the book that one follows at a terminal: their files are written, their commands are run
//! in order, and their outputs and pictures are those on the page.
//!
//! `BLESS=1 cargo test -p pipec --test tutorial` writes outputs that no `..` shortens, and pictures, anew.

mod process;

use process::{folder, pipec};
use std::fs;
use std::path::{Path, PathBuf};

/// A page with how many files it writes, and how many outputs it shows.
struct Page {
    /// Of the book.
    path: &'static str,
    counts: (usize, usize),
}

const TUTORIAL: Page = Page { path: "tutorial.md", counts: (10, 29) };
const COMING_FROM: [Page; 4] = [
    Page { path: "coming_from/pytorch.md", counts: (2, 2) },
    Page { path: "coming_from/torchtitan.md", counts: (1, 2) },
    Page { path: "coming_from/megatron.md", counts: (1, 2) },
    Page { path: "coming_from/deepspeed.md", counts: (1, 2) },
];

/// Whether outputs and pictures are written anew.
fn is_blessed() -> bool {
    std::env::var_os("BLESS").is_some()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file that the text before a block names last: the block is what is in it.
fn named(before: &str) -> &str {
    let names = before.split('`').skip(1).step_by(2);
    let names = names.filter(|name| [".pipe", ".csv"].iter().any(|ending| name.ends_with(ending)));
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

/// Runs the commands of a block; the block as it should be.
fn run(folder: &Path, text: &str) -> String {
    let mut commands = text.split("$ pipec ").skip(1).peekable();
    assert!(commands.peek().is_some(), "no command: {text}");
    let mut blessed = String::new();
    for command in commands {
        // A quote may go over several lines.
        let mut ends = command.match_indices('\n').map(|(end, _)| end);
        let end = ends.find(|end| shlex::split(&command[..*end]).is_some()).expect("a command ends");
        let (arguments, expected) = (&command[..end], &command[end + 1..]);
        let ended = pipec(folder, arguments, "");
        let is_rejected = ended.error.contains("error[");
        let ended = ended.with(i32::from(is_rejected));
        let all = format!("{}{}{}", ended.out, if ended.out.ends_with('\n') { "" } else { "\n" }, ended.error);
        let lines: Vec<&str> = all.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let wanted: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
        let is_shortened = wanted.iter().any(|line| line.contains(".."));
        assert!(
            are_like(&lines, &wanted) || is_blessed() && !is_shortened,
            "pipec {arguments}\n--- on the page\n{expected}\n--- printed\n{all}"
        );
        let printed: Vec<&str> = all.trim().lines().map(str::trim_end).collect();
        let shown = if is_shortened { expected.to_owned() } else { format!("{}\n", printed.join("\n")) };
        blessed.push_str(&format!("$ pipec {arguments}\n{}", shown.trim_start_matches('\n')));
    }
    blessed
}

/// Follows a page.
fn follow(page: &Page) {
    let path = repository().join("docs").join(page.path);
    let text = read(&path);
    let config = include_str!("../../../examples/llama3_70b.json");
    let cluster = include_str!("../../../examples/cluster.toml");
    let folder = folder(
        &format!("page_{}", page.path.replace('/', "_")),
        &[("llama3_70b.json", config), ("cluster.toml", cluster)],
    );
    let mut counts = (0, 0);
    let mut parts = text.split("```");
    let mut blessed = String::new();
    while let Some(before) = parts.next() {
        blessed.push_str(before);
        let Some(block) = parts.next() else { break };
        let (kind, text) = block.split_once('\n').expect("code begins on a line of its own");
        // The text may ask for another line in a file that is there.
        if let Some((_, rest)) = before.split_once("With `memory ") {
            let memory = rest.split('`').next().expect("a size");
            let path = folder.join("train.pipe");
            let source = read(&path);
            fs::write(&path, source.replace("memory 6MiB", &format!("memory {memory}"))).expect("writable");
        }
        let mut text = text.to_owned();
        match kind.split(',').next() {
            Some("pipe" | "csv") => {
                fs::write(folder.join(named(before)), &text).expect("writable");
                counts.0 += 1;
            }
            Some("console") => {
                text = run(&folder, &text);
                counts.1 += 1;
            }
            _ => {}
        }
        blessed.push_str(&format!("```{kind}\n{text}```"));
    }
    if is_blessed() {
        fs::write(&path, blessed).expect("the page is there");
    }
    for picture in text.split("](images/tutorial/").skip(1).filter_map(|rest| rest.split(')').next()) {
        compare(&repository().join("docs/images/tutorial").join(picture), &read(&folder.join(picture)));
    }
    assert_eq!(counts, page.counts, "sources and outputs of {}", page.path);
}

/// Compares a picture of the book with what is drawn now, or writes it anew.
fn compare(path: &Path, drawn: &str) {
    if is_blessed() {
        return fs::write(path, drawn).expect("the folder of pictures is there");
    }
    assert!(read(path) == drawn, "{} is drawn otherwise now: BLESS=1 writes it anew", path.display());
}

/// The pages of the book.
fn pages(folder: &Path) -> Vec<PathBuf> {
    files(folder, "md")
}

/// Pictures of the book.
fn pictures(folder: &Path, ending: &str) -> Vec<PathBuf> {
    files(&folder.canonicalize().expect("a folder of pictures"), ending)
}

/// The files of a folder and those below it with an ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the book").filter_map(Result::ok).map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let mut found: Vec<PathBuf> =
        files.into_iter().filter(|path| path.extension().is_some_and(|end| end == ending)).collect();
    let folders = folders.iter().filter(|path| !path.ends_with("node_modules"));
    found.extend(folders.flat_map(|path| self::files(path, ending)));
    found.sort();
    found
}

#[test]
fn the_tutorial_prints_and_draws_what_is_on_the_page() {
    follow(&TUTORIAL);
}

#[test]
fn pages_for_those_who_come_from_elsewhere_print_what_is_on_them() {
    COMING_FROM.iter().for_each(follow);
}

/// `<!-- pipec plot TARGET .. -->` above a picture is the command that draws it, from the root of the repository.
#[test]
fn pictures_are_what_the_command_above_them_draws() {
    let book = repository().join("docs");
    let folder = folder("book_pictures", &[]);
    let mut drawn = Vec::new();
    for page in pages(&book) {
        let text = read(&page);
        for rest in text.split("<!-- pipec plot ").skip(1) {
            let (arguments, below) = rest.split_once(" -->\n").expect("a command is a line");
            let picture = below.split("](").nth(1).and_then(|link| link.split(')').next()).expect("a picture follows");
            let path = page.parent().expect("in the book").join(picture);
            let name = path.file_name().expect("a picture").to_string_lossy().into_owned();
            let output = folder.join(&name);
            let ended = pipec(&repository(), &format!("plot {arguments} -o {}", output.display()), "");
            let is_rejected = ended.error.contains("error[");
            ended.with(i32::from(is_rejected));
            compare(&path, &read(&output));
            drawn.push(path.canonicalize().expect("it was compared"));
        }
    }
    // Those of the gallery have a test of their own, and the tutorial's own commands draw its pictures.
    let images = book.join("images").canonicalize().expect("it has pictures");
    let is_elsewhere = |path: &PathBuf| ["gallery", "tutorial"].iter().any(|name| path.starts_with(images.join(name)));
    let drawn_here = pictures(&images, "svg").into_iter().filter(|path| !is_elsewhere(path));
    let stale: Vec<PathBuf> = drawn_here.filter(|path| !drawn.contains(path)).collect();
    assert!(stale.is_empty(), "no page draws {stale:?}");
}

#[test]
fn every_picture_is_on_a_page() {
    let images = repository().join("docs/images");
    let mut shown = Vec::new();
    for page in pages(&repository().join("docs")) {
        let folder = page.parent().expect("in the book").to_owned();
        let text = read(&page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        shown.extend(links.filter_map(|link| folder.join(link).canonicalize().ok()));
    }
    let all: Vec<PathBuf> = ["svg", "png"].iter().flat_map(|ending| pictures(&images, ending)).collect();
    assert!(all.len() > 60, "{} pictures", all.len());
    let whole = |path: &PathBuf| path.canonicalize().expect("it is there");
    let stale: Vec<&PathBuf> = all.iter().filter(|path| !shown.contains(&whole(path))).collect();
    assert!(stale.is_empty(), "no page shows {stale:?}");
}
