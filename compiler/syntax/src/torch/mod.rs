//! Schedules in the form of PyTorch's pipelining: a row per rank, a cell per action, no header
//! (`torch.distributed.pipelining.schedules`, `_PipelineScheduleRuntime._load_csv`).
//!
//! `read` parses such a text, and `syntax` makes a schedule of the language of it, so that every check of ours holds
//! for it as well. `transfers`, `loss` and `gradients` check what PyTorch would do with the rest, `lowered` where it
//! would insert transfers into a table that has none.

pub mod action;
mod complete;
mod deadlock;
pub mod gatherings;
mod gradients;
mod loss;
pub mod lowered;
pub mod read;
mod syntax;
pub mod table;
mod transfers;
pub mod transport;
pub mod version;
pub mod words;

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use table::Table;
use transport::Transport;
use version::Version;

/// What is to run a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Runtime {
    /// The version of PyTorch; otherwise the newest one that has the table's words.
    pub version: Option<Version>,
    /// How ranks send to each other, if that was said.
    pub transport: Option<Transport>,
}

impl From<Version> for Runtime {
    fn from(version: Version) -> Self {
        Self { version: Some(version), transport: None }
    }
}

/// Everything that keeps the tasks of a table from being those of a step, but for kinds that a stage never runs.
pub fn incomplete(table: &Table) -> Diagnostics {
    complete::check(table)
}

/// Everything that PyTorch would do wrong, or not at all, with a schedule of which each task is
/// sound: warnings and notes, and the verdict.
///
/// # Errors
/// Every violation, where a step would stop or compute something else.
pub fn check(table: &Table, runtime: Runtime) -> (Diagnostics, Result<(), Diagnostics>) {
    let is_asked = runtime.version.is_some();
    let version = runtime.version.unwrap_or_else(|| table.version());
    let (mut found, mut warnings) = (loss::check(table), Diagnostics::new());
    found.extend(version::check(table, version));
    let transfers = if table.has_transfers() { transfers::check(table) } else { Diagnostics::new() };
    // What waits for a transfer that is missing is told once that is there.
    let is_told = |one: &Diagnostic| one.code != Code::MissingWait || transfers.is_empty();
    for one in gradients::check(table, version, is_asked).into_iter().filter(is_told) {
        if one.severity.is_error() { &mut found } else { &mut warnings }.push(one);
    }
    if !table.has_transfers() {
        if found.is_empty() {
            warnings.extend(lowered::check(table, version, runtime.transport));
        }
    } else {
        found.extend(transfers);
        // Who waits for whom is known where everything has what it waits for.
        if found.is_empty() {
            found = deadlock::check(table, runtime.transport.unwrap_or_default());
        }
    }
    (warnings, if found.is_empty() { Ok(()) } else { Err(found) })
}

/// The transports with which ranks come to the end of a sound table: with its own transfers, or with those that
/// PyTorch inserts. And, where PyTorch inserts them and can defer receives, those with which it runs then.
pub fn transports(table: &Table, version: Version) -> (Vec<Transport>, Option<Vec<Transport>>) {
    if table.has_transfers() {
        return (deadlock::runs_with(table), None);
    }
    let runs =
        |defers| lowered::lowered(table, version, defers).map_or_else(Vec::new, |table| lowered::runs_with(&table));
    (runs(false), version.defers().then(|| runs(true)))
}
