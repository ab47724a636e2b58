//! What people write by mistake: `tests/mistakes/*.txt` has texts and what the compiler says of them, with exact
//! places, and what becomes of them if the first fix that is offered is made, until none is left.
//!
//! A case is a title, the frame that its text stands in (`frames.txt`), the text, and what comes of it:
//!
//! ```text
//! # a range of Python
//! in order
//! | for m in range(M) { F[d, m] BW[d, m] }
//! 1:10-1:15 `range`: a loop counts over `first..end`, not over `range(M)`
//!   help: write `0..M`
//! > for m in 0..M { F[d, m] BW[d, m] }
//! accepted
//! ```

use pipe_compiler::{Compilation, Request};
use pipe_syntax::diagnostic::{Diagnostic, edited};
use pipe_syntax::source::{Sources, Span};
use pipe_tests::cases::{compile_text, expect, files, read, report, root};
use std::collections::BTreeMap;
use std::fmt::Write;

/// As many mistakes as one text can have, and more.
const MOST_FIXES: usize = 40;

/// A text in its frame.
struct Case<'t> {
    title: &'t str,
    frame: &'t str,
    lines: Vec<&'t str>,
    source: String,
    /// Where the text begins in the source, and by how much its lines are indented.
    start: usize,
    indentation: usize,
}

/// The sources around texts, by their names.
fn frames(text: &str) -> BTreeMap<&str, &str> {
    let parts = text.split("frame ").skip(1);
    parts.filter_map(|part| part.split_once('\n')).map(|(name, source)| (name, source.trim_end())).collect()
}

fn cases<'t>(text: &'t str, frames: &BTreeMap<&str, &str>) -> Vec<Case<'t>> {
    let parts = text.split("\n# ").skip(1);
    parts
        .map(|part| {
            let mut lines = part.lines();
            let title = lines.next().unwrap_or_default();
            let frame = lines.next().unwrap_or_default().trim_start_matches("in ");
            let lines: Vec<&str> = lines
                .map_while(|line| line.strip_prefix('|'))
                .map(|line| line.strip_prefix(' ').unwrap_or(line))
                .collect();
            let outside = frames.get(frame).unwrap_or_else(|| panic!("{title}: there is no frame `{frame}`"));
            let start = outside.find('@').unwrap_or_else(|| panic!("{frame} has no place for a text"));
            let indentation = outside[..start].rfind('\n').map_or(start, |newline| start - newline - 1);
            let inside = lines.join(&format!("\n{}", " ".repeat(indentation)));
            Case { title, frame, source: outside.replacen('@', &inside, 1) + "\n", lines, start, indentation }
        })
        .collect()
}

