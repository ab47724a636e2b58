//! The book in `docs/`: its generated pages are what they are generated from, every page has its
//! chapter, and every link its target.

use pipe_tests::book::{errors, examples, gallery, grammar};
use pipe_tests::cases::{expect, files, read, report, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Compares a page with what it is generated from.
fn page(name: &str, text: Result<String, String>) -> Vec<String> {
    match text {
        Ok(text) => expect(&root().join("docs").join(name), &text).into_iter().collect(),
        Err(wrong) => vec![wrong],
    }
}

#[test]
fn the_grammar_is_that_of_the_compiler() {
    report(&page("grammar.md", grammar::page(&read(&root().join("grammar/pipe.pest")))));
}

#[test]
fn errors_are_those_that_explain_prints() {
    report(&page("errors.md", errors::page()));
}

#[test]
fn examples_are_shown_as_they_are() {
    report(&page("examples.md", Ok(examples::page())));
}

#[test]
fn the_gallery_shows_every_standard_schedule() {
    let (text, pictures) = match gallery::page() {
        Ok(found) => found,
        Err(wrong) => return report(&[wrong]),
    };
    let mut failures = page("gallery.md", Ok(text));
    let folder = root().join("docs/images/gallery");
    failures.extend(pictures.iter().filter_map(|(name, picture)| expect(&folder.join(name), picture)));
    let drawn: Vec<PathBuf> = pictures.iter().map(|(name, _)| folder.join(name)).collect();
    failures.extend(
        files(&folder, "svg")
            .iter()
            .filter(|path| !drawn.contains(path))
            .map(|path| format!("{}: of no schedule", path.display())),
    );
    report(&failures);
}

/// The pages of the book, without its table of contents.
fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| {
        !path.ends_with("SUMMARY.md") && !path.components().any(|part| part.as_os_str() == "node_modules")
    };
    files(&root().join("docs"), "md").into_iter().filter(is_page).collect()
}

/// The name of a page in the table of contents.
fn chapter(page: &Path) -> String {
    page.strip_prefix(root().join("docs")).unwrap_or(page).display().to_string()
}

/// The targets of a page's links, without those in code.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    let prose: String = prose.join("\n").split('`').step_by(2).collect::<Vec<_>>().join("x");
    let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.collect()
}

/// What a heading is called in a link, as on GitHub and in mdBook.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// What is wrong with a link of a page.
fn broken(page: &Path, link: &str) -> Option<String> {
    if link.starts_with("http") {
        return None;
    }
    let (file, place) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    if !target.exists() {
        return Some(format!("{}: `{link}` leads nowhere", page.display()));
    }
    let book = root().join("docs").canonicalize().ok()?;
    if !target.canonicalize().ok()?.starts_with(book) {
        return Some(format!("{}: `{link}` leads out of the book", page.display()));
    }
    let text = if place.is_empty() { return None } else { read(&target) };
    let headings =
        text.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches(['#', ' '])));
    (!headings.into_iter().any(|heading| heading == place))
        .then(|| format!("{}: `{link}` has no such heading", page.display()))
}

#[test]
fn every_link_has_a_target() {
    let mut failures = Vec::new();
    for page in pages() {
        failures.extend(links(&read(&page)).iter().filter_map(|link| broken(&page, link)));
    }
    report(&failures);
}

#[test]
fn every_page_has_its_chapter() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let chapters = links(&summary);
    let missing = pages().into_iter().filter_map(|page| {
        let name = chapter(&page);
        (!chapters.contains(&name)).then(|| format!("docs/SUMMARY.md does not name {name}"))
    });
    let gone = chapters.iter().filter_map(|name| broken(&root().join("docs/SUMMARY.md"), name));
    report(&missing.chain(gone).collect::<Vec<_>>());
}

/// Paragraphs and items of lists, by the lines that they begin on; neither code nor tables.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut is_code) = (vec![(0, String::new())], false);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_item =
            line.starts_with("- ") || line.split_once(". ").is_some_and(|(head, _)| head.parse::<u32>().is_ok());
        let is_other = is_code || is_fence || line.is_empty() || line.starts_with(['|', '#', '<']);
        if is_other || is_item {
            found.push((number, String::new()));
        }
        if let Some((_, paragraph)) = found.last_mut().filter(|_| !is_other) {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    found
}

#[test]
fn no_paragraph_is_longer_than_one_reads_at_a_glance() {
    const MOST_LETTERS: usize = 600;
    let mut failures = Vec::new();
    for page in pages() {
        for (line, paragraph) in paragraphs(&read(&page)) {
            let letters = paragraph.trim().chars().count();
            if letters > MOST_LETTERS {
                failures.push(format!(
                    "{}:{line}: a paragraph of {letters} letters, more than {MOST_LETTERS}",
                    page.display()
                ));
            }
        }
    }
    report(&failures);
}

/// Links of old addresses lead to pages and headings that are there.
#[test]
fn every_redirect_has_a_target() {
    let config = read(&root().join("docs/book.toml"));
    let rows = config.lines().filter_map(|line| line.strip_prefix("\"/")?.split_once("\" = \""));
    let targets: Vec<String> = rows.map(|(_, target)| target.trim_end_matches('"').replace(".html", ".md")).collect();
    assert!(!targets.is_empty(), "docs/book.toml has no redirects");
    report(&targets.iter().filter_map(|target| broken(&root().join("docs/SUMMARY.md"), target)).collect::<Vec<_>>());
}

/// Words of the grammar have colours in the book.
#[test]
fn the_book_knows_every_keyword() {
    let grammar = read(&root().join("grammar/pipe.pest"));
    let rules = grammar.lines().filter(|line| line.starts_with("kw_"));
    let words: BTreeSet<&str> = rules.filter_map(|line| line.split('"').nth(1)).collect();
    let script = read(&root().join("docs/theme/pipe.js"));
    let list = script.split("const KEYWORDS = `").nth(1).and_then(|rest| rest.split('`').next()).unwrap_or_default();
    assert_eq!(list.split_whitespace().collect::<BTreeSet<&str>>(), words, "`KEYWORDS` in docs/theme/pipe.js");
}
