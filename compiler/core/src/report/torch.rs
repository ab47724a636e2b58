//! What a schedule of PyTorch was read as.

use pipe_syntax::torch::table::Table;
use pipe_syntax::torch::transport::Transport;
use pipe_syntax::torch::{Runtime, transports};
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
    /// The transports with which every rank comes to the end of its row: `eager`, `pair`, `edge`.
    pub transports: Vec<&'static str>,
    /// The same where PyTorch defers receives (`defer_pp_recv`); none where it does not insert the transfers, or the
    /// version has no such option.
    pub transports_deferred: Option<Vec<&'static str>>,
}

impl TorchReport {
    /// That of a table.
    pub fn new(table: &Table, runtime: Runtime) -> Self {
        let version = runtime.version.unwrap_or_else(|| table.version());
        let words = |transports: Vec<Transport>| transports.into_iter().map(Transport::word).collect();
        let (runs, deferred) = transports(table, version);
        Self {
            form: if table.has_transfers() { "transfers" } else { "tasks" },
            version: version.to_string(),
            ranks: table.rows.len(),
            actions: table.actions().count(),
            transfers: table.actions().filter(|(_, _, action, _)| action.is_send()).count(),
            transports: words(runs),
            transports_deferred: deferred.map(words),
        }
    }
}
