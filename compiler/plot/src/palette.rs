//! How kinds of tasks look and what they are called, in every form of a picture.

use pipe_ir::task::TaskKind;
use serde::Serialize;

/// A kind of task, as a picture has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kind {
    /// `F`, `B`, ..
    pub letters: &'static str,
    /// What it does.
    pub words: &'static str,
    /// `#3b6fb6`.
    pub colour: String,
}

/// Every kind, by [`TaskKind::index`].
pub fn kinds() -> Vec<Kind> {
    let kind = |kind: TaskKind| {
        let [red, green, blue] = colour(kind);
        Kind { letters: kind.letters(), words: words(kind), colour: format!("#{red:02x}{green:02x}{blue:02x}") }
    };
    TaskKind::ALL.map(kind).to_vec()
}

/// Red, green and blue of a kind on the first stage of its device; later stages are lighter.
pub const fn colour(kind: TaskKind) -> [u8; 3] {
    match kind {
        TaskKind::Forward => [59, 111, 182],
        TaskKind::BackwardInput | TaskKind::Backward => [34, 139, 121],
        TaskKind::BackwardWeight => [221, 146, 42],
        TaskKind::Recompute => [150, 92, 160],
        TaskKind::Update => [123, 135, 148],
    }
}

/// What a kind does.
pub const fn words(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Forward => "forward",
        TaskKind::BackwardInput => "backward for the input",
        TaskKind::BackwardWeight => "backward for the weights",
        TaskKind::Backward => "backward, both halves",
        TaskKind::Recompute => "recompute the forward",
        TaskKind::Update => "update",
    }
}
