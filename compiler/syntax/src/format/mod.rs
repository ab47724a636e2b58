//! One style for sources: spaces and line ends change, and nothing else. Words, marks and comments
//! stay, in their order.
//!
//! - Items and statements have a line each, 4 spaces further in than their block. Tasks of an
//!   `order` that stood on one line stay on it.
//! - A body of statements stays on one line if it was on one and fits. Arguments, parameters and
//!   lists have a line each if a line ends behind their bracket, or if they do not fit.
//! - A line that has no room in [`WIDTH`] columns goes on in the next one: first brackets outside,
//!   then those inside; before `else`, before the loosest operators, behind commas.
//! - In consecutive lines `at` and `fill` of blocks stand below each other, and so do `=` of `let`
//!   and `{` of one-line `repeat`s and `for`s. Comments behind code begin in column 44, all of
//!   consecutive lines where the longest one allows it.
//! - One empty line stays where there were some, but none at the ends of a block.

mod layout;
mod lines;
mod tokens;

use crate::diagnostic::Diagnostics;
use crate::parse::{self, Grammar, Rule};
use crate::source::FileId;
use pest::Parser;

/// The most columns of a line of code, where it can be divided. Comments are as long as they are.
pub const WIDTH: usize = 120;
/// Spaces of one level.
const STEP: usize = 4;

/// A text in the style, or what keeps it from being one of the language.
///
/// # Errors
/// If the text does not parse.
pub fn format(file: FileId, text: &str) -> Result<String, Diagnostics> {
    parse::parse(file, text)?;
    let pair = Grammar::parse(Rule::file, text).ok().and_then(|mut pairs| pairs.next());
    let pair = pair.expect("the text was just parsed, and the grammar makes one file of it");
    let (tokens, tree) = tokens::read(text, pair);
    let lines = layout::lay_out(&tokens, &tree);
    let newline = if text.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r')) { "\r\n" } else { "\n" };
    Ok(lines::join(lines, newline))
}

/// What the compiler itself wrote, in the style.
pub fn styled(text: String) -> String {
    format(FileId(0), &text).unwrap_or(text)
}
