//! Scopes: what names mean. Expressions are resolved once, so that evaluating them looks nothing up.
//!
//! A name is a constant (a parameter, `D`, `M`), a `let` (evaluated where it is used, at most once
//! for each change of a variable that it depends on), a function or a variable (`s`, `d`, the number of a
//! loop), which has a value only where it is bound. Parameters of functions, and what counts the numbers of a list, are
//! variables that only their own text knows. What a file defines outside of its declarations sees only what stands
//! there, and `D`, `M` and `S`.

use super::arithmetic::{Arithmetic, Decimals};
use super::errors::{self, unknown_name, wrong_type};
use super::lists::List;
use crate::ast::{BinaryOp, Decimal, Expr, ExprKind, Function, FunctionBody, Name, UnaryOp};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;
use std::collections::BTreeMap;

/// The most variables of one scope: one bit each.
pub const MAX_VARIABLES: usize = 64;
/// How deep an expression may be, through all the `let`s that it uses.
const MAX_DEPTH: u32 = 300;
/// The variable that definitions of files know: how many stages there are.
const STAGES: &str = "S";

/// What an expression gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// A whole number.
    Number,
    /// True or false.
    Condition,
    /// Numbers by position, or lists of them: so many positions lead to a number.
    List(u32),
    /// Of a `let` whose own error is reported: fits everywhere, so that no other error follows from it.
    Unknown,
}

