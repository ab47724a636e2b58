//! The book in `docs/`: its generated pages are what they are generated from, every page has its
//! chapter, and every link its target.

use pipe_tests::book::{errors, examples, gallery, grammar};
use pipe_tests::cases::{expect, files, read, report, root};
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
    let folder = root().join("docs");
    let entries = std::fs::read_dir(&folder).expect("docs/ is there").filter_map(Result::ok).map(|entry| entry.path());
    let is_page =
        |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md") && !path.ends_with("SUMMARY.md");
    entries.filter(is_page).collect()
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
    if file.starts_with("..") {
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
        let name = page.file_name()?.to_string_lossy().into_owned();
        (!chapters.contains(&name)).then(|| format!("docs/SUMMARY.md does not name {name}"))
    });
    let gone = chapters.iter().filter_map(|name| broken(&root().join("docs/SUMMARY.md"), name));
    report(&missing.chain(gone).collect::<Vec<_>>());
}