impl Case<'_> {
    /// Line and column in the text of the case, or in the frame.
    fn place(&self, byte: u32) -> String {
        let byte = byte as usize;
        let length: usize = self.lines.iter().map(|line| line.len() + 1 + self.indentation).sum();
        let from_start = self.source.get(self.start..byte).filter(|text| text.len() < length);
        let before = from_start.unwrap_or(&self.source[..byte.min(self.source.len())]);
        let line = before.matches('\n').count();
        let column = before.chars().rev().take_while(|mark| *mark != '\n').count();
        let indentation = if from_start.is_some() && line > 0 { self.indentation.min(column) } else { 0 };
        let outside = if from_start.is_some() { "" } else { "frame " };
        format!("{outside}{}:{}", line + 1, column + 1 - indentation)
    }

    fn span(&self, span: Span) -> String {
        let text = &self.source[span.start as usize..span.end as usize];
        let shown = if text.is_empty() { String::new() } else { format!(" `{}`", text.replace('\n', "\\n")) };
        format!("{}-{}{shown}", self.place(span.start), self.place(span.end))
    }

    fn told(&self, diagnostics: &[Diagnostic], sources: &Sources) -> String {
        let mut told = String::new();
        for diagnostic in diagnostics {
            let code = diagnostic.code.name();
            let code = if code == "syntax" { String::new() } else { format!("{code}: ") };
            let own = |span: Span| sources.get(span.file).name == NAME;
            let place = diagnostic.labels.first().filter(|label| own(label.span)).map(|label| self.span(label.span));
            let label = diagnostic.labels.first().map_or("", |label| label.text.as_str());
            let _ = writeln!(told, "{}: {code}{} [{label}]", place.unwrap_or_default(), diagnostic.message);
            for label in diagnostic.labels.iter().skip(1).filter(|label| own(label.span)) {
                let _ = writeln!(told, "  {}: {}", self.span(label.span), label.text);
            }
            for note in &diagnostic.notes {
                let _ = writeln!(told, "  note: {note}");
            }
            if let Some(help) = &diagnostic.help {
                let _ = writeln!(told, "  help: {help}");
            }
        }
        told
    }

    /// The source after the first fix of each compilation, until there is none, and what is left to say of it.
    fn fixed(&self, first: &Compilation) -> (String, Vec<String>) {
        let mut source = self.source.clone();
        let mut diagnostics = first.diagnostics.clone();
        for _ in 0..MOST_FIXES {
            let Some(fixable) = diagnostics.iter().find(|one| !one.edits().is_empty()) else { break };
            source = edited(&source, fixable.edits());
            diagnostics = compiled(&source).0.diagnostics;
        }
        let errors = diagnostics.iter().filter(|one| one.severity.is_error());
        (source, errors.map(|one| format!("{}: {}", one.code, one.message)).collect())
    }

    /// The case as the file has it, and whether a fix was offered that leads to a source that is accepted.
    fn written(&self) -> (String, bool) {
        let (first, sources) = compiled(&self.source);
        let mut written = format!("# {}\nin {}\n", self.title, self.frame);
        for line in &self.lines {
            let _ = writeln!(written, "{}", format!("| {line}").trim_end());
        }
        written += &self.told(&first.diagnostics, &sources);
        let (fixed, left) = self.fixed(&first);
        let old: Vec<&str> = self.source.lines().collect();
        for line in fixed.lines().filter(|line| !old.contains(line)) {
            let shown =
                line.get(self.indentation..).filter(|_| line[..self.indentation].trim().is_empty()).unwrap_or(line);
            let _ = writeln!(written, "{}", format!("> {shown}").trim_end());
        }
        let is_fixed = left.is_empty() && fixed != self.source;
        for error in &left {
            let _ = writeln!(written, "then {error}");
        }
        if left.is_empty() {
            written += "accepted\n";
        }
        (written + "\n", is_fixed)
    }
}

/// The texts of all cases in their frames, by their titles.
pub(crate) fn sources() -> Vec<(String, String)> {
    let folder = root().join("tests/mistakes");
    let around = read(&folder.join("frames.txt"));
    let frames = frames(&around);
    let texts = files(&folder, "txt").into_iter().filter(|path| !path.ends_with("frames.txt"));
    let of_file = |path: std::path::PathBuf| {
        let text = read(&path);
        cases(&text, &frames).into_iter().map(|case| (case.title.to_owned(), case.source)).collect::<Vec<_>>()
    };
    texts.flat_map(of_file).collect()
}

const NAME: &str = "x.pipe";

fn compiled(source: &str) -> (Compilation, Sources) {
    compile_text(NAME, source, &root().join("examples"), &Request::default())
}

#[test]
fn what_is_said_of_mistakes_is_exact_and_its_fixes_are_accepted() {
    let folder = root().join("tests/mistakes");
    let around = read(&folder.join("frames.txt"));
    let frames = frames(&around);
    let (mut n_cases, mut n_fixed, mut failures) = (0, 0, Vec::new());
    for path in files(&folder, "txt").into_iter().filter(|path| !path.ends_with("frames.txt")) {
        let text = read(&path);
        let head = text.split("\n# ").next().unwrap_or_default().to_owned() + "\n";
        let mut written = head;
        for case in cases(&text, &frames) {
            let (case, is_fixed) = case.written();
            written += &case;
            n_cases += 1;
            n_fixed += usize::from(is_fixed);
        }
        failures.extend(expect(&path, &(written.trim_end().to_owned() + "\n")));
    }
    println!("{n_cases} mistakes, {n_fixed} of them with fixes after which the source is accepted");
    report(&failures);
    assert!(n_cases >= 150 && n_fixed * 5 >= n_cases * 4, "{n_cases} mistakes, {n_fixed} fixed");
}
