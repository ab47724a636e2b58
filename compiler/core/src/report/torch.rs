//! What a schedule of PyTorch was read as.

use pipe_syntax::torch::table::Table;
use pipe_syntax::torch::version::Version;
use serde::Serialize;

/// The form of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TorchReport {
    /// `tasks`, where PyTorch puts transfers in itself, or `transfers`.
    pub form: &'static str,
    /// The version that it is judged for: the one that was asked for, or the newest one whose form it has.
    pub version: String,
    /// Ranks.
    pub ranks: usize,
    /// Actions of all ranks; a pair is two.
    pub actions: usize,
    /// Transfers among them: sends with their receives, each pair counted once.
    pub transfers: usize,
}

impl TorchReport {
    /// That of a table.
    pub fn new(table: &Table, version: Option<Version>) -> Self {
        Self {
            form: if table.has_transfers() { "transfers" } else { "tasks" },
            version: version.unwrap_or_else(|| table.version()).to_string(),
            ranks: table.rows.len(),
            actions: table.actions().count(),
            transfers: table.actions().filter(|(_, _, action, _)| action.is_send()).count(),
        }
    }
}
