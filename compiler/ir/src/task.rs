//! Tasks: the kinds of work that a schedule orders.

use crate::ids::{MicrobatchId, StageId};
use serde::{Deserialize, Serialize};
use std::fmt;

crate::words! {
    /// One kind of work of a stage. The letters follow the zero-bubble papers (arXiv 2401.10241): they are used in the
    /// language, in pictures and in exec names.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
    #[repr(u8)]
    pub enum TaskKind by letters from_letters {
        /// `F`: activations from activations.
        Forward "F"
        /// `B`: the gradient of the stage's input, and no weight gradient.
        BackwardInput "B"
        /// `W`: the weight gradients, from what `F` and `B` saved.
        BackwardWeight "W"
        /// `BW`: both halves of the backward pass, fused.
        Backward "BW"
        /// `R`: once more what `F` computed, for a backward pass whose `F` saved nothing but the stage's inputs.
        Recompute "R"
        /// `U`: the optimizer's update of the stage's weights, once per step.
        Update "U"
    }
}

impl TaskKind {
    /// Position in tables with one entry per kind.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One kind of work, of one stage, on one microbatch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Task {
    /// What is done.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: StageId,
    /// On which microbatch.
    pub microbatch: MicrobatchId,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.letters(), self.stage, self.microbatch)
    }
}
