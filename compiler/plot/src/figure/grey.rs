//! What tells kinds apart on paper, where their colours may be printed in grey: a line at the foot of a `B`, and one
//! at the head of an `R`. `F` is darker than both and `W` lighter; a fused backward is divided.

use super::scene::{Fill, Paint, Part};
use super::sizes::{Medium, Sizes};
use pipe_ir::task::TaskKind;

/// Draws the line of a kind, if it has one, on a task or a box of the legend: its left edge, upper edge, width, height.
pub(super) fn draw(
    part: &mut Part,
    (kind, fill): (TaskKind, Option<Fill>),
    [x, y, width, height]: [f64; 4],
    sizes: &Sizes,
) {
    let Some(Fill::Plain(colour)) = fill.filter(|_| sizes.medium == Medium::Paper) else { return };
    let stroke = (0.12 * height).min(2.5 * sizes.hair);
    let place = match kind {
        TaskKind::BackwardInput => y + height - 1.5 * stroke,
        TaskKind::Recompute => y + 1.5 * stroke,
        TaskKind::Forward | TaskKind::Backward | TaskKind::BackwardWeight | TaskKind::Update => return,
    };
    let inset = (2.0 * sizes.hair).min(0.2 * width);
    part.line([x + inset, place], [x + width - inset, place], Paint::line(colour.ink(), stroke));
}
