//! The style: `tests/format/*.pipe` beside what becomes of them. Whatever the text, formatting
//! keeps its meaning and its comments, and formatting twice changes nothing; our own sources are in
//! the style.

use pipe_syntax::format::format;
use pipe_syntax::source::FileId;
use pipe_syntax::{parse, stdlib};
use pipe_tests::cases::{documented, expect, files, read, report, root};
use proptest::prelude::*;
use std::path::PathBuf;

const FILE: FileId = FileId(0);

fn formatted(text: &str) -> String {
    format(FILE, text).unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"))
}

/// The syntax tree without places.
fn meaning(text: &str) -> String {
    let tree = parse::parse(FILE, text).unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
    let tree = format!("{:?}", tree.declarations);
    let mut parts = tree.split("Span { file: FileId(0), start: ");
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| part.split_once('}').map_or("", |(_, rest)| rest)).collect::<String>()
}

/// Words, marks, texts in quotes and comments, with the spaces before each.
fn pieces(text: &str) -> Vec<(&str, &str)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let (space, behind) = rest.split_at(rest.len() - rest.trim_start().len());
        let Some(first) = behind.chars().next() else { return pieces };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = if behind.starts_with("//") {
            behind.find('\n').unwrap_or(behind.len())
        } else if first == '"' {
            behind[1..].find('"').map_or(behind.len(), |end| end + 2)
        } else if is_word(first) {
            behind.find(|c| !is_word(c)).unwrap_or(behind.len())
        } else {
            first.len_utf8()
        };
        pieces.push((space, &behind[..length]));
        rest = &behind[length..];
    }
}

fn comments(text: &str) -> Vec<&str> {
    let comments = pieces(text).into_iter().map(|(_, piece)| piece).filter(|piece| piece.starts_with("//"));
    comments.map(str::trim_end).collect()
}

/// Everything that must hold of any text, and what it becomes.
fn analyze(text: &str) -> Result<String, String> {
    let once = formatted(text);
    if formatted(&once) != once {
        return Err(format!("twice is not once\n{text}\n-- once\n{once}\n-- twice\n{}", formatted(&once)));
    }
    if comments(text) != comments(&once) {
        return Err(format!("comments are not those of\n{text}\n--\n{once}"));
    }
    let (before, after) = (meaning(text), meaning(&once));
    if before != after {
        return Err(format!("means something else than\n{text}\n--\n{once}\n--\n{before}\n--\n{after}"));
    }
    let wrong = |line: &&str| line.ends_with(' ') || line.contains('\t') && !line.contains("//");
    match once.lines().find(wrong) {
        Some(line) => Err(format!("a line ends with spaces: `{line}`")),
        None if once.contains("\n\n\n") => Err(format!("two empty lines\n{once}")),
        None => Ok(once),
    }
}

/// Every source of the repository that parses.
fn sources() -> Vec<(PathBuf, String)> {
    let folders = ["stdlib", "examples", "tests", "compiler", "benches", "fuzz"];
    let paths = folders.iter().flat_map(|folder| files(&root().join(folder), "pipe"));
    paths.map(|path| (path.clone(), read(&path))).filter(|(_, text)| parse::parse(FILE, text).is_ok()).collect()
}

#[test]
fn every_source_keeps_its_meaning_and_its_comments() {
    let sources = sources();
    assert!(sources.len() > 150, "only {} sources were found", sources.len());
    let failure = |(path, text): &(PathBuf, String)| Some(format!("{}: {}", path.display(), analyze(text).err()?));
    report(&sources.iter().filter_map(failure).collect::<Vec<_>>());
}

#[test]
fn our_own_sources_are_in_the_style() {
    let mut ours: Vec<(String, String)> = ["stdlib", "examples"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), "pipe"))
        .map(|path| (path.display().to_string(), read(&path)))
        .collect();
    ours.extend(files(&root().join("docs"), "md").iter().flat_map(|page| documented(page)));
    ours.extend(documented(&root().join("README.md")));
    assert!(ours.len() > 50, "only {} sources were found", ours.len());
    let failure = |(name, text): &(String, String)| {
        let wanted = formatted(text);
        (wanted != *text).then(|| format!("{name} is not in the style, which is\n{wanted}"))
    };
    report(&ours.iter().filter_map(failure).collect::<Vec<_>>());
}

