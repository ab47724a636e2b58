//! A first look at a text, byte by byte: how deep its brackets are, and where declarations begin.

use super::MAX_NESTING;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Span};

/// Refuses a text whose brackets, `if`s or signs are nested so deeply that parsing it might exhaust the stack.
pub(super) fn nesting(file: FileId, text: &str) -> Result<(), Diagnostic> {
    // One entry for each open bracket: how many `if`s in it wait for their `else`.
    let mut open: Vec<usize> = vec![0];
    let mut signs = 0;
    for token in Tokens::new(text) {
        let word = &text[token.start..token.end];
        signs = if matches!(word, "-" | "not") { signs + 1 } else { 0 };
        match word {
            "(" | "[" | "{" => open.push(0),
            ")" | "]" | "}" => {
                if open.len() > 1 {
                    open.pop();
                }
                // A statement has ended, and the `if` that it belonged to has no `else` to wait for.
                if let (Some(ifs), "}") = (open.last_mut(), word) {
                    *ifs = 0;
                }
            }
            "if" => open.last_mut().into_iter().for_each(|ifs| *ifs += 1),
            "else" => open.last_mut().into_iter().for_each(|ifs| *ifs = ifs.saturating_sub(1)),
            _ => {}
        }
        let ifs = open.last().copied().unwrap_or(0);
        if open.len() - 1 > MAX_NESTING || ifs > MAX_NESTING || signs > MAX_NESTING {
            let span = span(file, token.start, token.end);
            let message = format!("the text is nested more than {MAX_NESTING} levels deep");
            return Err(Diagnostic::error(Code::TooLarge, span, "too deep here", message)
                .help("give parts of the expression a name with `let`"));
        }
    }
    Ok(())
}

/// Where declarations seem to begin: a line that starts with their word and opens a bracket where it needs one. A `let`
/// is one of the file where no brace is open.
pub fn declarations(text: &str) -> impl Iterator<Item = usize> {
    let (mut position, mut depth) = (0, 0_i32);
    text.split_inclusive('\n').filter_map(move |line| {
        let start = position;
        position += line.len();
        let word = line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
        let begins = match word {
            "import" | "param" => true,
            "let" => depth == 0,
            "schedule" | "layer" | "model" | "pipeline" => line.contains('{'),
            _ => false,
        };
        depth = Tokens::new(line).fold(if begins { 0 } else { depth }, |depth, token| match &line[token] {
            "{" => depth + 1,
            "}" => (depth - 1).max(0),
            _ => depth,
        });
        begins.then_some(start)
    })
}

/// Where the comments begin that stand right above a line.
pub(super) fn documented_start(text: &str, mut start: usize) -> usize {
    loop {
        let above = text[..start].trim_end_matches('\n');
        let line = above.rfind('\n').map_or(0, |newline| newline + 1);
        if start - above.len() != 1 || !above[line..].trim_start().starts_with("//") {
            return start;
        }
        start = line;
    }
}

fn span(file: FileId, start: usize, end: usize) -> Span {
    let byte = |position| u32::try_from(position).unwrap_or(u32::MAX);
    Span { file, start: byte(start), end: byte(end) }
}

/// Words, texts in quotes and single marks; no spaces and comments.
pub(super) struct Tokens<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        let rest = &self.text[self.position..];
        self.position += rest.find(|c| !wanted(c)).unwrap_or(rest.len());
    }
}

impl Iterator for Tokens<'_> {
    type Item = std::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.skip(char::is_whitespace);
            if !self.text[self.position..].starts_with("//") {
                break;
            }
            self.skip(|c| c != '\n');
        }
        let start = self.position;
        let first = self.text[start..].chars().next()?;
        self.position += first.len_utf8();
        if first == '"' {
            self.skip(|c| c != '"' && c != '\n');
            self.position += usize::from(self.text[self.position..].starts_with('"'));
        } else if first.is_alphanumeric() || first == '_' {
            self.skip(|c| c.is_alphanumeric() || c == '_');
        }
        Some(start..self.position)
    }
}
