//! Schedules in the form of PyTorch's pipelining, as it is written: [`export`]. Reading is [`pipe_syntax::torch`].

pub mod export;
mod refusals;
pub mod titan;

use pipe_syntax::diagnostic::Diagnostics;
use pipe_syntax::torch::table::Table;
use pipe_syntax::torch::{incomplete, words};

/// What was found of a schedule that is a table, as one reads there: the cells that are missing or too many, or else
/// the same findings in the words of a table.
pub(crate) fn in_cells(found: Diagnostics, table: &Table) -> Diagnostics {
    let wrong = incomplete(table);
    if wrong.is_empty() { found.into_iter().map(words::told).collect() } else { wrong }
}
