//! A position in the text of a program, and the errors found there.

use super::tables::Tables;
use crate::ids::BufferId;
use crate::units::Bytes;

/// A text that has not the form of a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What would have been right there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What an instruction may refer to, and where its operands go.
pub(crate) struct Scope<'a> {
    pub(crate) tables: &'a Tables<'a>,
    pub(crate) operands: &'a mut Vec<BufferId>,
}

/// A position in a text. Every method skips the white space and comments after what it takes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    /// The next byte to look at; always at the start of a token or at the end.
    position: usize,
    /// The line of the next token.
    pub(crate) line: u32,
}

const fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut cursor = Self { text, position: 0, line: 1 };
        cursor.skip();
        cursor
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.position..]
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    pub(crate) fn at_end(&self) -> bool {
        self.position == self.text.len()
    }

    fn skip(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => self.line = self.line.saturating_add(1),
                b';' => {
                    let rest = self.rest();
                    self.position += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                    continue;
                }
                b' ' | b'\t' | b'\r' => {}
                _ => return,
            }
            self.position += 1;
        }
    }

    /// Moves over a token of this many bytes and what separates it from the next.
    fn advance(&mut self, bytes: usize) -> &'a str {
        let token = &self.text[self.position..self.position + bytes];
        self.position += bytes;
        self.skip();
        token
    }

    /// An error here.
    pub(crate) fn expected(&self, expected: impl Into<String>) -> ParseError {
        let start = self.text[..self.position].rfind('\n').map_or(0, |newline| newline + 1);
        let column = self.text[start..self.position].chars().count() + 1;
        ParseError {
            line: self.line,
            column: u32::try_from(column).unwrap_or(u32::MAX),
            expected: expected.into(),
            found: self.found(),
        }
    }

    fn found(&self) -> String {
        let word = self.word_length();
        let rest = &self.text[self.position..];
        match rest.chars().next() {
            None => "the end of the text".to_owned(),
            Some(_) if word > 0 => format!("`{}`", rest[..word].chars().take(40).collect::<String>()),
            Some(first) => format!("`{}`", first.escape_debug()),
        }
    }

    fn word_length(&self) -> usize {
        self.rest().iter().take_while(|byte| in_word(**byte)).count()
    }

    /// The next word, `None` if there is no word here.
    pub(crate) fn peek_word(&self) -> Option<&'a str> {
        let length = self.word_length();
        (length > 0).then(|| &self.text[self.position..self.position + length])
    }

    /// Any word.
    pub(crate) fn word(&mut self, what: &str) -> Result<&'a str, ParseError> {
        match self.word_length() {
            0 => Err(self.expected(what)),
            length => Ok(self.advance(length)),
        }
    }

    /// Takes this keyword or punctuation if it is next.
    pub(crate) fn take(&mut self, token: &str) -> bool {
        let rest = self.rest();
        let matches = rest.starts_with(token.as_bytes());
        let whole = !token.bytes().all(in_word) || !rest.get(token.len()).is_some_and(|byte| in_word(*byte));
        if matches && whole {
            self.advance(token.len());
        }
        matches && whole
    }

    /// Takes this keyword or punctuation.
    pub(crate) fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        if self.take(token) { Ok(()) } else { Err(self.expected(format!("`{token}`"))) }
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, ParseError> {
        let found = self.peek_word().and_then(|word| choices.iter().find(|(name, _)| *name == word));
        match found {
            Some((name, choice)) => {
                self.advance(name.len());
                Ok(*choice)
            }
            None => {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("`{name}`")).collect();
                Err(self.expected(names.join(" or ")))
            }
        }
    }

    /// One of all that have a word.
    pub(crate) fn one_of<T: Copy, const N: usize>(
        &mut self,
        all: [T; N],
        word: fn(T) -> &'static str,
    ) -> Result<T, ParseError> {
        self.choice(&all.map(|one| (word(one), one)))
    }

    /// Digits after `skipped` bytes, as a number with the bytes that they take.
    fn digits(&self, skipped: usize) -> Option<(u64, usize)> {
        let digits = self.rest().get(skipped..)?;
        let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut number = 0_u64;
        for digit in &digits[..length] {
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        }
        let ends = !digits.get(length).is_some_and(|byte| in_word(*byte));
        (length > 0 && ends).then_some((number, length))
    }

    /// A number below 2^32 after a letter or sign, such as `d` or `%`.
    pub(crate) fn id(&mut self, sign: char, what: &str) -> Result<u32, ParseError> {
        let found = if self.peek() == Some(sign as u8) { self.digits(1) } else { None };
        match found.and_then(|(number, length)| Some((u32::try_from(number).ok()?, length))) {
            Some((number, length)) => {
                self.advance(length + 1);
                Ok(number)
            }
            None => Err(self.expected(what)),
        }
    }

    /// A whole number.
    pub(crate) fn number(&mut self, what: &str) -> Result<u64, ParseError> {
        match self.digits(0) {
            Some((number, length)) => {
                self.advance(length);
                Ok(number)
            }
            None => Err(self.expected(what)),
        }
    }

    /// A whole number below 2^32.
    pub(crate) fn small(&mut self, what: &str) -> Result<u32, ParseError> {
        let here = self.clone();
        u32::try_from(self.number(what)?).map_err(|_| here.expected(format!("{what} below 2^32")))
    }

    /// Items in brackets: `[a,b,..]`.
    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut items = Vec::new();
        self.expect("[")?;
        while !self.take("]") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A number of bytes: `4096` or `64MiB`.
    pub(crate) fn bytes(&mut self, what: &str) -> Result<Bytes, ParseError> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, unit) = self.peek_word().unwrap_or_default().split_at(digits);
        let factor = Bytes::UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let factor = if unit.is_empty() { Some(1) } else { factor };
        match factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor)) {
            Some(total) => {
                self.advance(number.len() + unit.len());
                Ok(Bytes(total))
            }
            None => Err(self.expected(what)),
        }
    }

    /// A floating-point number in the form that Rust prints.
    pub(crate) fn float<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, ParseError> {
        let in_float = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
        let length = self.rest().iter().take_while(|byte| in_float(byte)).count();
        match self.text[self.position..self.position + length].parse() {
            Ok(number) => {
                self.advance(length);
                Ok(number)
            }
            Err(_) => Err(self.expected(what)),
        }
    }

    /// A name: a word that starts with no digit, or anything in double quotes with `\"` and `\\` escaped.
    pub(crate) fn name(&mut self, what: &str) -> Result<std::borrow::Cow<'a, str>, ParseError> {
        if self.peek() != Some(b'"') {
            return match self.peek_word() {
                Some(word) if !word.as_bytes()[0].is_ascii_digit() => Ok(self.advance(word.len()).into()),
                _ => Err(self.expected(what)),
            };
        }
        let mut name = String::new();
        let mut escaped = false;
        for (index, character) in self.text[self.position + 1..].char_indices() {
            match character {
                '\n' => break,
                '"' if !escaped => {
                    self.advance(index + 2);
                    return Ok(name.into());
                }
                '\\' if !escaped => escaped = true,
                'n' if escaped => {
                    name.push('\n');
                    escaped = false;
                }
                other => {
                    name.push(other);
                    escaped = false;
                }
            }
        }
        Err(self.expected("a name that ends with `\"` on the same line"))
    }
}
