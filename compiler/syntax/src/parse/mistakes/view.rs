//! What is known where the grammar refuses a text: words before and behind the place, and what was expected there.

use super::mistake::Mistake;
use super::within::Within;
use crate::parse::errors;
use crate::parse::grammar::Rule;
use crate::parse::scan::Tokens;
use pest::error::{Error, ErrorVariant, InputLocation};
use std::ops::Range;

/// Somebody who knows a kind of mistake.
pub(in crate::parse::mistakes) type Detector = fn(&View<'_>) -> Option<Mistake>;

/// A text and the place where it stops being one of the language.
pub(in crate::parse::mistakes) struct View<'t> {
    pub(in crate::parse::mistakes) text: &'t str,
    /// Where the grammar gave up.
    pub(in crate::parse::mistakes) position: usize,
    /// The token there: its number; the number of tokens at the end of the text.
    pub(in crate::parse::mistakes) at: usize,
    pub(in crate::parse::mistakes) tokens: Vec<Range<usize>>,
    expected: Vec<Rule>,
}

impl<'t> View<'t> {
    pub(in crate::parse::mistakes) fn new(text: &'t str, error: &Error<Rule>) -> Self {
        let tokens: Vec<Range<usize>> = Tokens::new(text).collect();
        let position = position(error);
        let at = tokens.partition_point(|token| token.end <= position);
        let expected = match &error.variant {
            ErrorVariant::ParsingError { positives, .. } => positives.clone(),
            ErrorVariant::CustomError { .. } => Vec::new(),
        };
        Self { text, position, at, tokens, expected }
    }

    /// Whether one of some rules was expected.
    pub(in crate::parse::mistakes) fn expects(&self, rules: &[Rule]) -> bool {
        self.expected.iter().any(|rule| rules.contains(rule))
    }

    /// Whether the same was expected at another place.
    pub(in crate::parse::mistakes) fn expects_the_same(&self, other: &View<'_>) -> bool {
        self.expected == other.expected
    }

    /// Whether a name was expected, of whatever kind.
    pub(in crate::parse::mistakes) fn expects_name(&self) -> bool {
        self.expects(&[Rule::name, Rule::schedule_name, Rule::parameter, Rule::schedule_call])
            && !self.expects_expression()
    }

    /// Whether an operand was expected.
    pub(in crate::parse::mistakes) fn expects_expression(&self) -> bool {
        let expressions = [Rule::expr, Rule::operation, Rule::group, Rule::list, Rule::call, Rule::number];
        self.expects(&expressions)
            || self.expects(&[Rule::homes, Rule::read_list, Rule::read, Rule::argument, Rule::peak_limit])
    }

    /// Whether an operator was expected, as behind an operand.
    pub(in crate::parse::mistakes) fn expects_operator(&self) -> bool {
        self.expects(&[Rule::plus, Rule::times, Rule::over])
    }

    /// Whether a statement could end here.
    pub(in crate::parse::mistakes) fn is_between_lines(&self) -> bool {
        self.expects(&[Rule::close, Rule::EOI, Rule::file])
    }

