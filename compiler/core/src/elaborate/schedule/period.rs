//! After how many microbatches a number repeats, whatever the number of microbatches: read off the
//! expression, not off its values.
//!
//! An expression `f` with period `p` and drift `d` has `f(m + p) = f(m) + d` for every `m`.
//! Microbatch `m` itself has period 1 and drift 1; sums add drifts, `f / c` and `f % c` go on until
//! the drift is a multiple of `c`, and whatever compares needs equal drifts. A device repeats if
//! its number has no drift.

use super::Writer;
use pipe_schedule::ratio::gcd;
use pipe_syntax::ast::BinaryOp;
use pipe_syntax::expr::lists::List;
use pipe_syntax::expr::scope::{Node, Resolved, State};

/// The longest period that is of use.
const LONGEST: u64 = 1 << 20;

/// How an expression goes on with the microbatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wave {
    period: u64,
    drift: i128,
}

const CONSTANT: Wave = Wave { period: 1, drift: 0 };

impl Wave {
    /// The same over a multiple of its period.
    fn over(self, period: u64) -> Self {
        Self { period, drift: self.drift * i128::from(period / self.period) }
    }

    /// Without drift.
    fn steady(self) -> Option<Self> {
        (self.drift == 0).then_some(self)
    }

    /// Over so many periods that the drift is a multiple of `divisor`; the drift is then counted in divisors.
    fn divided(self, divisor: i64) -> Option<Self> {
        let size = u128::from(divisor.unsigned_abs());
        let turns = size.checked_div(gcd(size, self.drift.unsigned_abs()))?;
        let period = u64::try_from(turns).ok()?.checked_mul(self.period).filter(|period| *period <= LONGEST)?;
        let all = self.over(period);
        Some(Self { period, drift: all.drift.checked_div(i128::from(divisor))? })
    }
}

/// After how many microbatches a number repeats at the latest, at the values that all other variables have now. None
/// where that is not clear.
pub(super) fn period<'a>(writer: &mut Writer<'a>, code: &Resolved<'a>, microbatch: usize) -> Option<u32> {
    let wave = wave(writer, code, microbatch)?.steady()?;
    u32::try_from(wave.period).ok()
}

/// The least common multiple of two periods, if it is not too long.
pub(in crate::elaborate) fn common(one: u64, other: u64) -> Option<u64> {
    let divisor = u64::try_from(gcd(u128::from(one), u128::from(other))).ok()?;
    one.checked_div(divisor)?.checked_mul(other).filter(|period| *period <= LONGEST)
}

fn wave<'a>(writer: &mut Writer<'a>, code: &Resolved<'a>, microbatch: usize) -> Option<Wave> {
    if code.depends >> microbatch & 1 == 0 {
        return Some(CONSTANT);
    }
    match &code.node {
        Node::Constant(_) | Node::Decimal(_) => Some(CONSTANT),
        Node::Variable(slot) => Some(if *slot == microbatch { Wave { period: 1, drift: 1 } } else { CONSTANT }),
        Node::Let(slot) => {
            let State::Done(resolved) = writer.scope.lets.get(*slot)?.state.clone() else { return None };
            wave(writer, &resolved, microbatch)
        }
        Node::Unary(_, operand) => {
            let operand = wave(writer, operand, microbatch)?;
            Some(Wave { drift: -operand.drift, ..operand })
        }
        Node::Binary(op, left, right) => binary(writer, *op, [left, right], microbatch),
        Node::If(parts) => {
            let [condition, then, otherwise] = &**parts;
            let condition = wave(writer, condition, microbatch)?.steady()?;
            let value = alike(writer, [then, otherwise], microbatch)?;
            Some(value.over(common(condition.period, value.period)?))
        }
        Node::Min(parts) | Node::Max(parts) => alike(writer, parts, microbatch),
        Node::Abs(operand) => wave(writer, operand, microbatch)?.steady(),
        Node::Index(parts) => {
            let [list, position] = &**parts;
            alike_steady(writer, [list, position], microbatch)
        }
        Node::List(List::Items(items)) => alike_steady(writer, items, microbatch),
        Node::List(List::Each { ends, item, .. }) => alike_steady(writer, ends.iter().chain([&**item]), microbatch),
        // What the parameters are given repeats, and for each of them so does the value.
        Node::Call(slot, arguments) => {
            let definition = writer.scope.lets.get(*slot)?;
            let State::Done(value) = definition.state.clone() else { return None };
            let defaults: Vec<Resolved<'a>> = definition.parameters.iter().filter_map(|(_, it)| it.clone()).collect();
            alike_steady(writer, arguments.iter().flatten().chain(&defaults).chain([&value]), microbatch)
        }
    }
}

/// What repeats as soon as all of some expressions do, if each of them does.
fn alike_steady<'w, 'a: 'w>(
    writer: &mut Writer<'a>,
    parts: impl IntoIterator<Item = &'w Resolved<'a>>,
    microbatch: usize,
) -> Option<Wave> {
    let mut period = 1;
    for part in parts {
        period = common(period, wave(writer, part, microbatch)?.steady()?.period)?;
    }
    Some(Wave { period, drift: 0 })
}

/// Several expressions over a common period, if they drift alike.
fn alike<'w, 'a: 'w>(
    writer: &mut Writer<'a>,
    parts: impl IntoIterator<Item = &'w Resolved<'a>>,
    microbatch: usize,
) -> Option<Wave> {
    let mut all: Option<Wave> = None;
    for part in parts {
        let part = wave(writer, part, microbatch)?;
        let before = all.unwrap_or(part);
        let period = common(before.period, part.period)?;
        all = Some(before.over(period)).filter(|before| *before == part.over(period));
        all?;
    }
    all
}

fn binary<'a>(
    writer: &mut Writer<'a>,
    op: BinaryOp,
    [left, right]: [&Resolved<'a>; 2],
    microbatch: usize,
) -> Option<Wave> {
    let is_free = |code: &Resolved<'a>| code.depends >> microbatch & 1 == 0;
    let (one, other) = (wave(writer, left, microbatch)?, wave(writer, right, microbatch)?);
    let period = common(one.period, other.period)?;
    let (one, other) = (one.over(period), other.over(period));
    match op {
        BinaryOp::Add => Some(Wave { period, drift: one.drift.checked_add(other.drift)? }),
        BinaryOp::Subtract => Some(Wave { period, drift: one.drift.checked_sub(other.drift)? }),
        BinaryOp::Multiply if is_free(right) => scaled(writer, one, right),
        BinaryOp::Multiply if is_free(left) => scaled(writer, other, left),
        BinaryOp::Divide if is_free(right) => one.divided(writer.eval(right).ok()?),
        BinaryOp::Modulo if is_free(right) => {
            let divided = one.divided(writer.eval(right).ok()?)?;
            Some(Wave { drift: 0, ..divided })
        }
        BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Modulo | BinaryOp::And | BinaryOp::Or => {
            one.steady().and(other.steady())
        }
        BinaryOp::Equal
        | BinaryOp::NotEqual
        | BinaryOp::Less
        | BinaryOp::LessEqual
        | BinaryOp::Greater
        | BinaryOp::GreaterEqual => (one.drift == other.drift).then_some(Wave { period, drift: 0 }),
    }
}

fn scaled<'a>(writer: &mut Writer<'a>, wave: Wave, factor: &Resolved<'a>) -> Option<Wave> {
    let factor = writer.eval(factor).ok()?;
    Some(Wave { drift: wave.drift.checked_mul(i128::from(factor))?, ..wave })
}
