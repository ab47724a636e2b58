//! Text to syntax tree.
//!
//! A text without errors is parsed in one go. In a text with errors, the declarations without any are parsed on their
//! own, and `mistakes` says what is wrong with the others.

mod build;
mod divisions;
mod errors;
pub(crate) mod foreign;
mod grammar;
mod mistakes;
mod scan;
pub mod tokens;

use crate::ast;
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

pub(crate) use build::{parse_number, strength};
pub use divisions::divisions;
pub(crate) use grammar::{Grammar, Rule};
pub use scan::declarations as declaration_starts;

/// Parses a text, or says everything that keeps it from being one of the language.
///
/// # Errors
/// If there is any.
pub fn parse(file: FileId, text: &str) -> Result<ast::File, Diagnostics> {
    let (tree, errors) = parse_parts(file, text);
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// The declarations of a text that parse, and everything that keeps others from it.
pub fn parse_parts(file: FileId, text: &str) -> (ast::File, Diagnostics) {
    let nothing = ast::File { id: file, declarations: Vec::new() };
    if text.len() > MAX_BYTES {
        let start = Span { file, start: 0, end: 0 };
        let message = format!("the file has more than {MAX_BYTES} bytes");
        return (nothing, vec![Diagnostic::error(Code::TooLarge, start, "", message)]);
    }
    if let Err(error) = scan::nesting(file, text) {
        return (nothing, vec![error]);
    }
    match parse_part(file, text, 0) {
        Ok((declarations, errors)) => (ast::File { id: file, declarations }, errors),
        Err(error) => (ast::File { id: file, declarations: readable(file, text) }, mistakes::find(file, text, *error)),
    }
}

/// Whether a text is a name: of a schedule, which may begin with a digit, or of anything else.
pub fn is_name(text: &str, of_schedule: bool) -> bool {
    let rule = if of_schedule { Rule::schedule_name } else { Rule::name };
    text.len() < 1000 && Grammar::parse(rule, text).is_ok_and(|pairs| pairs.as_str() == text)
}

/// What may stand at the end of a text that begins a declaration, in words: those in marks are to be written so.
pub fn expected_behind(text: &str) -> Vec<String> {
    if text.len() > MAX_BYTES || scan::nesting(FileId(0), text).is_err() {
        return Vec::new();
    }
    // A mark that stands nowhere in the language: parsing ends there, and says what it looked for.
    match Grammar::parse(Rule::file, &format!("{text}\u{0}")) {
        Ok(_) => Vec::new(),
        Err(error) => errors::expected_at(&error, text.len()),
    }
}

/// The rule of the grammar that the keyword at a byte belongs to: `set_data` for `data` in a `train`. None where the
/// declaration does not parse, or no keyword stands there.
pub fn rule_of_keyword(text: &str, byte: usize) -> Option<String> {
    let start = declaration_starts(text).take_while(|start| *start <= byte).last()?;
    let end = declaration_starts(text).find(|start| *start > byte).unwrap_or(text.len());
    let part = text.get(start..end).filter(|part| part.len() <= MAX_BYTES)?;
    scan::nesting(FileId(0), part).ok()?;
    let (mut pairs, mut within) = (Grammar::parse(Rule::file, part).ok()?, None);
    loop {
        let pair = pairs.find(|pair| (pair.as_span().start()..pair.as_span().end()).contains(&(byte - start)))?;
        let rule = format!("{:?}", pair.as_rule());
        if rule.starts_with("kw_") {
            return within;
        }
        (within, pairs) = (Some(rule), pair.into_inner());
    }
}

/// Declarations of a part of a text that begins at byte `base`, with errors that the grammar does not see; or the
/// first error that it sees.
fn parse_part(
    file: FileId,
    part: &str,
    base: usize,
) -> Result<(Vec<ast::Declaration>, Diagnostics), Box<pest::error::Error<Rule>>> {
    let pairs = Grammar::parse(Rule::file, part)?;
    let mut builder = build::Builder::new(file, part, base);
    let declarations =
        pairs.flat_map(Pair::into_inner).filter_map(|pair| builder.declaration(pair)).collect::<Vec<_>>();
    Ok((declarations, builder.into_errors()))
}

/// The declarations that parse by themselves.
fn readable(file: FileId, text: &str) -> Vec<ast::Declaration> {
    let starts: Vec<usize> = declaration_starts(text).collect();
    let mut declarations = Vec::new();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(text.len());
        let base = scan::documented_start(text, *start);
        declarations.extend(parse_part(file, &text[base..end], base).into_iter().flat_map(|(found, _)| found));
    }
    declarations
}

#[cfg(test)]
mod tests;
