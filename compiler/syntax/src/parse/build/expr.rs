//! Expressions: operators bind as everywhere, and `not` looser than comparisons.

use super::{Builder, Parts, Rule};
use crate::ast::{BinaryOp, Decimal, Expr, ExprKind, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use crate::parse::MAX_DEPTH;
use crate::source::Span;
use pest::iterators::{Pair, Pairs};
use std::iter::Peekable;

/// An expression with the depth of its tree.
struct Tree {
    expr: Expr,
    depth: u32,
}

/// How tightly `not` and `-` hold their operand.
const NOT: u8 = 3;
const NEGATE: u8 = 7;
/// Letters of `none`, which stands for no stages.
const NONE: u32 = 4;

impl Builder<'_> {
    pub(super) fn expr(&mut self, pair: Pair<'_, Rule>) -> Expr {
        self.tree(pair).expr
    }

    fn tree(&mut self, pair: Pair<'_, Rule>) -> Tree {
        match pair.as_rule() {
            Rule::expr | Rule::homes | Rule::read_list => self.conditional(pair),
            Rule::operation | Rule::part_of => self.operation(&mut pair.into_inner().peekable(), 0),
            Rule::read => self.read(pair),
            Rule::group => self.group(pair),
            Rule::number => self.number(&pair),
            Rule::list => self.list(pair),
            Rule::call => self.called(pair),
            _ => {
                let (span, kind) = (self.span(&pair), ExprKind::Name(pair.as_str().to_owned()));
                Tree { expr: Expr { kind, span }, depth: 1 }
            }
        }
    }

    /// Makes a node, or says that the tree is too deep and cuts it.
    fn node(&mut self, kind: ExprKind, span: Span, depth: u32) -> Tree {
        if depth < MAX_DEPTH {
            return Tree { expr: Expr { kind, span }, depth: depth + 1 };
        }
        let message = format!("the expression has more than {MAX_DEPTH} operations inside one another");
        let error = Diagnostic::error(Code::TooLarge, span, "too deep", message);
        self.error(error.help("give parts of the expression a name with `let`"));
        Tree { expr: Expr { kind: ExprKind::Integer(0), span }, depth: 1 }
    }

    /// `if c then x else if c then x else y`, with `y..z` for `y` where several devices may stand, and `y, z` or `none`
    /// where several stages may: the alternatives lie flat in the pair.
    fn conditional(&mut self, pair: Pair<'_, Rule>) -> Tree {
        let (whole, is_list) = (self.span(&pair), pair.as_rule() == Rule::read_list);
        let end = whole.end;
        let mut trees = Vec::new();
        let mut starts = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::kw_if => starts.push(self.span(&part).start),
                Rule::expr | Rule::homes | Rule::read_list | Rule::read | Rule::operation => {
                    trees.push(self.tree(part))
                }
                _ => {}
            }
        }
        let mut tree = match is_list {
            true => {
                let stages = trees.split_off(2 * starts.len());
                let start = stages.first().map_or(end - NONE, |first| first.expr.span.start);
                let depth = stages.iter().map(|stage| stage.depth).max().unwrap_or(0);
                let stages = stages.into_iter().map(|stage| stage.expr).collect();
                self.node(ExprKind::List(stages), Span { start, ..whole }, depth)
            }
            false => trees.pop().expect("the grammar demands an operation"),
        };
        if trees.len() > 2 * starts.len() {
            let first = trees.pop().expect("the grammar demands an operation before `..`");
            let span = Span { end, ..first.expr.span };
            let depth = first.depth.max(tree.depth);
            tree = self.node(ExprKind::Range(Box::new(first.expr), Box::new(tree.expr)), span, depth);
        }
        while let (Some(then), Some(condition), Some(start)) = (trees.pop(), trees.pop(), starts.pop()) {
            let depth = tree.depth.max(then.depth).max(condition.depth);
            let span = Span { file: self.file, start, end };
            let kind = ExprKind::If {
                condition: Box::new(condition.expr),
                then: Box::new(then.expr),
                otherwise: Box::new(tree.expr),
            };
            tree = self.node(kind, span, depth);
        }
        tree
    }

    /// A stage that is read, perhaps with how many microbatches before.
    fn read(&mut self, pair: Pair<'_, Rule>) -> Tree {
        let whole = self.span(&pair);
        let mut numbers = pair.into_inner().filter(|part| part.as_rule() == Rule::operation);
        let stage = self.tree(numbers.next().expect("the grammar demands a stage"));
        let Some(behind) = numbers.next() else { return stage };
        let behind = self.tree(behind);
        let depth = stage.depth.max(behind.depth);
        self.node(ExprKind::Behind(Box::new(stage.expr), Box::new(behind.expr)), whole, depth)
    }

    /// Operands and operators that bind at least so tightly: precedence climbing.
    fn operation(&mut self, pairs: &mut Peekable<Pairs<'_, Rule>>, tightest: u8) -> Tree {
        let mut left = self.operand(pairs);
        while let Some((operator, strength)) = pairs.peek().and_then(|pair| binary(pair.as_rule())) {
            if strength < tightest {
                break;
            }
            pairs.next();
            let right = self.operation(pairs, strength + 1);
            let span = Span { end: right.expr.span.end, ..left.expr.span };
            let depth = left.depth.max(right.depth);
            left = self.node(ExprKind::Binary(operator, Box::new(left.expr), Box::new(right.expr)), span, depth);
        }
        left
    }

    fn operand(&mut self, pairs: &mut Peekable<Pairs<'_, Rule>>) -> Tree {
        let pair = pairs.next().expect("the grammar demands an operand");
        let (operator, strength) = match pair.as_rule() {
            Rule::minus => (UnaryOp::Negate, NEGATE),
            Rule::kw_not => (UnaryOp::Not, NOT),
            _ => return self.indexed(pair, pairs),
        };
        let start = self.span(&pair);
        let operand = self.operation(pairs, strength);
        let span = Span { end: operand.expr.span.end, ..start };
        self.node(ExprKind::Unary(operator, Box::new(operand.expr)), span, operand.depth)
    }

    /// An operand with the positions behind it: `table[s][0]`.
    fn indexed(&mut self, pair: Pair<'_, Rule>, pairs: &mut Peekable<Pairs<'_, Rule>>) -> Tree {
        let mut tree = self.tree(pair);
        while let Some(index) = pairs.next_if(|pair| pair.as_rule() == Rule::index) {
            let span = Span { end: self.span(&index).end, ..tree.expr.span };
            let position = self.tree(Parts::of(index).need());
            let depth = tree.depth.max(position.depth);
            tree = self.node(ExprKind::Index(Box::new(tree.expr), Box::new(position.expr)), span, depth);
        }
        tree
    }

    fn group(&mut self, pair: Pair<'_, Rule>) -> Tree {
        let span = self.span(&pair);
        let mut tree = self.tree(Parts::of(pair).need());
        tree.expr.span = span;
        tree
    }

    fn list(&mut self, pair: Pair<'_, Rule>) -> Tree {
        let span = self.span(&pair);
        let mut parts = Parts::of(pair);
        let first = parts.next().map(|item| self.tree(item));
        let variable = parts.optional(Rule::name).map(|name| self.name(&name));
        let others: Vec<Tree> = parts.map(|item| self.tree(item)).collect();
        let (first, others) = match (first, variable, <[Tree; 2]>::try_from(others)) {
            (Some(item), Some(variable), Ok([start, end])) => {
                let depth = item.depth.max(start.depth).max(end.depth);
                let [item, start, end] = [item, start, end].map(|part| Box::new(part.expr));
                return self.node(ExprKind::Each { item, variable, start, end }, span, depth);
            }
            (first, _, others) => (first, others.map_or_else(|others| others, Vec::from)),
        };
        let items: Vec<Tree> = first.into_iter().chain(others).collect();
        let depth = items.iter().map(|item| item.depth).max().unwrap_or(0);
        self.node(ExprKind::List(items.into_iter().map(|item| item.expr).collect()), span, depth)
    }

    fn called(&mut self, pair: Pair<'_, Rule>) -> Tree {
        let call = self.call(pair);
        let depth = call.arguments.iter().map(|argument| depth_of(&argument.value)).max().unwrap_or(0);
        let span = call.span;
        self.node(ExprKind::Call(call), span, depth)
    }

    fn number(&mut self, pair: &Pair<'_, Rule>) -> Tree {
        let span = self.span(pair);
        let kind = parse_number(pair.as_str()).unwrap_or_else(|reason| {
            let message = format!("`{}` {reason}", pair.as_str());
            self.error(Diagnostic::error(Code::Arithmetic, span, "this number", message));
            ExprKind::Integer(0)
        });
        Tree { expr: Expr { kind, span }, depth: 1 }
    }
}

