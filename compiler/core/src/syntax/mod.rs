//! Text to syntax tree.
//!
//! A text without errors is parsed in one go. In a text with an error, every declaration after it is parsed on its own,
//! so that the first error of each is reported.

pub mod ast;
mod build;
mod errors;
mod scan;

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::source::{FileId, Span};
use pest::Parser;
use pest::iterators::Pair;

/// The longest text that is accepted, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// The most brackets that may be open at once.
pub const MAX_NESTING: usize = 48;
/// The deepest tree that an expression may make.
pub const MAX_DEPTH: u32 = 200;

mod grammar {
    /// The parser that pest makes from the grammar.
    #[derive(pest_derive::Parser)]
    #[grammar = "../../../grammar/pipe.pest"]
    pub(crate) struct Grammar;
}

pub(crate) use build::strength;
pub(crate) use grammar::{Grammar, Rule};

/// Parses a text, or says everything that keeps it from being one of the language.
pub fn parse(file: FileId, text: &str) -> Result<ast::File, Diagnostics> {
    if text.len() > MAX_BYTES {
        let start = Span { file, start: 0, end: 0 };
        let message = format!("the file has more than {MAX_BYTES} bytes");
        return Err(vec![Diagnostic::error(Code::TooLarge, start, "", message)]);
    }
    scan::nesting(file, text).map_err(|error| vec![error])?;
    match parse_part(file, text, 0) {
        Ok((declarations, errors)) if errors.is_empty() => Ok(ast::File { id: file, declarations }),
        Ok((_, errors)) => Err(errors),
        Err(error) => Err(recover(file, text, error)),
    }
}

/// Declarations of a part of a text that begins at byte `base`, with errors that the grammar does not see; or the
/// first error that it sees, and its position in the whole text.
fn parse_part(
    file: FileId,
    part: &str,
    base: usize,
) -> Result<(Vec<ast::Declaration>, Diagnostics), (usize, Diagnostic)> {
    let pairs = Grammar::parse(Rule::file, part).map_err(|error| errors::describe(file, part, base, &error))?;
    let mut builder = build::Builder::new(file, part, base);
    let declarations =
        pairs.flat_map(Pair::into_inner).filter_map(|pair| builder.declaration(pair)).collect::<Vec<_>>();
    Ok((declarations, builder.into_errors()))
}

/// The first error, and those of the declarations after it.
fn recover(file: FileId, text: &str, (position, first): (usize, Diagnostic)) -> Diagnostics {
    let mut errors = vec![first];
    let starts: Vec<usize> = scan::declarations(text).collect();
    for (index, start) in starts.iter().enumerate().filter(|(_, start)| **start > position) {
        let end = starts.get(index + 1).copied().unwrap_or(text.len());
        match parse_part(file, &text[*start..end], *start) {
            Ok((_, found)) => errors.extend(found),
            Err((_, error)) => errors.push(error),
        }
    }
    errors
}

#[cfg(test)]
mod tests;
