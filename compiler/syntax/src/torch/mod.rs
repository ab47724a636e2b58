//! Schedules in the form of PyTorch's pipelining: a row per rank, a cell per action, no header
//! (`torch.distributed.pipelining.schedules`, `_PipelineScheduleRuntime._load_csv`).
//!
//! `read` parses such a text, and `syntax` makes a schedule of the language of it, so that every check of ours holds
//! for it as well. `transfers`, `loss` and `gradients` check what PyTorch would do with the rest, `lowered` where it
//! would insert transfers into a table that has none.

pub mod action;
mod deadlock;
pub mod gatherings;
mod gradients;
mod loss;
pub mod lowered;
pub mod read;
mod syntax;
pub mod table;
mod transfers;
pub mod version;

use crate::diagnostic::Diagnostics;
use table::Table;
use version::Version;

/// Everything that PyTorch would do wrong, or not at all, with a schedule of which each task is
/// sound: warnings and notes, and the verdict.
///
/// # Errors
/// Every violation, where a step would stop or compute something else.
pub fn check(table: &Table, version: Option<Version>) -> (Diagnostics, Result<(), Diagnostics>) {
    let is_asked = version.is_some();
    let version = version.unwrap_or_else(|| table.version());
    let (mut found, mut warnings) = (loss::check(table), Diagnostics::new());
    found.extend(version::check(table, version));
    for one in gradients::check(table, version, is_asked) {
        if one.severity.is_error() { &mut found } else { &mut warnings }.push(one);
    }
    if !table.has_transfers() {
        if found.is_empty() {
            warnings.extend(lowered::check(table, version));
        }
    } else {
        found.extend(transfers::check(table));
        // Who waits for whom is known where everything has what it waits for.
        if found.is_empty() {
            found = deadlock::check(table);
        }
    }
    (warnings, if found.is_empty() { Ok(()) } else { Err(found) })
}
