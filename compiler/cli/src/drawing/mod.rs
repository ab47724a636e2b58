//! Pictures of a timeline. Every form starts from the compiler's tracks, or from the picture that is made of them.

pub mod figure;
pub mod golden;
pub mod html;
pub mod terminal;

use pipe_ir::task::TaskKind;
pub use pipe_plot::render::svg;

/// The one letter that stands for a kind in pictures: both halves of a fused backward are a `B`.
pub fn letter(kind: TaskKind) -> char {
    match kind {
        TaskKind::Forward => 'F',
        TaskKind::BackwardInput | TaskKind::Backward => 'B',
        TaskKind::BackwardWeight => 'W',
        TaskKind::Recompute => 'R',
        TaskKind::Update => 'U',
    }
}