    /// The marks and words that were expected, as they are written.
    pub(in crate::parse::mistakes) fn expected_words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for phrase in self.expected.iter().filter_map(|rule| errors::phrase(*rule)) {
            for word in phrase.split('`').skip(1).step_by(2) {
                if !words.iter().any(|known| known == word) {
                    words.push(word.to_owned());
                }
            }
        }
        words
    }

    /// The range of the token so many tokens behind the place, or before it; at the end of the text an empty one.
    pub(in crate::parse::mistakes) fn range(&self, offset: isize) -> Range<usize> {
        let end = self.text.trim_end().len();
        self.index(offset).and_then(|index| self.tokens.get(index).cloned()).unwrap_or(end..end)
    }

    /// The token so many tokens behind the place, or before it; nothing where there is none.
    pub(in crate::parse::mistakes) fn word(&self, offset: isize) -> &'t str {
        &self.text[self.index(offset).and_then(|index| self.tokens.get(index).cloned()).unwrap_or(0..0)]
    }

    fn index(&self, offset: isize) -> Option<usize> {
        self.at.checked_add_signed(offset)
    }

    /// The text of a token by its number.
    pub(in crate::parse::mistakes) fn token(&self, index: usize) -> &'t str {
        self.tokens.get(index).map_or("", |token| &self.text[token.clone()])
    }

    /// Whether no line ends between a token and the one before it.
    pub(in crate::parse::mistakes) fn follows_on_line(&self, offset: isize) -> bool {
        self.index(offset).is_some_and(|index| index > 0 && index < self.tokens.len())
            && !self.text[self.range(offset - 1).end..self.range(offset).start].contains('\n')
    }

    /// Whether nothing stands between a token and the one before it.
    pub(in crate::parse::mistakes) fn touches(&self, offset: isize) -> bool {
        self.index(offset).is_some_and(|index| index > 0) && self.range(offset - 1).end == self.range(offset).start
    }

    /// Whether the token by this number begins a line.
    pub(in crate::parse::mistakes) fn begins_line(&self, index: usize) -> bool {
        let start = self.tokens.get(index).map_or(self.text.len(), |token| token.start);
        let before = index.checked_sub(1).and_then(|index| self.tokens.get(index)).map_or(0, |token| token.end);
        index == 0 || self.text[before..start].contains('\n')
    }

    /// Where the place is: the token there, or where the one before it ends, if the line or the text ends there.
    pub(in crate::parse::mistakes) fn place(&self) -> Range<usize> {
        if self.at < self.tokens.len() && (self.is_between_lines() || self.follows_on_line(0) || self.at == 0) {
            return self.range(0);
        }
        let end = if self.at == 0 { 0 } else { self.range(-1).end };
        end..end
    }

    /// The number of the token that opens the innermost bracket of these kinds around a token.
    pub(in crate::parse::mistakes) fn opener(&self, index: usize, kinds: &[&str]) -> Option<usize> {
        let mut depth = 0;
        for index in (0..index.min(self.tokens.len())).rev() {
            match self.token(index) {
                "}" | ")" | "]" => depth += 1,
                "{" | "(" | "[" if depth > 0 => depth -= 1,
                mark @ ("{" | "(" | "[") if kinds.contains(&mark) => return Some(index),
                _ => {}
            }
        }
        None
    }

    /// The number of the token that closes the bracket which a token opens.
    pub(in crate::parse::mistakes) fn closer(&self, opener: usize) -> Option<usize> {
        let mut depth = 0;
        for index in opener..self.tokens.len() {
            match self.token(index) {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(index);
            }
        }
        None
    }

    /// The number of the token that opens the bracket which a token closes.
    pub(in crate::parse::mistakes) fn opener_of(&self, closer: usize) -> Option<usize> {
        self.opener(closer, &["{", "(", "["])
    }

    /// What the place lies in.
    pub(in crate::parse::mistakes) fn within(&self) -> Within {
        let mut index = self.at;
        while let Some(opener) = self.opener(index, &["{"]) {
            if let Some(within) = self.heads(opener) {
                return within;
            }
            index = opener;
        }
        Within::File
    }

    /// What a brace opens, if it is more than a loop or a branch.
    fn heads(&self, brace: usize) -> Option<Within> {
        for index in (0..brace).rev() {
            return Some(match self.token(index) {
                "schedule" => Within::Schedule,
                "layer" => Within::Layer,
                "model" => Within::Model,
                "pipeline" => Within::Pipeline,
                "train" => Within::Train,
                "block" => Within::Block,
                "order" => Within::Order,
                "{" | "}" | "repeat" | "for" | "if" | "else" => return None,
                _ => continue,
            });
        }
        None
    }

    /// The number of the first token of the operand that ends with a token: a name or number, or brackets with what
    /// stands before them.
    pub(in crate::parse::mistakes) fn operand_before(&self, last: usize) -> Option<usize> {
        match self.token(last) {
            ")" | "]" => {
                let opener = self.opener_of(last)?;
                let named = self.token(last) == ")" && opener > 0 && is_word(self.token(opener - 1));
                Some(if named && self.tokens.get(opener - 1)?.end == self.tokens.get(opener)?.start {
                    opener - 1
                } else {
                    opener
                })
            }
            word if is_word(word) => {
                let is_decimal =
                    last >= 2 && self.token(last - 1) == "." && self.tokens[last - 1].end == self.tokens[last].start;
                Some(if is_decimal { last - 2 } else { last })
            }
            _ => None,
        }
    }

    /// The number of the first token of an operand or task that ends with a token; that token itself if it ends none.
    pub(in crate::parse::mistakes) fn term_before(&self, last: usize) -> usize {
        let first = self.operand_before(last).unwrap_or(last);
        let is_task = self.token(first) == "[" && first > 0 && is_name(self.token(first - 1));
        if is_task { first - 1 } else { first }
    }

    /// The number of the last token of the operand that begins with a token.
    pub(in crate::parse::mistakes) fn operand_behind(&self, first: usize) -> Option<usize> {
        match self.token(first) {
            "(" | "[" => self.closer(first),
            "-" => self.operand_behind(first + 1),
            word if is_word(word) => match self.token(first + 1) {
                "(" => self.closer(first + 1),
                "." if self.token(first + 2).starts_with(|mark: char| mark.is_ascii_digit()) => Some(first + 2),
                _ => Some(first),
            },
            _ => None,
        }
    }

    /// The number of the first token of the expression that ends with a token.
    pub(in crate::parse::mistakes) fn expression_before(&self, last: usize) -> Option<usize> {
        let mut first = self.operand_before(last)?;
        while let Some(left) = first.checked_sub(1).and_then(|index| self.operator_ending(index)) {
            match left.checked_sub(1).and_then(|last| self.operand_before(last)) {
                Some(operand) => first = operand,
                // A sign.
                None => return Some(if matches!(self.token(left), "-" | "not") { left } else { first }),
            }
        }
        Some(first)
    }

    /// The number of the last token of the expression that begins with a token.
    pub(in crate::parse::mistakes) fn expression_behind(&self, first: usize) -> Option<usize> {
        let mut last = self.operand_behind(first)?;
        while let Some(right) = self.operator_beginning(last + 1) {
            match self.operand_behind(right + 1) {
                Some(operand) => last = operand,
                None => break,
            }
        }
        Some(last)
    }

    /// The number of the first token of the operator that ends with a token.
    fn operator_ending(&self, last: usize) -> Option<usize> {
        match self.token(last) {
            "+" | "-" | "*" | "/" | "%" | "<" | ">" | "and" | "or" | "not" => Some(last),
            "=" => {
                let first = last.checked_sub(1)?;
                let is_pair = matches!(self.token(first), "=" | "!" | "<" | ">");
                (is_pair && self.tokens[first].end == self.tokens[last].start).then_some(first)
            }
            _ => None,
        }
    }

    /// The number of the last token of the operator that begins with a token.
    fn operator_beginning(&self, first: usize) -> Option<usize> {
        match self.token(first) {
            "=" | "!" | "<" | ">" if self.token(first + 1) == "=" => Some(first + 1),
            "+" | "-" | "*" | "/" | "%" | "<" | ">" | "and" | "or" => Some(first),
            _ => None,
        }
    }

    /// The texts between the commas of a bracket.
    pub(in crate::parse::mistakes) fn arguments(&self, opener: usize, closer: usize) -> Vec<&'t str> {
        let (mut arguments, mut first, mut index) = (Vec::new(), opener + 1, opener + 1);
        while index < closer {
            if self.token(index) == "," {
                arguments.push(self.slice(first, index.saturating_sub(1)));
                first = index + 1;
            }
            index =
                if matches!(self.token(index), "(" | "[" | "{") { self.closer(index).unwrap_or(index) } else { index };
            index += 1;
        }
        if first < closer {
            arguments.push(self.slice(first, closer - 1));
        }
        arguments
    }

    /// A token with the spaces before it.
    pub(in crate::parse::mistakes) fn spaced(&self, index: usize) -> Range<usize> {
        let token = self.span(index, index);
        self.text[..token.start].trim_end_matches([' ', '\t']).len()..token.end
    }

    /// Tokens with the spaces that are not needed without them.
    pub(in crate::parse::mistakes) fn with_gap(&self, first: usize, last: usize) -> Range<usize> {
        let place = self.span(first, last);
        match self.tokens.get(last + 1) {
            Some(next) if self.begins_line(first) && !self.begins_line(last + 1) => place.start..next.start,
            _ => self.spaced(first).start..place.end,
        }
    }

    /// The text from one token to another.
    pub(in crate::parse::mistakes) fn slice(&self, first: usize, last: usize) -> &'t str {
        match (self.tokens.get(first), self.tokens.get(last)) {
            (Some(first), Some(last)) if first.start <= last.end => &self.text[first.start..last.end],
            _ => "",
        }
    }

    /// The bytes from one token to another.
    pub(in crate::parse::mistakes) fn span(&self, first: usize, last: usize) -> Range<usize> {
        match (self.tokens.get(first), self.tokens.get(last)) {
            (Some(first), Some(last)) => first.start..last.end.max(first.start),
            _ => self.range(0),
        }
    }

    /// The number of the last token of the line that a token stands in.
    pub(in crate::parse::mistakes) fn last_of_line(&self, index: usize) -> usize {
        let rest = index + 1..self.tokens.len();
        rest.into_iter().find(|next| self.begins_line(*next)).unwrap_or(self.tokens.len()).saturating_sub(1).max(index)
    }

    /// The number of the first token of the line that a token stands in.
    pub(in crate::parse::mistakes) fn first_of_line(&self, index: usize) -> usize {
        (0..=index).rev().find(|first| self.begins_line(*first)).unwrap_or(0)
    }

    /// How far from the left a token's line begins.
    pub(in crate::parse::mistakes) fn indentation(&self, index: usize) -> usize {
        let start = self.tokens.get(index).map_or(self.text.len(), |token| token.start);
        let line = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        self.text[line..].chars().take_while(|mark| matches!(mark, ' ' | '\t')).count()
    }
}

/// Where the grammar gave up.
pub(in crate::parse::mistakes) fn position(error: &Error<Rule>) -> usize {
    match error.location {
        InputLocation::Pos(position) | InputLocation::Span((position, _)) => position,
    }
}

/// Whether a token is a word or a number.
pub(in crate::parse::mistakes) fn is_word(token: &str) -> bool {
    token.starts_with(|mark: char| mark.is_alphanumeric() || mark == '_')
}

/// Whether a token can be a name.
pub(in crate::parse::mistakes) fn is_name(token: &str) -> bool {
    token.starts_with(|mark: char| mark.is_ascii_alphabetic() || mark == '_')
}

/// Whether a token begins with a digit.
pub(in crate::parse::mistakes) fn is_number(token: &str) -> bool {
    token.starts_with(|mark: char| mark.is_ascii_digit())
}
