//! `docs/errors.md`: an index of all errors and warnings, and the page of each.

use pipe_syntax::diagnostic::Code;
use std::fmt::Write;

/// Opens the page.
const HEAD: &str = "# Errors and warnings

Every message of the compiler has a code, as in `error[deadlock]`, and every code a page: `pipec explain deadlock` prints it. These are the same pages, in alphabetical order; `cargo bless` writes them again. Every
example is compiled in tests, and causes the error that it stands under; every fix is accepted.

| code | means |
|---|---|
";

/// Pictures, of `docs/pictures.md`, of what some errors are about.
const PICTURES: [(Code, &str, &str); 2] = [
    (Code::Deadlock, "stuck", "Two devices that wait for each other, with the tasks that they stand at"),
    (
        Code::MemoryExceeded,
        "too_much",
        "1F1B in 3 units of memory: d0 is marked from the moment at which it holds too much",
    ),
];

/// The page.
///
/// # Errors
/// What of a page has not the form of the others.
pub fn page() -> Result<String, String> {
    let mut codes = Code::ALL.to_vec();
    codes.sort_by_key(|code| code.name());
    let (mut index, mut pages) = (HEAD.to_owned(), String::new());
    for code in codes {
        let name = code.name();
        let wrong = |what: &str| format!("explain/{name}.md has no {what}");
        let (title, body) = code.page().split_once("\n\n").ok_or_else(|| wrong("body"))?;
        title.strip_prefix("# ").ok_or_else(|| wrong("title"))?;
        let meaning = body.split("\n\n").next().ok_or_else(|| wrong("first paragraph"))?;
        let _ = writeln!(index, "| [`{name}`](#{name}) | {} |", meaning.replace('\n', " ").replace('|', "\\|"));
        let _ = write!(pages, "\n## {name}\n\n{}\n", demoted(body).trim_end());
        if let Some((_, picture, words)) = PICTURES.iter().find(|(own, ..)| *own == code) {
            let _ = write!(pages, "\n`pipec plot` draws it:\n\n![{words}](images/book/{picture}.svg)\n");
        }
    }
    Ok(index + &pages)
}

/// Headings one level deeper, and the first source of the example told from those that are accepted.
fn demoted(body: &str) -> String {
    let mut in_example = false;
    let mut in_code = false;
    let lines = body.lines().map(|line| {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && let Some(title) = line.strip_prefix("## ") {
            in_example = title == "Example";
            return format!("**{title}.**\n");
        }
        match line {
            "```pipe" if in_example => "```pipe,rejected\n".to_owned(),
            "```pipe" => "```pipe,accepted\n".to_owned(),
            _ => format!("{line}\n"),
        }
    });
    lines.collect()
}