/// The depth of a finished tree.
fn depth_of(expr: &Expr) -> u32 {
    let deepest = match &expr.kind {
        ExprKind::Integer(_) | ExprKind::Decimal(_) | ExprKind::Name(_) => 0,
        ExprKind::Unary(_, operand) => depth_of(operand),
        ExprKind::Binary(_, left, right)
        | ExprKind::Range(left, right)
        | ExprKind::Index(left, right)
        | ExprKind::Behind(left, right) => depth_of(left).max(depth_of(right)),
        ExprKind::Each { item, start, end, .. } => depth_of(item).max(depth_of(start)).max(depth_of(end)),
        ExprKind::If { condition, then, otherwise } => depth_of(condition).max(depth_of(then)).max(depth_of(otherwise)),
        ExprKind::Call(call) => call.arguments.iter().map(|argument| depth_of(&argument.value)).max().unwrap_or(0),
        ExprKind::List(items) => items.iter().map(depth_of).max().unwrap_or(0),
    };
    deepest + 1
}

/// How tightly an operator between two operands binds; none for all other rules.
pub(crate) fn strength(rule: Rule) -> Option<u8> {
    binary(rule).map(|(_, strength)| strength)
}

fn binary(rule: Rule) -> Option<(BinaryOp, u8)> {
    Some(match rule {
        Rule::kw_or => (BinaryOp::Or, 1),
        Rule::kw_and => (BinaryOp::And, 2),
        Rule::equal => (BinaryOp::Equal, 4),
        Rule::not_equal => (BinaryOp::NotEqual, 4),
        Rule::below => (BinaryOp::Less, 4),
        Rule::at_most => (BinaryOp::LessEqual, 4),
        Rule::above => (BinaryOp::Greater, 4),
        Rule::at_least => (BinaryOp::GreaterEqual, 4),
        Rule::plus => (BinaryOp::Add, 5),
        Rule::minus => (BinaryOp::Subtract, 5),
        Rule::times => (BinaryOp::Multiply, 6),
        Rule::over => (BinaryOp::Divide, 6),
        Rule::modulo => (BinaryOp::Modulo, 6),
        _ => return None,
    })
}

