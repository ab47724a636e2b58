//! Limits: what a schedule may ask for, and numbers within bounds.

use crate::diagnostic::{Code, Diagnostic};
use crate::expr::scope::Fault;
use crate::source::Span;
use std::ops::RangeInclusive;

/// The most devices.
pub const MAX_DEVICES: u32 = 65_536;
/// The most stages.
pub const MAX_STAGES: u32 = 1 << 20;
/// The most microbatches of a step.
pub const MAX_MICROBATCHES: u32 = 1 << 20;
/// The most slices of a microbatch.
pub const MAX_SLICES: u32 = 1 << 10;
/// The most tasks of a schedule: up to four gigabytes and twenty seconds to check. Fuzzers ask for
/// all that is allowed, so that they get less.
pub const MAX_TASKS: u64 = if cfg!(fuzzing) { 20_000 } else { 10_000_000 };
/// The most tasks of a turn that is written out for a certificate.
const MAX_TURN_TASKS: u64 = MAX_TASKS / 10;
/// The longest duration in a source, in millionths of the unit.
pub const MAX_COST: u64 = 1_000_000_000 * 1_000_000;
/// The latest start slot, the longest period and duration in slots.
pub const MAX_SLOT: i64 = 1 << 40;

/// A number that must lie within bounds. Above them it is too large, below them out of range.
pub fn within(what: &str, value: i64, bounds: RangeInclusive<u32>, span: Span) -> Result<u32, Fault> {
    let (low, high) = (*bounds.start(), *bounds.end());
    match u32::try_from(value) {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ if value > i64::from(high) => {
            let message = format!("{value} {what}; at most {high} are accepted");
            Err(Box::new(Diagnostic::error(Code::TooLarge, span, format!("this is {value}"), message)))
        }
        _ => {
            let message = format!("{value} {what}; there must be at least {low}");
            Err(Box::new(Diagnostic::error(Code::OutOfRange, span, format!("this is {value}"), message)))
        }
    }
}

/// Whether a turn of a block with so many tasks is written out.
pub fn is_turn(n_tasks: u128) -> bool {
    n_tasks <= u128::from(MAX_TURN_TASKS)
}

/// Refuses a turn of a block that would have too many tasks.
pub fn turn_tasks(n_tasks: u128, span: Span) -> Result<(), Fault> {
    tasks(n_tasks * u128::from(MAX_TASKS / MAX_TURN_TASKS), span)
}

/// Refuses a schedule that would have too many tasks, before any is made.
pub fn tasks(n_tasks: u128, span: Span) -> Result<(), Fault> {
    if n_tasks <= u128::from(MAX_TASKS) {
        return Ok(());
    }
    let message = format!("the schedule has {n_tasks} tasks or more; at most {MAX_TASKS} are accepted");
    Err(Box::new(Diagnostic::error(Code::TooLarge, span, "too many tasks", message)))
}

/// Collects errors: one for each place and rule, and not too many.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<Diagnostic>,
}

impl Report {
    /// Adds an error, unless its place has one with this code.
    pub fn add(&mut self, error: Diagnostic) {
        let place = |error: &Diagnostic| error.labels.first().map(|label| label.span);
        let known = |other: &Diagnostic| other.code == error.code && place(other) == place(&error);
        if self.errors.len() < 100 && !self.errors.iter().any(known) {
            self.errors.push(error);
        }
    }

    /// The value of something that may have gone wrong.
    pub fn take<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.add(*fault)).ok()
    }

    /// Adds several errors.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = Diagnostic>) {
        errors.into_iter().for_each(|error| self.add(error));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The errors.
    pub fn into_errors(self) -> Vec<Diagnostic> {
        self.errors
    }

    /// The value, if nothing went wrong.
    pub fn finish<T>(self, value: T) -> Result<T, Vec<Diagnostic>> {
        if self.errors.is_empty() { Ok(value) } else { Err(self.errors) }
    }
}
