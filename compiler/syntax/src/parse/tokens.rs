//! Tokens of a text with their grammatical roles, also where it has syntax errors: editors need them.

use super::grammar::{Grammar, Rule};
use super::scan::{self, Tokens};
use super::{MAX_BYTES, declaration_starts};
use crate::source::FileId;
use pest::Parser;
use pest::iterators::Pair;
use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// `// for people`
    Comment,
    /// `/// How wide.`
    Documentation,
    /// `stages`, where it is a keyword.
    Keyword,
    /// A name that is declared or used.
    Name,
    /// A name with arguments, or of what can have some: `min`, or `1f1b` behind `schedule`.
    Called,
    /// The name of an argument: `chunks` of `interleaved_1f1b(chunks = 2)`.
    Argument,
    /// A kind of work, or what else has a cost: `BW`, `comm`.
    Task,
    /// `f64`
    Type,
    /// A word that says which one: `newest`, `optimizer` of `offload optimizer`.
    Constant,
    /// `64MiB`
    Number,
    /// `"llama.json"`
    String,
    /// `std.models.gpt`
    Path,
    /// `+`
    Operator,
    /// A bracket, a comma, or another mark.
    Mark,
    /// A word in a declaration that does not parse.
    Word,
}

/// A word, mark or comment. It does not span lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its bytes.
    pub place: Range<usize>,
    /// What it is.
    pub kind: TokenKind,
}

/// All tokens of a text in their order. Declarations that do not parse consist of [`TokenKind::Word`]s.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    if text.len() > MAX_BYTES || scan::nesting(FileId(0), text).is_err() {
        words(text, 0..text.len(), &mut found);
    } else if !parsed(text, 0..text.len(), &mut found) {
        let starts = declaration_starts(text).map(|start| scan::documented_start(text, start));
        let bounds: Vec<usize> = std::iter::once(0).chain(starts).chain([text.len()]).collect();
        for (start, end) in bounds.iter().zip(bounds.iter().skip(1)) {
            let part = *start..*end;
            if !parsed(text, part.clone(), &mut found) {
                words(text, part, &mut found);
            }
        }
    }
    found
}

/// Adds the tokens of a part, if it parses.
fn parsed(text: &str, part: Range<usize>, found: &mut Vec<Token>) -> bool {
    let Ok(pairs) = Grammar::parse(Rule::file, &text[part.clone()]) else { return false };
    let mut end = part.start;
    for pair in pairs {
        leaves(&pair, Rule::file, &mut |leaf, kind| {
            let span = leaf.as_span();
            let place = part.start + span.start()..part.start + span.end();
            comments(text, end..place.start, found);
            end = place.end;
            found.extend(Some(Token { place, kind }).filter(|token| !token.place.is_empty()));
        });
    }
    comments(text, end..part.end, found);
    true
}

/// Visits the leaves of the parse tree in the order of the text.
fn leaves<'t>(pair: &Pair<'t, Rule>, parent: Rule, visit: &mut impl FnMut(&Pair<'t, Rule>, TokenKind)) {
    let mut inner = pair.clone().into_inner().peekable();
    if inner.peek().is_none() {
        return visit(pair, kind(pair.as_rule(), parent));
    }
    inner.for_each(|part| leaves(&part, pair.as_rule(), visit));
}

