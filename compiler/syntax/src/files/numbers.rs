//! Numbers from files: `let tokens = numbers "tokens.txt"`.

use super::{Path, Reader, resolve, shown, with_reach};
use crate::ast::{Declaration, Expr, ExprKind, File, ImportPath, Name};
use crate::diagnostic::{Code, Diagnostic};
use crate::parse::parse_number;

/// The longest text that is read.
const MAX_BYTES: usize = 16 << 20;

const NO_NUMBER: &str = "is no number";
const HELP: &str = "spaces, line ends or commas part numbers, and lines that begin with `#` are for people";

/// A number, or why a word is none.
fn number(word: &str) -> Result<ExprKind, &'static str> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    match word.strip_prefix('-') {
        Some(rest) if rest.starts_with(is_digit) => Err("is below 0"),
        _ if word.starts_with(is_digit) && !word.contains(['/', ';', ':', '_']) => parse_number(word),
        _ => Err(NO_NUMBER),
    }
}

impl Reader<'_> {
    /// Reads the files whose numbers a file names.
    pub(super) fn numbers(&mut self, importer: &Path, file: &mut File) {
        for declaration in &mut file.declarations {
            let Declaration::Let(binding) = declaration else { continue };
            let Some(named) = &binding.file else { continue };
            match self.numbers_of(importer, named) {
                Ok(numbers) => binding.value.kind = ExprKind::List(numbers),
                Err(error) => self.errors.push(*error),
            }
        }
    }

    /// The numbers of a file, parted by spaces, line ends or commas; lines that begin with `#` are for people.
    fn numbers_of(&self, importer: &Path, named: &Name) -> Result<Vec<Expr>, Box<Diagnostic>> {
        let fail = |code, message: String| Box::new(Diagnostic::error(code, named.span, "named here", message));
        let path = resolve(importer, &ImportPath::Relative(named.text.clone()));
        let path = path.map_err(|reason| Box::new(with_reach(*fail(Code::ImportFailed, reason))))?;
        let name = shown(&path);
        let source = self.fetch(&path).map_err(|reason| {
            let error = fail(Code::ImportFailed, format!("`{name}` cannot be read: {reason}"));
            Box::new(error.help("paths are relative to the folder of the file that names them"))
        })?;
        if source.text.len() > MAX_BYTES {
            let message = format!("`{name}` has {} bytes; at most {MAX_BYTES} are read", source.text.len());
            return Err(fail(Code::TooLarge, message));
        }
        let mut numbers = Vec::new();
        for (line, text) in (1..).zip(source.text.lines()).filter(|(_, text)| !text.starts_with('#')) {
            let words = text.split(|letter: char| letter.is_whitespace() || letter == ',');
            for word in words.filter(|word| !word.is_empty()) {
                let kind = number(word).map_err(|reason| {
                    let error = fail(Code::ImportFailed, format!("line {line} of `{name}`: `{word}` {reason}"));
                    if reason == NO_NUMBER { Box::new(error.help(HELP)) } else { error }
                });
                numbers.push(Expr { kind: kind?, span: named.span });
            }
        }
        if numbers.is_empty() {
            return Err(fail(Code::ImportFailed, format!("`{name}` has no numbers")));
        }
        Ok(numbers)
    }
}
