//! Checks: one file per rule. Each reports every violation that it finds, and hands what it proved on as evidence.

pub mod collisions;
pub mod completeness;
mod deadlock;
pub mod dependencies;
pub mod lint;
mod meetings;
pub mod memory;
pub mod placement;
pub mod requirements;
pub mod starts;
mod step_tasks;
pub mod stuck;
mod swaps;
#[cfg(test)]
mod tests;
pub mod versions;

use crate::order::Order;
use crate::schedule::Schedule;
use pipe_syntax::diagnostic::Diagnostics;

/// Proves that a schedule is complete and runs to its end, or says everything that speaks against it.
///
/// # Errors
/// Every violation of every rule whose premises hold.
pub fn check(schedule: &Schedule) -> Result<Order, Diagnostics> {
    let mut found = Diagnostics::new();
    let table = completeness::check(schedule).map_err(|more| found.extend(more)).ok();
    found.extend(placement::check(schedule).err().into_iter().flatten());
    found.extend(collisions::check(schedule).err().into_iter().flatten());
    found.extend(starts::check(schedule).err().into_iter().flatten());
    match table {
        Some(table) if found.is_empty() => dependencies::check(schedule, table),
        _ => Err(found),
    }
}
