//! Runs a schedule with a deadlock as far as it goes, to draw it. [`super::dependencies`] gives the verdict.

pub use super::deadlock::Wait;

use super::{completeness, deadlock, dependencies};
use crate::dependencies::Dependencies;
use crate::order::Order;
use crate::schedule::Schedule;

/// What runs of a schedule before all of its devices stand, and who waits for whom then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// What runs, each task after what it needs. It is evidence of no more than that.
    pub order: Order,
    /// By device: how many tasks of its order run.
    pub ran: Vec<usize>,
    /// The cycles of tasks that wait for each other, as the diagnostics tell them.
    pub cycles: Vec<Vec<Wait>>,
}

/// How far a schedule comes; none if it runs to its end, or lacks tasks.
pub fn stuck(schedule: &Schedule) -> Option<Stuck> {
    let table = completeness::check(schedule).ok()?;
    let dependencies = Dependencies::of(schedule);
    let progress = dependencies::run(schedule, &dependencies, &table);
    if progress.n_tasks == schedule.n_tasks() {
        return None;
    }
    let cycles = deadlock::knots(schedule, &dependencies, &table, &progress.next);
    let order = Order { sequence: progress.sequence, dependencies, table, versions: None };
    Some(Stuck { order, ran: progress.next, cycles })
}