impl Type {
    pub(super) const fn phrase(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Condition => "a condition",
            Self::List(_) => "a list",
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
    pub(super) depth: u32,
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
    /// The function at this position, with its arguments: none where the default holds.
    Call(usize, Vec<Option<Resolved<'a>>>),
    /// Numbers by position.
    List(List<'a>),
    /// One of them: the list and the position.
    Index(Box<[Resolved<'a>; 2]>),
}

/// An error; boxed, because it is rare and results are many.
pub type Fault = Box<Diagnostic>;

/// What names mean at one place of the text.
#[derive(Debug, Default)]
pub struct Scope<'a> {
    constants: BTreeMap<String, i64>,
    names: BTreeMap<String, usize>,
    /// Every `let` and function.
    pub lets: Vec<Definition<'a>>,
    /// What files define, and the constants that are known there.
    shared: BTreeMap<String, usize>,
    shared_constants: BTreeMap<String, i64>,
    /// Whether a definition of a file is being resolved.
    is_shared: bool,
    /// Variables of functions and lists, by name, and those that the place at hand knows.
    locals: BTreeMap<String, usize>,
    pub(super) inside: Vec<(&'a str, usize)>,
    variables: BTreeMap<String, usize>,
    /// What each variable holds, once something said so.
    types: Vec<Option<Type>>,
    /// Whether `/` is exact, so that operations are left to [`Number`](super::number::Number)s.
    exact: bool,
    /// What decimals are.
    decimals: Decimals,
}

/// A `let` or a function.
#[derive(Debug)]
pub struct Definition<'a> {
    /// What it says.
    pub form: Form<'a>,
    /// How far it is resolved.
    pub state: State<'a>,
    /// Whether a file defines it, outside of its declarations.
    pub is_shared: bool,
    /// The variables of its parameters, with their defaults, once they are resolved.
    pub parameters: Vec<(usize, Option<Resolved<'a>>)>,
}

/// What a definition says.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// A value.
    Let(&'a Expr),
    /// A value, or statements, for its parameters.
    Function(&'a Function),
}

impl<'a> Form<'a> {
    /// The expression that its value comes from; none where it stands for statements.
    pub const fn value(self) -> Option<&'a Expr> {
        match self {
            Self::Let(value) | Self::Function(Function { body: FunctionBody::Value(value), .. }) => Some(value),
            Self::Function(_) => None,
        }
    }
}

/// What was known before a definition was entered.
#[derive(Debug)]
pub struct Outside<'a> {
    inside: Vec<(&'a str, usize)>,
    is_shared: bool,
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
    /// A function that stands for statements, whose parameters are resolved.
    Statements,
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
    pub fn add(&mut self, name: &str, form: Form<'a>) {
        self.constants.remove(name);
        self.names.insert(name.to_owned(), self.lets.len());
        self.lets.push(Definition { form, state: State::Untouched, is_shared: false, parameters: Vec::new() });
    }

    /// Adds what files define, which whatever has the same name hides, and the constants that are known there.
    pub fn share(
        &mut self,
        definitions: impl IntoIterator<Item = (&'a Name, Form<'a>)>,
        constants: BTreeMap<String, i64>,
    ) {
        self.shared_constants = constants;
        for (name, form) in definitions {
            self.shared.insert(name.text.clone(), self.lets.len());
            self.lets.push(Definition { form, state: State::Untouched, is_shared: true, parameters: Vec::new() });
        }
    }

    /// The slot of a variable, a new one where the name is new. None where there are too many.
    pub fn variable(&mut self, name: &str) -> Option<usize> {
        slot(&mut self.variables, &mut self.types, name)
    }

    /// The same of a variable that only the text inside of a function or list knows.
    pub(super) fn enter_local(&mut self, name: &'a Name) -> Result<usize, Fault> {
        if let Some(error) = errors::fixed(name) {
            return Err(Box::new(error));
        }
        let slot = slot(&mut self.locals, &mut self.types, &name.text).ok_or_else(|| {
            let message = format!("there are more than {MAX_VARIABLES} variables here");
            Box::new(Diagnostic::error(Code::TooLarge, name.span, "one too many", message))
        })?;
        self.set_type(slot, Type::Number);
        self.inside.push((&name.text, slot));
        Ok(slot)
    }

    /// Forgets the variable that was entered last.
    pub(super) fn leave_local(&mut self) {
        self.inside.pop();
    }

    /// Whether a name is a parameter of the function that is being resolved, or counts the numbers of a list.
    pub fn is_local(&self, name: &str) -> bool {
        self.inside.iter().any(|(known, _)| *known == name)
    }

    /// The variable of a function or list, of which several may have the same one.
    pub(super) fn local(&self, name: &str) -> Option<usize> {
        self.locals.get(name).copied()
    }

    /// From here on, names mean what they do inside of a definition.
    pub(super) fn enter(&mut self, is_shared: bool) -> Outside<'a> {
        let is_shared = std::mem::replace(&mut self.is_shared, is_shared);
        Outside { inside: std::mem::take(&mut self.inside), is_shared }
    }

    /// Names mean again what they did before.
    pub fn leave(&mut self, outside: Outside<'a>) {
        Outside { inside: self.inside, is_shared: self.is_shared } = outside;
    }

    /// Says what a variable holds; false where it holds something else elsewhere.
    pub fn set_type(&mut self, slot: usize, ty: Type) -> bool {
        ty == Type::Unknown || *self.types[slot].get_or_insert(ty) == ty
    }

    /// Says that nobody knows what a variable holds, after an error about it.
    pub fn forget_type(&mut self, slot: usize) {
        self.types[slot] = Some(Type::Unknown);
    }

    /// The value of a constant, or the slot of a `let`, function or variable, for notes beside an error.
    pub fn meaning(&self, name: &str) -> Option<Node<'a>> {
        let local = self.inside.iter().rev().find(|(known, _)| *known == name);
        if let Some((_, slot)) = local {
            return Some(Node::Variable(*slot));
        }
        let variable = || self.variables.get(name).map(|slot| Node::Variable(*slot));
        let shared = || self.shared.get(name).map(|slot| Node::Let(*slot));
        let constant = |of: &BTreeMap<String, i64>| of.get(name).map(|value| Node::Constant(*value));
        if self.is_shared {
            let fixed = variable().filter(|_| name == STAGES);
            return fixed.or_else(shared).or_else(|| constant(&self.shared_constants));
        }
        let definition = || self.names.get(name).map(|slot| Node::Let(*slot));
        variable().or_else(definition).or_else(|| constant(&self.constants)).or_else(shared)
    }

    /// Names that could be meant at the place at hand.
    pub(super) fn known(&self) -> impl Iterator<Item = &str> {
        let own = self.variables.keys().chain(self.names.keys()).chain(self.constants.keys());
        let own = own.filter(|_| !self.is_shared).chain(self.shared.keys());
        let stages = self.variables.keys().filter(|name| self.is_shared && *name == STAGES);
        let shared = self.shared_constants.keys().filter(|_| self.is_shared).chain(stages);
        own.chain(shared).map(String::as_str).chain(self.inside.iter().map(|(name, _)| *name))
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

    /// Resolves every `let` and every function for a value, used or not, and returns what is wrong with them: of what
    /// files define or of all others.
    pub fn resolve_lets(&mut self, shared: bool) -> Vec<Fault> {
        let wanted = |scope: &Self, slot: &usize| scope.lets[*slot].is_shared == shared;
        let wanted: Vec<usize> = (0..self.lets.len()).filter(|slot| wanted(self, slot)).collect();
        wanted.into_iter().filter_map(|slot| self.definition(slot, 0).err().flatten()).collect()
    }

    pub(super) fn typed(&mut self, expr: &'a Expr, wanted: Type, depth: u32) -> Result<Resolved<'a>, Fault> {
        let resolved = self.resolve(expr, depth)?;
        if [wanted, Type::Unknown].contains(&resolved.ty) || wanted == Type::Unknown {
            return Ok(resolved);
        }
        if let Type::List(_) = resolved.ty {
            return Err(Box::new(not_a_list(expr, wanted, self.exact)));
        }
        let help = match wanted {
            Type::List(_) => "only lists have positions: `[4, 6, 6, 2][s]`",
            Type::Number => "write `if condition then 1 else 0` to count with a condition",
            Type::Condition | Type::Unknown => "compare it, for example with `> 0`",
        };
        let error = wrong_type(expr.span, wanted.phrase(), resolved.ty.phrase()).help(help);
        Err(Box::new(if wanted == Type::Number { counted(expr.span, error) } else { error }))
    }

    pub(super) fn resolve(&mut self, expr: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
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
            ExprKind::Call(call) => self.called(call, expr, next)?,
            ExprKind::List(items) => self.list(items, expr, next)?,
            ExprKind::Each { item, variable, start, end } => self.each((item, variable), [start, end], expr, next)?,
            ExprKind::Index(list, position) => self.index(list, position, expr, next)?,
            ExprKind::Decimal(value) if self.decimals != Decimals::Refused => {
                make(Node::Decimal(*value), Type::Number, &[])
            }
            ExprKind::Decimal(_) => {
                let error = wrong_type(expr.span, "a whole number", "a decimal");
                return Err(Box::new(
                    error.help("numbers are whole here: write a quotient, as in `D / 2` for half of `D`"),
                ));
            }
            ExprKind::Behind(..) => {
                let error = wrong_type(expr.span, "a whole number", "a stage of an earlier microbatch");
                return Err(Box::new(error.help("`behind` stands in `reads`")));
            }
            ExprKind::Range(..) => {
                let error = wrong_type(expr.span, "a whole number", "a range");
                return Err(Box::new(error.help("ranges stand behind `on`, for a stage on several devices at once")));
            }
        };
        Ok(if self.exact { resolved } else { folded(resolved) })
    }

    fn name(&mut self, name: &str, expr: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
        let leaf = |node, ty, depends, depth| Resolved { node, expr, ty, depends, depth };
        match self.meaning(name) {
            Some(Node::Let(slot)) if let Form::Function(function) = self.lets[slot].form => {
                Err(Box::new(errors::without_arguments(function, expr.span)))
            }
            Some(Node::Let(slot)) => match self.definition(slot, depth) {
                Ok((ty, depends, depth)) => Ok(leaf(Node::Let(slot), ty, depends, depth + 1)),
                Err(Some(fault)) => Err(fault),
                Err(None) => Err(Box::new(errors::cyclic(name, expr.span))),
            },
            Some(Node::Variable(slot)) => {
                Ok(leaf(Node::Variable(slot), self.types[slot].unwrap_or(Type::Number), 1 << slot, 1))
            }
            Some(node) => Ok(leaf(node, Type::Number, 0, 1)),
            None => Err(self.unknown(name, expr.span)),
        }
    }

    /// Type, dependencies and depth of a `let` or a function's value. No error of its own where it is the one being
    /// resolved.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn definition(&mut self, slot: usize, depth: u32) -> Result<(Type, u64, u32), Option<Fault>> {
        let Definition { form, state, parameters, is_shared } = &self.lets[slot];
        let (form, is_shared) = (*form, *is_shared);
        match state {
            State::Done(resolved) => {
                return Ok((resolved.ty, without(resolved.depends, parameters), resolved.depth));
            }
            State::Started => return Err(None),
            State::Statements | State::Failed => return Ok((Type::Unknown, 0, 1)),
            State::Untouched => {}
        }
        self.lets[slot].state = State::Started;
        let outside = self.enter(is_shared);
        let resolved = self
            .parameters(slot, depth)
            .and_then(|()| form.value().map(|value| self.resolve(value, depth)).transpose());
        self.leave(outside);
        let Some(expr) = form.value() else {
            let resolved = resolved.map(|_| (Type::Unknown, 0, 1)).map_err(Some);
            self.lets[slot].state = if resolved.is_ok() { State::Statements } else { State::Failed };
            return resolved;
        };
        let deepest = |resolved: &Resolved<'a>| resolved.depth.saturating_add(depth) <= MAX_DEPTH;
        match resolved.map(|resolved| resolved.expect("its form has a value")) {
            Ok(resolved) if deepest(&resolved) => {
                let summary = (resolved.ty, without(resolved.depends, &self.lets[slot].parameters), resolved.depth);
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
        let error = unknown_name(name, span, self.known());
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
        "Q" | "num_slices" | "n_slices" => "`Q` is the number of slices, in a schedule with `slices`",
        "num_stages" | "n_stages" | "stages" => "`S` is the number of stages",
        "rank" | "device" | "pp_rank" => "`d` is the device, inside `order d`",
        "m" | "mb" | "microbatch" => "a loop gives a number to each microbatch: `for m in 0..M { .. }`",
        "fill" => "a task in the first free slot is written without `at`: `W[s] fill`",
        "full" | "selective" => "`recompute all` lets every stage recompute",
        "True" | "true" | "False" | "false" => "a condition compares: `D == 4`",
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

/// What stands where a number or a condition is needed, and is a list.
fn not_a_list(expr: &Expr, wanted: Type, is_exact: bool) -> Diagnostic {
    let error = wrong_type(expr.span, wanted.phrase(), Type::List(1).phrase());
    match &expr.kind {
        ExprKind::Name(name) => error.help(format!("write a position behind it, as in `{name}[0]`")),
        _ if is_exact => error.help("write one number"),
        _ => error.help(
            "one of its numbers is read by its position, as in `[0, 3][s]`; a list of devices is written out behind \
             `on`, for a stage on several devices at once",
        ),
    }
}

/// The slot of a name among others, a new one where the name is new. None where there are too many.
fn slot(names: &mut BTreeMap<String, usize>, types: &mut Vec<Option<Type>>, name: &str) -> Option<usize> {
    if let Some(slot) = names.get(name) {
        return Some(*slot);
    }
    let next = types.len();
    (next < MAX_VARIABLES).then(|| {
        names.insert(name.to_owned(), next);
        types.push(None);
        next
    })
}

/// Variables without those of parameters.
fn without(depends: u64, parameters: &[(usize, Option<Resolved<'_>>)]) -> u64 {
    parameters.iter().fold(depends, |depends, (slot, _)| depends & !(1 << slot))
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