#[test]
fn cases_become_what_stands_beside_them() {
    let cases = files(&root().join("tests/format"), "pipe");
    assert!(cases.len() >= 8, "only {} cases were found", cases.len());
    let failure = |path: &PathBuf| match analyze(&read(path)) {
        Ok(text) => expect(&path.with_extension("formatted"), &text),
        Err(failure) => Some(format!("{}: {failure}", path.display())),
    };
    report(&cases.iter().filter_map(failure).collect::<Vec<_>>());
}

#[test]
fn line_ends_of_windows_stay() {
    let text = "// one\r\nparam a  =  1 // two\r\n\r\n\r\n// three\r\nparam b = 2\r\n";
    let wanted = "// one\r\nparam a = 1                                // two\r\n\r\n// three\r\nparam b = 2\r\n";
    assert_eq!(formatted(text), wanted);
}

#[test]
fn what_does_not_parse_is_told() {
    assert!(format(FILE, "schedule x {").is_err_and(|errors| errors.len() == 1));
    assert_eq!(formatted(""), "");
    assert_eq!(formatted("\n\n  // alone"), "// alone\n");
}

#[test]
fn long_sources_take_no_time() {
    let long = "param x = 1 + (2 * min(3, 4))\n".repeat(20_000) + "// end";
    assert_eq!(formatted(&long), long.clone() + "\n");
    let wide = format!("param x = {}\n", vec!["a"; 150].join(" + "));
    assert!(analyze(&wide).is_ok_and(|text| text.lines().count() == 150));
    let deep = format!("param x = {}1{}\n", "f(1, ".repeat(47), ")".repeat(47));
    assert!(analyze(&deep).is_ok());
}

/// What may stand between any two pieces.
fn space() -> impl Strategy<Value = String> {
    let comment = "[ a-z/é]{0,12}".prop_map(|words| format!("//{words}\n"));
    prop_oneof![
        6 => Just(" ".to_owned()),
        2 => Just("\n".to_owned()),
        1 => Just("\n\n\n    ".to_owned()),
        1 => Just("\t \r\n".to_owned()),
        1 => comment.clone().prop_map(|comment| format!("  {comment}")),
        1 => comment.prop_map(|comment| format!("\n\n{comment}\n")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Sources with other spaces and more comments. `often` is how often in a hundred.
    #[test]
    fn any_spaces_and_comments_keep_the_meaning(
        choice in any::<prop::sample::Index>(),
        often in 1..60_u32,
        spaces in prop::collection::vec((0..100_u32, space()), 400),
    ) {
        let sources: Vec<&str> = stdlib::SCHEDULES.iter().chain(stdlib::MODELS).map(|(_, text)| *text).collect();
        let own = sources_once();
        let index = choice.index(sources.len() + own.len());
        let text = sources.get(index).copied().unwrap_or_else(|| &own[index - sources.len()].1);
        let mut changed = String::new();
        for (index, (space, piece)) in pieces(text).into_iter().enumerate() {
            let (chance, other) = &spaces[index % spaces.len()];
            // Pieces that touch may be one word; brackets and commas never are.
            let may = !space.is_empty() || ["(", ")", "[", "]", "{", "}", ","].contains(&piece);
            changed.push_str(if may && *chance < often && !changed.is_empty() { other } else { space });
            // What was behind a comment stays behind its line.
            if changed.rsplit('\n').next().is_some_and(|line| line.contains("//")) {
                changed.push('\n');
            }
            changed.push_str(piece);
        }
        prop_assume!(parse::parse(FILE, &changed).is_ok());
        prop_assert!(analyze(&changed).is_ok(), "{}", analyze(&changed).err().unwrap_or_default());
    }
}

/// Sources of the tests, read once.
fn sources_once() -> &'static [(PathBuf, String)] {
    static SOURCES: std::sync::OnceLock<Vec<(PathBuf, String)>> = std::sync::OnceLock::new();
    SOURCES.get_or_init(sources)
}
