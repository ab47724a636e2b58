//! `docs/examples.md`: the files of `examples/` as they are.

use crate::cases::{files, read, root};
use std::fmt::Write;

/// Opens the page.
const HEAD: &str = "# Examples

The files of the folder `examples/`, as they are; `cargo bless` writes them here again. `pipec check examples/NAME.pipe` proves one, and `pipec run examples/NAME.pipe` trains it, if its model is of the language.
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    for path in files(&root().join("examples"), "pipe") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let _ = write!(text, "\n## {name}\n\n```pipe\n{}```\n", read(&path));
    }
    text
}
