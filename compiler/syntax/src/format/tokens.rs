//! What a text consists of: words and marks with the comments before them, and the tree of rules over them.

use crate::parse::Rule;
use pest::iterators::Pair;
use std::ops::Range;

/// A word or a mark. The last one of a text is its empty end.
#[derive(Debug)]
pub(super) struct Token<'t> {
    pub(super) text: &'t str,
    pub(super) rule: Rule,
    /// Comments between the token before and this one.
    pub(super) comments: Vec<Comment<'t>>,
    /// Line ends right before it, behind the last comment.
    pub(super) newlines: usize,
    /// Whether a space is before it where both are on one line.
    pub(super) space: bool,
}

/// `// text`, and the line ends right before it.
#[derive(Debug)]
pub(super) struct Comment<'t> {
    pub(super) text: &'t str,
    pub(super) newlines: usize,
}

/// What a rule made of some tokens; a token by itself has no parts.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) rule: Rule,
    pub(super) tokens: Range<usize>,
    pub parts: Vec<Node>,
}

/// All tokens of a parsed text, and its tree.
pub(super) fn read<'t>(text: &'t str, file: Pair<'t, Rule>) -> (Vec<Token<'t>>, Node) {
    let mut reader = Reader { text, position: 0, tokens: Vec::new() };
    let tree = reader.node(file);
    (reader.tokens, tree)
}

struct Reader<'t> {
    text: &'t str,
    position: usize,
    tokens: Vec<Token<'t>>,
}

impl<'t> Reader<'t> {
    fn node(&mut self, pair: Pair<'t, Rule>) -> Node {
        let rule = pair.as_rule();
        let first = self.tokens.len();
        let mut parts: Vec<Node> = Vec::new();
        for part in pair.clone().into_inner() {
            let before = parts.last().map(|part| part.rule);
            if part.clone().into_inner().next().is_none() {
                parts.push(self.token(&part, rule, before));
            } else {
                parts.push(self.node(part));
            }
        }
        Node { rule, tokens: first..self.tokens.len(), parts }
    }

    /// A token inside `parent`, behind its part `before`.
    fn token(&mut self, pair: &Pair<'t, Rule>, parent: Rule, before: Option<Rule>) -> Node {
        let (index, rule, span) = (self.tokens.len(), pair.as_rule(), pair.as_span());
        let (comments, newlines) = gap(&self.text[self.position..span.start()]);
        let is_sign = rule == Rule::minus && parent == Rule::operation && before.is_none_or(|rule| !is_operand(rule));
        let last = self.tokens.last();
        let space = last.is_some_and(|last| !last.holds() && spaced(last.rule, rule, parent));
        // A sign holds what follows, as brackets do: said by a rule that no token has.
        let rule = if is_sign { Rule::prefix } else { rule };
        self.tokens.push(Token { text: pair.as_str(), rule, comments, newlines, space });
        self.position = span.end();
        Node { rule, tokens: index..index + 1, parts: Vec::new() }
    }
}

impl Token<'_> {
    /// Whether what follows stands right behind it.
    fn holds(&self) -> bool {
        matches!(
            self.rule,
            Rule::open_round | Rule::open_square | Rule::open_index | Rule::dot | Rule::range | Rule::prefix
        )
    }

    pub(super) fn opens(&self) -> bool {
        matches!(self.rule, Rule::open | Rule::open_round | Rule::open_square | Rule::open_index)
    }

    pub(super) fn closes(&self) -> bool {
        matches!(self.rule, Rule::close | Rule::close_round | Rule::close_square)
    }
}

fn is_operand(rule: Rule) -> bool {
    matches!(rule, Rule::number | Rule::call | Rule::name | Rule::list | Rule::group | Rule::index)
}

/// Whether a space is between a token and the one before it.
fn spaced(before: Rule, rule: Rule, parent: Rule) -> bool {
    match rule {
        Rule::close_round | Rule::close_square | Rule::comma | Rule::colon | Rule::dot | Rule::range => false,
        Rule::open_index => false,
        Rule::open_round => parent == Rule::group,
        Rule::open_square => parent == Rule::list || before == Rule::colon,
        _ => parent != Rule::cost_link,
    }
}

/// Comments between two tokens, and the line ends behind the last one.
fn gap(mut text: &str) -> (Vec<Comment<'_>>, usize) {
    let newlines = |space: &str| space.matches('\n').count();
    let mut comments = Vec::new();
    while let Some(start) = text.find("//") {
        let (space, rest) = text.split_at(start);
        let end = rest.find('\n').unwrap_or(rest.len());
        comments.push(Comment { text: rest[..end].trim_end(), newlines: newlines(space) });
        text = &rest[end..];
    }
    (comments, newlines(text))
}
