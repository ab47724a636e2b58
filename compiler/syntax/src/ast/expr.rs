//! The syntax tree of expressions, the same for integers, decimals and tensors.

use super::Name;
use crate::source::Span;

/// `name(arguments)`; the brackets may be missing in a pipeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// What is called.
    pub name: Name,
    /// With what.
    pub arguments: Vec<Argument>,
    /// Everything.
    pub span: Span,
}

/// `value` or `name = value`.
#[derive(Clone, PartialEq, Debug)]
pub struct Argument {
    /// The parameter it is for; none goes by position.
    pub name: Option<Name>,
    /// What is given.
    pub value: Expr,
}

/// An expression, over integers, decimals or tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// What it says.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

impl Expr {
    /// Visits this expression and all inside of it, in the order of the text.
    pub fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Self)) {
        visit(self);
        match &self.kind {
            ExprKind::Integer(_) | ExprKind::Decimal(_) | ExprKind::Name(_) => {}
            ExprKind::Unary(_, operand) => operand.walk(visit),
            ExprKind::Binary(_, one, other)
            | ExprKind::Range(one, other)
            | ExprKind::Index(one, other)
            | ExprKind::Behind(one, other) => {
                [one, other].into_iter().for_each(|part| part.walk(visit));
            }
            ExprKind::If { condition, then, otherwise } => {
                [condition, then, otherwise].into_iter().for_each(|part| part.walk(visit));
            }
            ExprKind::Call(call) => call.arguments.iter().for_each(|argument| argument.value.walk(visit)),
            ExprKind::List(items) => items.iter().for_each(|item| item.walk(visit)),
            ExprKind::Each { item, start, end, .. } => [item, start, end].into_iter().for_each(|part| part.walk(visit)),
        }
    }
}

/// The forms of an expression.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// `12`, or a size `64MiB`, which is a number of bytes.
    Integer(i64),
    /// `0.02`.
    Decimal(Decimal),
    /// A parameter, a `let` or a variable.
    Name(String),
    /// `-x`, `not x`.
    Unary(UnaryOp, Box<Expr>),
    /// `x + y`.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `if c then x else y`.
    If {
        /// Which one.
        condition: Box<Expr>,
        /// Where it holds.
        then: Box<Expr>,
        /// Where it does not.
        otherwise: Box<Expr>,
    },
    /// `min(x, y)`.
    Call(Call),
    /// `[rows, hidden]`.
    List(Vec<Expr>),
    /// `[2 * k for k in 0..D]`: a table whose numbers follow a rule.
    Each {
        /// What each of them is.
        item: Box<Expr>,
        /// What counts them there.
        variable: Name,
        /// The first number of the variable.
        start: Box<Expr>,
        /// One past its last number.
        end: Box<Expr>,
    },
    /// `table[position]`.
    Index(Box<Expr>, Box<Expr>),
    /// `0..D`: several devices, only in `place`.
    Range(Box<Expr>, Box<Expr>),
    /// `S - 1 behind 4`: a stage, of the fourth microbatch before; only in `reads`.
    Behind(Box<Expr>, Box<Expr>),
}

/// An exact decimal number: `digits / 10^scale`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal {
    /// All digits.
    pub digits: i64,
    /// How many of them stand behind the point; at most 18.
    pub scale: u32,
}

impl Decimal {
    /// The nearest floating-point number.
    pub fn to_f64(self) -> f64 {
        self.digits as f64 / 10f64.powi(i32::try_from(self.scale).unwrap_or(i32::MAX))
    }
}

/// Operators with one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `-x`
    Negate,
    /// `not x`
    Not,
}

/// Operators with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `x + y`
    Add,
    /// `x - y`
    Subtract,
    /// `x * y`
    Multiply,
    /// `x / y`: exact, but for schedules, where it rounds down, so that `-1 / 2` is `-1`.
    Divide,
    /// `x % y`: what `/` leaves, with the sign of y, so `-1 % 4` is `3`.
    Modulo,
    /// `x == y`
    Equal,
    /// `x != y`
    NotEqual,
    /// `x < y`
    Less,
    /// `x <= y`
    LessEqual,
    /// `x > y`
    Greater,
    /// `x >= y`
    GreaterEqual,
    /// `x and y`: y is not evaluated where x does not hold.
    And,
    /// `x or y`: y is not evaluated where x holds.
    Or,
}

impl BinaryOp {
    /// As written.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::And => "and",
            Self::Or => "or",
        }
    }
}
