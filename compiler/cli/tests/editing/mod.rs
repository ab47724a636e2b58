//! What editors are answered about small texts: `editing/*.txt` has texts, and answers in a form to be read.
//!
//! A case is a title, a text whose mark `^` is the place in question, and the answer. `BLESS=1` writes answers anew.
//!
//! ```text
//! # a misspelt name
//! | schedule a { stages D  place s on ^t }
//! quickfix, preferred: replace `t` with `s`
//! > schedule a { stages D  place s on s }
//! ```

pub(crate) mod shown;

use super::client::{Client, at, marked};
use super::process::folder;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// One text of a session.
pub(crate) struct Document<'c> {
    pub(crate) client: &'c mut Client,
    pub(crate) uri: String,
    pub(crate) text: String,
    pub(crate) place: (u32, u32),
}

impl Document<'_> {
    /// Asks about the place of the mark.
    pub(crate) fn ask(&mut self, method: &str) -> Value {
        let params = at(&self.uri, self.place);
        self.client.ask(method, params)
    }

    /// Waits until the compiler is done with the text.
    pub(crate) fn findings(&mut self) -> Vec<Value> {
        self.client.findings(&self.uri, 1)
    }
}

/// Compares every case of a file with what is answered.
pub(crate) fn check(name: &str, answer: impl Fn(&mut Document<'_>) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/editing").join(name).with_extension("txt");
    let expected = std::fs::read_to_string(&path).expect("the cases can be read");
    let mut client = Client::new(&folder(&format!("lsp-{name}"), &[]));
    let (head, cases) = expected.split_once("\n# ").expect("a case");
    let mut found = head.to_owned() + "\n";
    for (index, case) in cases.split("\n# ").enumerate() {
        let mut lines = case.lines();
        let title = lines.next().unwrap_or_default();
        let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix('|')).collect();
        let text: String = lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect();
        let (text, place) = if text.contains('^') { marked(&text) } else { (text, (0, 0)) };
        let uri = format!("untitled:{index}");
        client.open(&uri, &text);
        let answer = answer(&mut Document { client: &mut client, uri, text, place });
        let _ = writeln!(found, "# {title}");
        lines.iter().for_each(|line| found += &format!("|{line}\n"));
        found += &answer;
        found.push('\n');
    }
    found.truncate(found.trim_end().len());
    found.push('\n');
    assert_eq!(client.end(), Some(0));
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, found).expect("the cases can be written");
    }
    assert_eq!(found, expected, "BLESS=1 writes {} anew", path.display());
}
