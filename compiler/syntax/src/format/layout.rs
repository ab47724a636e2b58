//! Where lines end: a part of the tree is on one line if it may be and fits, and is else divided by its rule.

use super::lines::Line;
use super::tokens::{Node, Token};
use super::{STEP, WIDTH};
use crate::parse::{Rule, strength};
use std::ops::Range;

/// What comes before a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A space or nothing, by the token.
    Space,
    /// A line end and so many spaces.
    Line(usize),
}

struct LineBreaker<'l, 't> {
    tokens: &'l [Token<'t>],
    /// Columns of all tokens before each, on one line.
    widths: Vec<usize>,
    /// Tokens before each that must begin a line.
    breaks: Vec<usize>,
    lines: Vec<Line<'t>>,
    /// Where each token is: its line and column.
    places: Vec<(usize, usize)>,
    /// Spaces before the item or element that is being laid out.
    start: usize,
}

/// The lines of a text.
pub(super) fn lay_out<'t>(tokens: &[Token<'t>], tree: &Node) -> Vec<Line<'t>> {
    let mut begins: Vec<bool> = tokens.iter().map(|token| !token.comments.is_empty()).collect();
    mark(tokens, tree, &mut begins);
    let sums = |amount: &dyn Fn(usize) -> usize| {
        let step = |sum: &mut usize, index| {
            std::mem::replace(sum, *sum + if index < tokens.len() { amount(index) } else { 0 })
        };
        (0..=tokens.len()).scan(0, |sum, index| Some(step(sum, index))).collect::<Vec<_>>()
    };
    let widths = sums(&|index| tokens[index].text.chars().count() + usize::from(tokens[index].space));
    let breaks = sums(&|index| usize::from(begins[index]));
    let mut layout = LineBreaker { tokens, widths, breaks, lines: Vec::new(), places: Vec::new(), start: 0 };
    layout.items(&tree.parts, 0);
    layout.lines
}