const UNITS: [(&str, i128); 5] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];

/// `12`, `0.02`, `3e-4` or `1.5GiB`, exactly.
pub(crate) fn parse_number(text: &str) -> Result<ExprKind, &'static str> {
    let unit = UNITS.into_iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, bytes)));
    let (number, bytes) = unit.map_or((text, None), |(number, bytes)| (number, Some(bytes)));
    let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| "has too large an exponent")?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i64 = format!("{whole}{fraction}").parse().map_err(|_| "does not fit in 64 bits")?;
    let scale = i64::try_from(fraction.len()).unwrap_or(i64::MAX).saturating_sub(exponent);
    if let Some(bytes) = bytes {
        let divisor =
            u32::try_from(scale).ok().and_then(|scale| 10i128.checked_pow(scale)).ok_or("has too many digits")?;
        let product = i128::from(digits) * bytes;
        if product % divisor != 0 {
            return Err("is not a whole number of bytes");
        }
        return i64::try_from(product / divisor).map(ExprKind::Integer).map_err(|_| "does not fit in 64 bits");
    }
    match u32::try_from(scale) {
        Ok(0) => Ok(ExprKind::Integer(digits)),
        Ok(scale @ 1..=18) => Ok(ExprKind::Decimal(Decimal { digits, scale })),
        Ok(_) => Err("has more than 18 digits after the decimal point"),
        Err(_) => {
            let factor = u32::try_from(-scale).ok().and_then(|power| 10i64.checked_pow(power));
            let integer = factor.and_then(|factor| digits.checked_mul(factor)).ok_or("does not fit in 64 bits")?;
            Ok(ExprKind::Integer(integer))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        let decimal = |digits, scale| Ok(ExprKind::Decimal(Decimal { digits, scale }));
        assert_eq!(parse_number("12"), Ok(ExprKind::Integer(12)));
        assert_eq!(parse_number("0.02"), decimal(2, 2));
        assert_eq!(parse_number("3e-4"), decimal(3, 4));
        assert_eq!(parse_number("2e3"), Ok(ExprKind::Integer(2000)));
        assert_eq!(parse_number("64MiB"), Ok(ExprKind::Integer(64 << 20)));
        assert_eq!(parse_number("1.5GiB"), Ok(ExprKind::Integer(3 << 29)));
        assert_eq!(parse_number("7B"), Ok(ExprKind::Integer(7)));
    }

    #[test]
    fn absurd_numbers_are_refused() {
        for text in [
            "9223372036854775808",
            "1e99",
            "1e-99",
            "1e99999999999999999999",
            "0.3B",
            "9999999999TiB",
            "1.0e9999999999B",
        ] {
            assert!(parse_number(text).is_err(), "{text}");
        }
    }
}
