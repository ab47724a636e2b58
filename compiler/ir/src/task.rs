//! Tasks: the kinds of work that a schedule orders.

use crate::ids::{MicrobatchId, StageId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One kind of work of a stage. The letters follow the zero-bubble papers (arXiv 2401.10241).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum TaskKind {
    /// `F`: activations from activations.
    Forward,
    /// `B`: the gradient of the stage's input, and no weight gradient.
    BackwardInput,
    /// `W`: the weight gradients, from what `F` and `B` saved.
    BackwardWeight,
    /// `BW`: both halves of the backward pass, fused.
    Backward,
    /// `R`: once more what `F` computed, for a backward pass whose `F` saved nothing but the stage's inputs.
    Recompute,
    /// `U`: the optimizer's update of the stage's weights, once per step.
    Update,
}

impl TaskKind {
    /// Every kind, in the order of its discriminant.
    pub const ALL: [Self; 6] =
        [Self::Forward, Self::BackwardInput, Self::BackwardWeight, Self::Backward, Self::Recompute, Self::Update];

    /// The letters used in the language, in pictures and in exec names.
    #[must_use]
    pub const fn letters(self) -> &'static str {
        match self {
            Self::Forward => "F",
            Self::BackwardInput => "B",
            Self::BackwardWeight => "W",
            Self::Backward => "BW",
            Self::Recompute => "R",
            Self::Update => "U",
        }
    }

    /// The kind that these letters stand for.
    #[must_use]
    pub fn from_letters(letters: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letters() == letters)
    }

    /// Position in tables with one entry per kind.
    #[must_use]
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
