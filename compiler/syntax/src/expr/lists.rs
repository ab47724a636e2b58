//! Lists: numbers by position, written out or by a rule, and lists of lists.
//!
//! A list has no value of its own. Of a list that is read at a position, the number there is computed, and no other.

use super::arithmetic::Arithmetic;
use super::errors::wrong_type;
use super::evaluate::Machine;
use super::functions::summary;
use super::scope::{Fault, Node, Resolved, Scope, State, Type};
use crate::ast::{Expr, ExprKind, Name};
use crate::diagnostic::{Code, Diagnostic};
use crate::limits::within;
use crate::source::Span;

/// What a list says.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Each number.
    Items(Vec<Resolved<'a>>),
    /// A rule for all of them.
    Each {
        /// What counts them.
        variable: usize,
        /// Its first number, and one past its last one.
        ends: Box<[Resolved<'a>; 2]>,
        /// What each of them is.
        item: Box<Resolved<'a>>,
    },
}

/// A position that is read, and where that was written.
type Position<'r, 'a, N> = (N, &'r Resolved<'a>);

impl<'a> Scope<'a> {
    /// `[4, 6, 6, 2]`
    pub(super) fn list(&mut self, items: &'a [Expr], expr: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
        let mut parts: Vec<Resolved<'a>> = Vec::with_capacity(items.len());
        for item in items {
            let wanted = parts.first().map(|first| first.ty);
            parts.push(match wanted {
                Some(wanted) => self.typed(item, wanted, depth)?,
                None => self.member(item, depth)?,
            });
        }
        let (depends, depth) = summary(parts.iter());
        let ty = list_of(parts.first().map_or(Type::Number, |first| first.ty));
        Ok(Resolved { node: Node::List(List::Items(parts)), expr, ty, depends, depth })
    }

    /// `[2 * k for k in 0..D]`
    pub(super) fn each(
        &mut self,
        (item, variable): (&'a Expr, &'a Name),
        [start, end]: [&'a Expr; 2],
        expr: &'a Expr,
        depth: u32,
    ) -> Result<Resolved<'a>, Fault> {
        let ends = [self.typed(start, Type::Number, depth)?, self.typed(end, Type::Number, depth)?];
        let variable = self.enter_local(variable)?;
        let item = self.member(item, depth);
        self.leave_local();
        let item = item?;
        let (within, depth) = summary(ends.iter().chain([&item]));
        let (outside, _) = summary(ends.iter());
        let (ty, depends) = (list_of(item.ty), outside | within & !(1 << variable));
        let list = List::Each { variable, ends: Box::new(ends), item: Box::new(item) };
        Ok(Resolved { node: Node::List(list), expr, ty, depends, depth })
    }

    /// `table[position]`
    pub(super) fn index(
        &mut self,
        list: &'a Expr,
        position: &'a Expr,
        expr: &'a Expr,
        depth: u32,
    ) -> Result<Resolved<'a>, Fault> {
        let list = self.resolve(list, depth).map_err(|fault| not_needed(fault, [list, position], expr))?;
        let ty = match list.ty {
            Type::List(1) => Type::Number,
            Type::List(deep) => Type::List(deep - 1),
            Type::Unknown => Type::Unknown,
            found => {
                let error = wrong_type(list.expr.span, "a list", found.phrase());
                return Err(Box::new(error.help("only a list is read by position, as in `[4, 6, 6, 2][s]`")));
            }
        };
        let position = self.typed(position, Type::Number, depth)?;
        let (depends, depth) = summary([&list, &position].into_iter());
        Ok(Resolved { node: Node::Index(Box::new([list, position])), expr, ty, depends, depth })
    }

    /// Resolves an expression that must give a list of numbers.
    pub(super) fn numbers(&mut self, expr: &'a Expr) -> Result<Resolved<'a>, Fault> {
        let resolved = self.resolve(expr, 0)?;
        if resolved.ty == Type::List(1) {
            return Ok(resolved);
        }
        let error = wrong_type(expr.span, "a list of numbers", resolved.ty.phrase());
        Err(Box::new(error.help("write several numbers in square brackets: `[6, 5, 4, 3]`")))
    }

    /// Resolves an expression that must give a number, or a list of them.
    ///
    /// # Errors
    /// Names that mean nothing, conditions, and lists of lists.
    pub fn number_or_list(&mut self, expr: &'a Expr) -> Result<Resolved<'a>, Fault> {
        let resolved = self.resolve(expr, 0)?;
        if matches!(resolved.ty, Type::List(_)) { self.numbers(expr) } else { self.number(expr) }
    }

    /// A number or a list.
    fn member(&mut self, item: &'a Expr, depth: u32) -> Result<Resolved<'a>, Fault> {
        let resolved = self.resolve(item, depth)?;
        if resolved.ty == Type::Condition { self.typed(item, Type::Number, depth) } else { Ok(resolved) }
    }
}

/// The error of a list that nobody declared: devices and stages are numbers, and need none.
fn not_needed(fault: Fault, [list, position]: [&Expr; 2], expr: &Expr) -> Fault {
    let is_meant = fault.fix.is_some();
    let is_unknown =
        !is_meant && fault.code == Code::UnknownName && fault.labels.first().is_some_and(|it| it.span == list.span);
    let (true, ExprKind::Name(name)) = (is_unknown, &list.kind) else { return fault };
    let help = format!("declare it, as in `let {name} = [0, 2, 1]`; devices and stages by themselves are numbers");
    let (start, end) = (expr.span.start, expr.span.end);
    let before = Span { end: position.span.start, start, ..expr.span };
    let error = Diagnostic { fix: None, help: None, ..*fault };
    Box::new(error.help(help).edit(before, "").edit(Span { start: position.span.end, end, ..expr.span }, ""))
}

const fn list_of(item: Type) -> Type {
    match item {
        Type::List(deep) => Type::List(deep + 1),
        Type::Unknown => Type::Unknown,
        Type::Number | Type::Condition => Type::List(1),
    }
}

impl<N: Arithmetic> Machine<N> {
    /// Every number of a list, each a whole one, and where it was written.
    ///
    /// # Errors
    /// More numbers than `most`, fractions, and what [`Self::eval`] fails on.
    pub fn numbers<'a>(
        &mut self,
        scope: &Scope<'a>,
        list: &Resolved<'a>,
        most: u32,
    ) -> Result<Vec<(i64, Span)>, Fault> {
        match &list.node {
            Node::List(List::Items(items)) => {
                items.iter().map(|item| Ok((self.whole(scope, item)?, item.expr.span))).collect()
            }
            Node::List(List::Each { variable, ends, item }) => {
                let [start, end] = [self.whole(scope, &ends[0])?, self.whole(scope, &ends[1])?];
                within("numbers", end.saturating_sub(start).max(0), 0..=most, ends[1].expr.span)?;
                let before = self.get(*variable);
                let numbers = (start..end).map(|number| {
                    self.set(*variable, N::whole(number));
                    Ok((self.whole(scope, item)?, item.expr.span))
                });
                let numbers = numbers.collect();
                self.restore(*variable, before);
                numbers
            }
            Node::If(parts) => {
                let branch = self.branch(scope, parts)?;
                self.numbers(scope, branch, most)
            }
            Node::Let(slot) => match &scope.lets[*slot].state {
                State::Done(value) => self.numbers(scope, value, most),
                _ => Err(Box::new(wrong_type(list.expr.span, "a list", "something unknown"))),
            },
            _ => {
                let message = "the numbers of this list have to be written out here";
                let error = Diagnostic::error(Code::WrongType, list.expr.span, "read from another list", message);
                Err(Box::new(error.help("write them in square brackets: `[6, 5, 4, 3]`")))
            }
        }
    }

    /// The number of a list at some positions, one for each list inside of another.
    pub(super) fn read<'a>(
        &mut self,
        scope: &Scope<'a>,
        list: &Resolved<'a>,
        positions: &[Position<'_, 'a, N>],
    ) -> Result<N, Fault> {
        let Some((first, others)) = positions.split_first() else { return self.eval(scope, list) };
        match &list.node {
            Node::List(List::Items(items)) => {
                let position = self.position(scope, list, items.len() as u64, *first)?;
                self.read(scope, &items[position as usize], others)
            }
            Node::List(List::Each { variable, ends, item }) => {
                let [start, end] = [self.eval(scope, &ends[0])?, self.eval(scope, &ends[1])?];
                let (Some(start), Some(end)) = (start.as_whole(), end.as_whole()) else {
                    let place = if start.as_whole().is_none() { &ends[0] } else { &ends[1] };
                    return Err(Box::new(wrong_type(place.expr.span, "a whole number", "a fraction")));
                };
                let length = end.saturating_sub(start).try_into().unwrap_or(0);
                let position = self.position(scope, list, length, *first)?;
                let before = self.get(*variable);
                // Within the range, so no overflow.
                self.set(*variable, N::whole(start.saturating_add_unsigned(position)));
                let result = self.read(scope, item, others);
                self.restore(*variable, before);
                result
            }
            Node::If(parts) => {
                let branch = self.branch(scope, parts)?;
                self.read(scope, branch, positions)
            }
            Node::Index(parts) => {
                let [list, position] = &**parts;
                let outer = (self.eval(scope, position)?, position);
                self.read(scope, list, &[&[outer], positions].concat())
            }
            Node::Let(slot) => match &scope.lets[*slot].state {
                State::Done(value) => {
                    self.spend(1, list.expr)?;
                    self.read(scope, value, positions)
                }
                _ => Err(Box::new(wrong_type(list.expr.span, "a list", "something unknown"))),
            },
            Node::Call(slot, arguments) => self
                .within(scope, (*slot, arguments), list.expr, |machine, value| machine.read(scope, value, positions)),
            _ => Err(Box::new(wrong_type(list.expr.span, "a list", list.ty.phrase()))),
        }
    }

    /// Rule: a position lies in its list.
    fn position<'a>(
        &mut self,
        scope: &Scope<'a>,
        list: &Resolved<'a>,
        length: u64,
        (value, written): Position<'_, 'a, N>,
    ) -> Result<u64, Fault> {
        let position = value.as_whole().and_then(|value| u64::try_from(value).ok());
        if let Some(position) = position.filter(|position| *position < length) {
            return Ok(position);
        }
        let (plural, known) = match length {
            0 => ("s", String::new()),
            1 => ("", ": its position is 0".to_owned()),
            _ => ("s", format!(": positions are 0 to {}", length - 1)),
        };
        let message = format!("position {value} of a list of {length} number{plural}{known}");
        let error = Diagnostic::error(Code::OutOfRange, written.expr.span, format!("this is {value}"), message);
        let error = error.label(list.expr.span, format!("has {length} number{plural}"));
        Err(self.explained(scope, written.expr, error))
    }
}