fn kind(rule: Rule, parent: Rule) -> TokenKind {
    match (rule, parent) {
        (Rule::name | Rule::schedule_name, Rule::call | Rule::r#use | Rule::schedule_call) => TokenKind::Called,
        (Rule::name, Rule::argument) => TokenKind::Argument,
        (Rule::name | Rule::schedule_name, _) => TokenKind::Name,
        (Rule::kind | Rule::cost_name | Rule::activation_name, _) => TokenKind::Task,
        (Rule::dtype | Rule::number_type, _) => TokenKind::Type,
        (Rule::version | Rule::offloaded | Rule::decay_shape | Rule::decayed | Rule::shuffled, _) => {
            TokenKind::Constant
        }
        (Rule::number, _) => TokenKind::Number,
        (Rule::string, _) => TokenKind::String,
        (Rule::standard_path, _) => TokenKind::Path,
        (Rule::plus | Rule::minus | Rule::times | Rule::over | Rule::modulo | Rule::overlap | Rule::range, _)
        | (Rule::assign | Rule::equal | Rule::not_equal, _)
        | (Rule::at_most | Rule::at_least | Rule::below | Rule::above, _) => TokenKind::Operator,
        (rule, _) if format!("{rule:?}").starts_with("kw_") => TokenKind::Keyword,
        _ => TokenKind::Mark,
    }
}

/// Adds the tokens of a part that does not parse.
fn words(text: &str, part: Range<usize>, found: &mut Vec<Token>) {
    let mut end = part.start;
    for word in Tokens::new(&text[part.clone()]) {
        let place = part.start + word.start..part.start + word.end;
        comments(text, end..place.start, found);
        end = place.end;
        let token = &text[place.clone()];
        let kind = match token.chars().next() {
            Some('"') => TokenKind::String,
            Some('(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '.') => TokenKind::Mark,
            Some(first) if first.is_ascii_digit() && Grammar::parse(Rule::number, token).is_ok() => TokenKind::Number,
            Some(first) if first.is_alphanumeric() || first == '_' => TokenKind::Word,
            _ => TokenKind::Operator,
        };
        found.push(Token { place, kind });
    }
    comments(text, end..part.end, found);
}

/// Adds the comments between two tokens.
fn comments(text: &str, gap: Range<usize>, found: &mut Vec<Token>) {
    let mut start = gap.start;
    for line in text[gap].split_inclusive('\n') {
        if let Some(begins) = line.find("//") {
            let comment = line[begins..].trim_end();
            let kind = if comment.starts_with("///") { TokenKind::Documentation } else { TokenKind::Comment };
            found.push(Token { place: start + begins..start + begins + comment.len(), kind });
        }
        start += line.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(&str, TokenKind)> {
        tokens(text).into_iter().map(|token| (&text[token.place], token.kind)).collect()
    }

    #[test]
    fn words_are_what_the_grammar_takes_them_for() {
        use TokenKind::{Argument, Called, Comment, Documentation, Keyword, Mark, Name, Number, Operator, Task};
        let found =
            shown("/// é\nschedule a(stages = 2) { // b\n stages min(stages, D = 1) }\npipeline p { cost F=1 }");
        let expected = [
            ("/// é", Documentation),
            ("schedule", Keyword),
            ("a", Name),
            ("(", Mark),
            ("stages", Name),
            ("=", Operator),
            ("2", Number),
            (")", Mark),
            ("{", Mark),
            ("// b", Comment),
            ("stages", Keyword),
            ("min", Called),
            ("(", Mark),
            ("stages", Name),
            (",", Mark),
            ("D", Argument),
            ("=", Operator),
            ("1", Number),
            (")", Mark),
            ("}", Mark),
            ("pipeline", Keyword),
            ("p", Name),
            ("{", Mark),
            ("cost", Keyword),
            ("F", Task),
            ("=", Operator),
            ("1", Number),
            ("}", Mark),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_does_not_parse_are_words_and_the_rest_is_what_it_is() {
        let text = "import std.models.gpt\n// a\nschedule b {\n stages ( \"x\n}\n/// c\nschedule d { stages 2x }\nlayer e { }\n";
        let found = shown(text);
        for token in [
            ("std.models.gpt", TokenKind::Path),
            ("b", TokenKind::Word),
            ("\"x", TokenKind::String),
            ("/// c", TokenKind::Documentation),
            ("2x", TokenKind::Word),
            ("e", TokenKind::Name),
        ] {
            assert!(found.contains(&token), "{token:?} is not in {found:?}");
        }
    }

    /// Whatever is cut out of a text: tokens have an order, and lie in it.
    #[test]
    fn damaged_texts_have_tokens_too() {
        for (_, text) in crate::stdlib::SCHEDULES.iter().take(6) {
            let text = format!("{text}// é🦀\n\"é");
            for step in [7, 31] {
                for cut in (0..text.len()).step_by(step).filter(|cut| text.is_char_boundary(*cut)) {
                    let end = (cut + step..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
                    let damaged = [&text[..cut], &text[end..]].concat();
                    let mut last = 0;
                    for Token { place, .. } in tokens(&damaged) {
                        assert!(last <= place.start && !damaged[place.clone()].contains('\n'), "{damaged}");
                        last = place.end;
                    }
                }
            }
        }
    }
}
