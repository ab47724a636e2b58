//! What help says of a schedule that is a table of PyTorch: of rows and cells, where sources have loops and orders.

use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use pipe_syntax::torch::table::Table;

/// The same findings, with help about the cells of a table.
pub(crate) fn with_help(mut found: Diagnostics, table: &Table) -> Diagnostics {
    for one in &mut found {
        one.help = help(one, table).or_else(|| one.help.take());
    }
    found
}

fn help(found: &Diagnostic, table: &Table) -> Option<String> {
    let row = row(found.labels.first()?.span, table)?;
    match found.code {
        Code::MissingTask => Some(format!(
            "every microbatch needs each task once: add the missing cells to row {row} (rank {})",
            row - 1
        )),
        Code::WrongDevice => Some(
            "PyTorch places a stage on the rank of its first cell: move the other cells to that row, or correct their stage"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The number of the row in which a cell stands, from 1 on.
fn row(cell: Span, table: &Table) -> Option<usize> {
    let is_in = |row: Span| row.file == cell.file && (row.start..=row.end).contains(&cell.start);
    table.rows.iter().position(|row| is_in(row.span)).map(|row| row + 1)
}
