//! Scopes: what names mean. Expressions are resolved once, so that evaluating them looks nothing up.
//!
//! A name is a constant (a parameter, `D`, `M`), a `let` (evaluated where it is used, at most once
//! for each change of a variable that it depends on) or a variable (`s`, `d`, the number of a
//! loop), which has a value only where it is bound.

use super::arithmetic::{Arithmetic, Decimals};
use super::errors::{named_argument, unknown_function, unknown_name, wrong_count, wrong_type};
use crate::ast::{Argument, BinaryOp, Call, Decimal, Expr, ExprKind, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;
use std::collections::BTreeMap;

/// The most variables of one scope: one bit each.
pub const MAX_VARIABLES: usize = 64;
/// How deep an expression may be, through all the `let`s that it uses.
const MAX_DEPTH: u32 = 300;

/// What an expression gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// A whole number.
    Number,
    /// True or false.
    Condition,
    /// Of a `let` whose own error is reported: fits everywhere, so that no other error follows from it.
    Unknown,
}

impl Type {
    const fn phrase(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Condition => "a condition",
            Self::Unknown => "something unknown",
        }
    }
}

/// An expression whose names are resolved.
#[derive(Clone, Debug)]
pub struct Resolved<'a> {
    /// What it computes.
    pub node: Node<'a>,
    /// What it was made from.
    pub expr: &'a Expr,
    /// Whether that is a number or a condition.
    pub ty: Type,
    /// Variables that the value depends on, a bit each.
    pub depends: u64,
    depth: u32,
}