/// Finds the tokens that begin a line wherever they stand: items of what always has several lines,
/// and the first ones of what the author has divided.
fn mark(tokens: &[Token<'_>], node: &Node, begins: &mut [bool]) {
    let opener = node.parts.iter().position(|part| tokens[part.tokens.start].opens() && part.parts.is_empty());
    if let Some(inside) = opener.and_then(|opener| node.parts.get(opener + 1..))
        && let Some(first) = inside.first().filter(|_| inside.len() > 1)
    {
        begins[first.tokens.start] |= match node.rule {
            Rule::schedule | Rule::layer | Rule::model | Rule::pipeline | Rule::phase | Rule::block | Rule::train => {
                true
            }
            Rule::body | Rule::layers | Rule::counted_layers | Rule::arguments | Rule::parameters | Rule::list => {
                tokens[first.tokens.start].newlines > 0
            }
            _ => false,
        };
    }
    node.parts.iter().for_each(|part| mark(tokens, part, begins));
}

impl LineBreaker<'_, '_> {
    /// Whether a part may be on one line.
    fn may_be_flat(&self, tokens: &Range<usize>) -> bool {
        self.breaks[tokens.end] == self.breaks[tokens.start + 1]
    }

    fn width(&self, tokens: &Range<usize>) -> usize {
        self.widths[tokens.end] - self.widths[tokens.start]
    }

    /// Columns that are taken in the last line.
    fn column(&self) -> usize {
        self.lines.last().map_or(0, Line::width)
    }

    fn fits(&self, tokens: &Range<usize>, before: Before) -> bool {
        let column = match before {
            _ if !self.tokens[tokens.start].comments.is_empty() => self.start + STEP,
            Before::Line(indent) => indent,
            Before::Space => self.column(),
        };
        self.may_be_flat(tokens) && column + self.width(tokens) <= WIDTH
    }

    fn node(&mut self, node: &Node, before: Before) {
        if node.parts.is_empty() || self.fits(&node.tokens, before) {
            for index in node.tokens.clone() {
                self.token(index, if index == node.tokens.start { before } else { Before::Space });
            }
            return;
        }
        let next = Before::Line(self.start + STEP);
        match node.rule {
            Rule::schedule | Rule::layer | Rule::model | Rule::pipeline | Rule::phase | Rule::block | Rule::train => {
                self.braces(&node.parts, before);
            }
            Rule::body | Rule::layers | Rule::counted_layers => self.braces(&node.parts, before),
            Rule::r#if => self.branches(&node.parts, before),
            Rule::arguments | Rule::parameters | Rule::list | Rule::shape | Rule::group => {
                self.brackets(&node.parts, before);
            }
            Rule::expr | Rule::homes | Rule::read_list | Rule::part_list | Rule::weights => {
                self.divided(
                    &node.parts,
                    before,
                    |part, _| if part.rule == Rule::kw_else { next } else { Before::Space },
                );
            }
            Rule::device => {
                let is_number = |part: &Node| part.rule == Rule::device_number;
                self.divided(&node.parts, before, |part, _| if is_number(part) { next } else { Before::Space });
            }
            Rule::operation => {
                let loosest = node.parts.iter().filter_map(|part| strength(part.rule)).min();
                self.divided(&node.parts, before, |part, _| {
                    let strength = strength(part.rule);
                    if strength.is_some() && strength == loosest { next } else { Before::Space }
                });
            }
            _ => self.divided(&node.parts, before, |_, comma| if comma { next } else { Before::Space }),
        }
    }

    /// Parts one after the other; `between` says what comes before each but the first, given
    /// whether it is behind a comma.
    fn divided(&mut self, parts: &[Node], before: Before, between: impl Fn(&Node, bool) -> Before) {
        let mut comma = false;
        for (index, part) in parts.iter().enumerate() {
            self.node(part, if index == 0 { before } else { between(part, comma) });
            comma = part.rule == Rule::comma;
        }
    }

    /// `if c { .. } else { .. }` on several lines: all branches are divided if one is.
    fn branches(&mut self, parts: &[Node], before: Before) {
        for (index, part) in parts.iter().enumerate() {
            let before = if index == 0 { before } else { Before::Space };
            if part.rule == Rule::body && part.parts.len() > 2 {
                self.braces(&part.parts, before);
            } else {
                self.node(part, before);
            }
        }
    }

    /// `head { items }` with a line for each item.
    fn braces(&mut self, parts: &[Node], before: Before) {
        let start = self.start;
        let opener = parts.iter().position(|part| part.rule == Rule::open).unwrap_or(0);
        let (head, rest) = parts.split_at(opener + 1);
        self.divided(head, before, |_, _| Before::Space);
        if let Some((close, items)) = rest.split_last() {
            self.items(items, start + STEP);
            self.token(close.tokens.start, Before::Line(start));
        }
        self.start = start;
    }

    /// Items with a line for each, or tasks that go on with one. Leaves `start` as the items have it.
    fn items(&mut self, items: &[Node], indent: usize) {
        self.start = indent;
        let mut task_before = false;
        for item in items {
            let first = &self.tokens[item.tokens.start];
            let is_task = matches!(item.rule, Rule::task | Rule::pair | Rule::movement | Rule::step_task);
            let stays = task_before && is_task && first.newlines == 0 && first.comments.is_empty();
            if stays && self.fits(&item.tokens, Before::Space) {
                self.node(item, Before::Space);
            } else {
                self.node(item, Before::Line(indent));
                self.align(item);
            }
            task_before = is_task;
        }
    }

    /// Elements between round or square brackets, with a line for each.
    fn brackets(&mut self, parts: &[Node], before: Before) {
        let start = self.start;
        let mut outer = 0;
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.iter().enumerate() {
            if index == 0 {
                self.node(part, before);
                outer = self.lines.last().map_or(0, |line| line.indent);
                self.start = outer + STEP;
            } else if index == last {
                self.node(part, Before::Line(outer));
            } else {
                // The rule of a list stands behind its first element, on a line of its own.
                let begins = index == 1 || parts[index - 1].rule == Rule::comma || part.rule == Rule::kw_for;
                self.node(part, if begins { Before::Line(outer + STEP) } else { Before::Space });
            }
        }
        self.start = start;
    }

    /// Says which token of an item stands below that of the line before, if both have one.
    fn align(&mut self, item: &Node) {
        let whole = matches!(item.rule, Rule::repeat | Rule::r#for | Rule::layers | Rule::counted_layers);
        let place = |node: &Node| self.places.get(node.tokens.start).copied();
        let aligned = match item.rule {
            Rule::block_task => item.parts.iter().find(|part| matches!(part.rule, Rule::kw_at | Rule::kw_fill)),
            Rule::binding | Rule::function | Rule::named_layer => {
                item.parts.iter().find(|part| part.rule == Rule::assign)
            }
            Rule::repeat | Rule::r#for => item.parts.last(),
            Rule::layers | Rule::counted_layers => item.parts.iter().find(|part| part.rule == Rule::open),
            _ => None,
        };
        let Some(((line, column), (first, _))) = aligned.and_then(place).zip(place(item)) else { return };
        let end = self.places.last().map_or(first, |(line, _)| *line);
        if line == first && (end == first || !whole) {
            let is_let = matches!(item.rule, Rule::function | Rule::named_layer);
            let what = if is_let { Rule::binding } else { item.rule };
            self.lines[line].mark = Some((what, column));
        }
    }

    fn token(&mut self, index: usize, before: Before) {
        let token = &self.tokens[index];
        let mut follows_opener = index == 0 || self.tokens[index - 1].opens();
        let (indent, inside) = match before {
            Before::Line(indent) if token.closes() => (indent, indent + STEP),
            Before::Line(indent) => (indent, indent),
            Before::Space => (self.start + STEP, self.start + STEP),
        };
        for comment in &token.comments {
            match self.lines.last_mut() {
                Some(line) if comment.newlines == 0 => line.comment = Some(comment.text),
                _ => {
                    self.gap(comment.newlines > 1 && !follows_opener);
                    self.lines.push(Line::new(inside, comment.text));
                }
            }
            follows_opener = false;
        }
        if before != Before::Space || !token.comments.is_empty() {
            if token.rule != Rule::EOI {
                self.gap(token.newlines > 1 && !follows_opener && !token.closes());
                self.lines.push(Line::new(indent, ""));
            }
        } else if token.space {
            self.lines.iter_mut().last().into_iter().for_each(|line| line.text.push(' '));
        }
        let place = (self.lines.len().saturating_sub(1), self.lines.last().map_or(0, |line| line.text.len()));
        self.places.push(place);
        self.lines.iter_mut().last().into_iter().for_each(|line| line.text.push_str(token.text));
    }

    fn gap(&mut self, wanted: bool) {
        if wanted {
            self.lines.push(Line::new(0, ""));
        }
    }
}
