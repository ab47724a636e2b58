//! What a device evicts and fetches, in a line of text for each way: the microbatch of each copy as far as it fits.

use super::colours::on_grey;
use super::scale::{BREAK, Piece};
use super::tasks::Style;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Direction;
use pipe_plot::tracks::Track;
use pipe_schedule::swaps::SwapKind;
use pipe_schedule::timing::timeline::Copied;

/// The names of the rows of a device.
pub(super) fn name(track: &Track, kind: SwapKind) -> String {
    format!("{} {}", track.name, kind.word())
}

/// The copies of a device that go one way and take time.
pub(super) fn copies(analysis: &Analysis, device: DeviceId, kind: SwapKind) -> Vec<&Copied> {
    let direction = match kind {
        SwapKind::Evict => Direction::DeviceToHost,
        SwapKind::Fetch => Direction::HostToDevice,
    };
    let is_own = |copy: &&Copied| {
        copy.device == device && copy.direction == direction && copy.swap.is_some() && copy.end > copy.start
    };
    analysis.timeline.copies.iter().filter(is_own).collect()
}

/// The row of some copies.
pub(super) fn row(style: &Style<'_>, analysis: &Analysis, copies: &[&Copied]) -> String {
    let pieces = style.scale.pieces.iter().map(|own| piece(style, analysis, copies, own));
    pieces.collect::<Vec<_>>().join(BREAK)
}

fn piece(style: &Style<'_>, analysis: &Analysis, copies: &[&Copied], piece: &Piece) -> String {
    let mut text = String::new();
    let mut column = 0;
    let idle = |from: usize, to: usize| -> String {
        let dot = |column: usize| style.scale.per_slot().is_none_or(|slot| column.is_multiple_of(slot));
        (from..to).map(|column| if dot(column) && !style.colours { '.' } else { ' ' }).collect()
    };
    for copy in copies {
        let (first, last) = (piece.column(copy.start).max(column), piece.column(copy.end));
        if last <= first {
            continue;
        }
        let (slices, columns) = (analysis.schedule.slices, last - first);
        let name = copy.swap.map(|(_, microbatch)| match slices.count() {
            1 => microbatch.0.to_string(),
            _ => format!("{}.{}", slices.microbatch(microbatch), slices.slice(microbatch)),
        });
        let name = name.filter(|name| name.len() <= columns).unwrap_or_default();
        text += &idle(column, first);
        text += &if style.colours { on_grey(&format!("{name:^columns$}")) } else { format!("{name:-<columns$}") };
        column = last;
    }
    text + &idle(column, piece.width())
}