/// The forms of a resolved expression. Conditions are 1 or 0.
#[derive(Clone, Debug)]
pub enum Node<'a> {
    /// A number that is known.
    Constant(i64),
    /// Where decimals are allowed.
    Decimal(Decimal),
    /// The variable of this slot.
    Variable(usize),
    /// The `let` at this position.
    Let(usize),
    /// An operator before its operand.
    Unary(UnaryOp, Box<Resolved<'a>>),
    /// An operator between two operands.
    Binary(BinaryOp, Box<Resolved<'a>>, Box<Resolved<'a>>),
    /// `if condition then one else other`.
    If(Box<[Resolved<'a>; 3]>),
    /// The smallest of some numbers.
    Min(Vec<Resolved<'a>>),
    /// The largest of some numbers.
    Max(Vec<Resolved<'a>>),
    /// A number without its sign.
    Abs(Box<Resolved<'a>>),
}

/// An error; boxed, because it is rare and results are many.
pub type Fault = Box<Diagnostic>;

/// What names mean at one place of the text.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    constants: BTreeMap<String, i64>,
    names: BTreeMap<String, usize>,
    /// Every `let`, in the order of the text.
    pub lets: Vec<Definition<'a>>,
    variables: BTreeMap<String, usize>,
    /// What each variable holds, once something said so.
    types: Vec<Option<Type>>,
    /// Whether `/` is exact, so that operations are left to [`Number`](super::number::Number)s.
    exact: bool,
    /// What decimals are.
    decimals: Decimals,
}

/// A `let`.
#[derive(Debug)]
pub struct Definition<'a> {
    expr: &'a Expr,
    /// How far it is resolved.
    pub state: State<'a>,
}

/// How far a `let` is resolved.
#[derive(Clone, Debug)]
pub enum State<'a> {
    /// Not yet resolved.
    Untouched,
    /// Being resolved: a use of it now is a cycle.
    Started,
    /// Resolved.
    Done(Resolved<'a>),
    /// In error, which was reported.
    Failed,
}

impl<'a> Scope<'a> {
    /// A scope with names that have values, and nothing else.
    pub fn new(constants: BTreeMap<String, i64>) -> Self {
        Self { constants, ..Self::default() }
    }

    /// The same where `/` is exact, perhaps with decimals.
    pub fn exact(self, decimals: Decimals) -> Self {
        Self { exact: true, decimals, ..self }
    }

    /// What decimals are.
    pub const fn decimals(&self) -> Decimals {
        self.decimals
    }

    /// Adds a definition, which hides a constant of the same name.
    pub fn add_let(&mut self, name: &str, expr: &'a Expr) {
        self.constants.remove(name);
        self.names.insert(name.to_owned(), self.lets.len());
        self.lets.push(Definition { expr, state: State::Untouched });
    }

    /// The slot of a variable, a new one where the name is new. None where there are too many.
    pub fn variable(&mut self, name: &str) -> Option<usize> {
        let next = self.variables.len();
        if let Some(slot) = self.variables.get(name) {
            return Some(*slot);
        }
        (next < MAX_VARIABLES).then(|| {
            self.variables.insert(name.to_owned(), next);
            self.types.push(None);
            next
        })
    }

    /// Says what a variable holds; false where it holds something else elsewhere.
    pub fn set_type(&mut self, slot: usize, ty: Type) -> bool {
        ty == Type::Unknown || *self.types[slot].get_or_insert(ty) == ty
    }

    /// The value of a constant, or the slot of a `let` or variable, for notes beside an error.
    pub fn meaning(&self, name: &str) -> Option<Node<'a>> {
        let variable = self.variables.get(name).map(|slot| Node::Variable(*slot));
        let definition = || self.names.get(name).map(|slot| Node::Let(*slot));
        variable.or_else(definition).or_else(|| self.constants.get(name).map(|value| Node::Constant(*value)))
    }

    /// Resolves an expression that must give a number.
    pub fn number(&mut self, expr: &'a Expr) -> Result<Resolved<'a>, Fault> {
        self.typed(expr, Type::Number, 0)
    }

    /// Resolves an expression that must give a condition.
    pub fn condition(&mut self, expr: &'a Expr) -> Result<Resolved<'a>, Fault> {
        self.typed(expr, Type::Condition, 0)
    }

    /// Resolves an expression that may give either.
    pub fn either(&mut self, expr: &'a Expr) -> Result<Resolved<'a>, Fault> {
        self.resolve(expr, 0)
    }

    /// Resolves every `let`, used or not, and returns what is wrong with them.
    pub fn resolve_lets(&mut self) -> Vec<Fault> {
        (0..self.lets.len()).filter_map(|slot| self.definition(slot, 0).err().flatten()).collect()
    }

    fn typed(&mut self, expr: &'a Expr, wanted: Type, depth: u32) -> Result<Resolved<'a>, Fault> {
        let resolved = self.resolve(expr, depth)?;
        if [wanted, Type::Unknown].contains(&resolved.ty) || wanted == Type::Unknown {
            return Ok(resolved);
        }
        let help = match wanted {
            Type::Number => "write `if condition then 1 else 0` to count with a condition",
            Type::Condition | Type::Unknown => "compare it, for example with `> 0`",
        };
        let error = wrong_type(expr.span, wanted.phrase(), resolved.ty.phrase()).help(help);
        Err(Box::new(if wanted == Type::Number { counted(expr.span, error) } else { error }))
    }

    fn resolve(&mut self, expr: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
        if depth > MAX_DEPTH {
            let message = format!("the definitions that this uses are more than {MAX_DEPTH} operations deep");
            return Err(Box::new(Diagnostic::error(Code::TooLarge, expr.span, "too deep here", message)));
        }
        let next = depth + 1;
        let make = |node, ty, parts: &[&Resolved<'a>]| Resolved {
            node,
            expr,
            ty,
            depends: parts.iter().fold(0, |all, part| all | part.depends),
            depth: parts.iter().map(|part| part.depth + 1).max().unwrap_or(1),
        };
        let resolved = match &expr.kind {
            ExprKind::Integer(value) => make(Node::Constant(*value), Type::Number, &[]),
            ExprKind::Name(name) => return self.name(name, expr, next),
            ExprKind::Unary(op, operand) => {
                let ty = if *op == UnaryOp::Not { Type::Condition } else { Type::Number };
                let operand = self.typed(operand, ty, next)?;
                let shape = make(Node::Constant(0), ty, &[&operand]);
                Resolved { node: Node::Unary(*op, Box::new(operand)), ..shape }
            }
            ExprKind::Binary(op, left, right) => {
                let (operands, ty) = signature(*op);
                // `0 < x < M` counts no conditions.
                let compared = |fault: Fault| {
                    if ty == Type::Condition { Box::new(Diagnostic { fix: None, ..*fault }) } else { fault }
                };
                let left = self.typed(left, operands, next).map_err(compared)?;
                let right = self.typed(right, operands, next).map_err(compared)?;
                let shape = make(Node::Constant(0), ty, &[&left, &right]);
                Resolved { node: Node::Binary(*op, Box::new(left), Box::new(right)), ..shape }
            }
            ExprKind::If { condition, then, otherwise } => {
                let condition = self.typed(condition, Type::Condition, next)?;
                let then = self.resolve(then, next)?;
                let otherwise = self.typed(otherwise, then.ty, next)?;
                let shape = make(Node::Constant(0), then.ty, &[&condition, &then, &otherwise]);
                Resolved { node: Node::If(Box::new([condition, then, otherwise])), ..shape }
            }
            ExprKind::Call(call) => {
                let parts = call.arguments.iter().map(|argument| self.argument(call, argument, next));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                let shape = make(Node::Constant(0), Type::Number, &parts.iter().collect::<Vec<_>>());
                Resolved { node: function(call, parts)?, ..shape }
            }
            ExprKind::Decimal(value) if self.decimals != Decimals::Refused => {
                make(Node::Decimal(*value), Type::Number, &[])
            }
            ExprKind::Decimal(_) => {
                let error = wrong_type(expr.span, "a whole number", "a decimal");
                return Err(Box::new(
                    error.help("numbers are whole here: write a quotient, as in `D / 2` for half of `D`"),
                ));
            }
            ExprKind::List(_) | ExprKind::Range(..) => {
                let error = wrong_type(expr.span, "a whole number", "a list");
                let help = "lists stand behind `on`, for a stage on several devices at once; one of several numbers is \
                    `if s == 0 then 0 else 3`";
                return Err(Box::new(error.help(help)));
            }
        };
        Ok(if self.exact { resolved } else { folded(resolved) })
    }

    fn argument(&mut self, call: &Call, argument: &'a Argument, depth: u32) -> Result<Resolved<'a>, Fault> {
        if let Some(name) = &argument.name {
            return Err(Box::new(named_argument(call, name)));
        }
        self.typed(&argument.value, Type::Number, depth)
    }

    fn name(&mut self, name: &str, expr: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
        let leaf = |node, ty, depends, depth| Resolved { node, expr, ty, depends, depth };
        match self.meaning(name) {
            Some(Node::Let(slot)) => match self.definition(slot, depth) {
                Ok((ty, depends, depth)) => Ok(leaf(Node::Let(slot), ty, depends, depth + 1)),
                Err(Some(fault)) => Err(fault),
                Err(None) => {
                    let message = format!("`{name}` uses itself, directly or through others");
                    Err(Box::new(Diagnostic::error(Code::CyclicDefinition, expr.span, "used here again", message)))
                }
            },
            Some(Node::Variable(slot)) => {
                Ok(leaf(Node::Variable(slot), self.types[slot].unwrap_or(Type::Number), 1 << slot, 1))
            }
            Some(node) => Ok(leaf(node, Type::Number, 0, 1)),
            None => Err(self.unknown(name, expr.span)),
        }
    }

    /// Type, dependencies and depth of a `let`. No error of its own where it is the one being resolved.
    fn definition(&mut self, slot: usize, depth: u32) -> Result<(Type, u64, u32), Option<Fault>> {
        let Definition { expr, state } = &self.lets[slot];
        let expr: &'a Expr = expr;
        match state {
            State::Done(resolved) => return Ok((resolved.ty, resolved.depends, resolved.depth)),
            State::Started => return Err(None),
            State::Failed => return Ok((Type::Unknown, 0, 1)),
            State::Untouched => {}
        }
        self.lets[slot].state = State::Started;
        let resolved = self.resolve(expr, depth);
        let deepest = |resolved: &Resolved<'a>| resolved.depth.saturating_add(depth) <= MAX_DEPTH;
        match resolved {
            Ok(resolved) if deepest(&resolved) => {
                let summary = (resolved.ty, resolved.depends, resolved.depth);
                self.lets[slot].state = State::Done(resolved);
                Ok(summary)
            }
            Ok(_) => {
                self.lets[slot].state = State::Failed;
                let message =
                    format!("this and the definitions that it uses are more than {MAX_DEPTH} operations deep");
                Err(Some(Box::new(Diagnostic::error(Code::TooLarge, expr.span, "too deep", message))))
            }
            Err(fault) => {
                self.lets[slot].state = State::Failed;
                Err(Some(fault))
            }
        }
    }

    fn unknown(&self, name: &str, span: Span) -> Fault {
        let known = self.variables.keys().chain(self.names.keys()).chain(self.constants.keys()).map(String::as_str);
        let error = unknown_name(name, span, known);
        Box::new(match foreign(name) {
            Some(help) => Diagnostic { fix: None, ..error }.help(help),
            None => error,
        })
    }
}

/// The edit that makes a number of a condition.
fn counted(span: Span, error: Diagnostic) -> Diagnostic {
    let end = Span { start: span.end, ..span };
    error.edit(Span { end: span.start, ..span }, "(if ").edit(end, " then 1 else 0)")
}

/// What to write for a name that other systems give to a number.
fn foreign(name: &str) -> Option<&'static str> {
    Some(match name {
        "N" | "n" => "`M` is the number of microbatches, `D` of devices, `S` of stages",
        "num_microbatches" | "n_microbatches" | "microbatches" | "num_mb" => "`M` is the number of microbatches",
        "num_devices" | "n_devices" | "devices" | "world_size" | "pp_size" | "P" => "`D` is the number of devices",
        "num_stages" | "n_stages" | "stages" => "`S` is the number of stages",
        "rank" | "device" | "pp_rank" => "`d` is the device, inside `order d`",
        "m" | "mb" | "microbatch" => "a loop gives a number to each microbatch: `for m in 0..M { .. }`",
        "fill" => "a task in the first free slot is written without `at`: `W[s] fill`",
        "full" | "selective" => "`recompute all` lets every stage recompute",
        "True" | "true" | "False" | "false" => "a condition compares: `D == 4`",
        _ => return None,
    })
}

/// What to write for a function that other languages have.
fn foreign_function(name: &str) -> Option<&'static str> {
    Some(match name {
        "floor" | "int" | "trunc" => "in a schedule `/` rounds down: leave the function out",
        "ceil" | "ceildiv" | "cdiv" => "`(a + b - 1) / b` rounds `a / b` up, in a schedule",
        "len" => "`S` is the number of stages, `D` of devices, `M` of microbatches",
        "pow" => "there are no powers; write a product",
        _ => return None,
    })
}

/// What an operator takes and gives.
const fn signature(op: BinaryOp) -> (Type, Type) {
    match op {
        BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Modulo => {
            (Type::Number, Type::Number)
        }
        BinaryOp::And | BinaryOp::Or => (Type::Condition, Type::Condition),
        BinaryOp::Equal
        | BinaryOp::NotEqual
        | BinaryOp::Less
        | BinaryOp::LessEqual
        | BinaryOp::Greater
        | BinaryOp::GreaterEqual => (Type::Number, Type::Condition),
    }
}

fn function<'a>(call: &Call, mut parts: Vec<Resolved<'a>>) -> Result<Node<'a>, Fault> {
    let wrong = |takes: &str| Box::new(wrong_count(call, takes));
    match call.name.text.as_str() {
        "min" if !parts.is_empty() => Ok(Node::Min(parts)),
        "max" if !parts.is_empty() => Ok(Node::Max(parts)),
        "min" | "max" => Err(wrong("one number or more")),
        "abs" => match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => Ok(Node::Abs(Box::new(only))),
            _ => Err(wrong("one number")),
        },
        name => {
            let error = unknown_function(&call.name, ["min", "max", "abs"]);
            Err(Box::new(match foreign_function(name) {
                Some(help) => Diagnostic { fix: None, ..error }.help(help),
                None => error,
            }))
        }
    }
}

/// Replaces an operation on constants by its result, where it has one; an error waits until the value is asked for.
fn folded(resolved: Resolved<'_>) -> Resolved<'_> {
    let value = match &resolved.node {
        Node::Unary(op, operand) => match operand.node {
            Node::Constant(operand) => operand.unary(*op, Decimals::Refused).ok(),
            _ => None,
        },
        Node::Binary(op, left, right) => match (&left.node, &right.node) {
            (Node::Constant(left), Node::Constant(right)) => left.binary(*op, *right, Decimals::Refused).ok(),
            _ => None,
        },
        _ => None,
    };
    match value {
        Some(value) => Resolved { node: Node::Constant(value), ..resolved },
        None => resolved,
    }
}
