//! The bytes that the tasks of a stage keep for later tasks of their microbatch, or free.

use crate::policy::activation::Held;
use pipe_ir::task::TaskKind;

/// What a stage's tasks take, and give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saved {
    /// What a forward saves for `B`.
    pub for_input: i64,
    /// What a forward saves for `W`.
    pub for_weight: i64,
    /// What `B` keeps for its `W`.
    pub deferred: i64,
    /// What is kept from the forward on to be recomputed from, where the stage recomputes.
    pub input: Option<i64>,
    /// What is there all the time.
    pub kept: i64,
}

impl Saved {
    /// What a task of a kind takes, or gives back.
    pub fn takes(self, kind: TaskKind) -> i64 {
        let saved = self.for_input + self.for_weight;
        match kind {
            TaskKind::Forward => self.input.unwrap_or(saved),
            TaskKind::Recompute => saved - self.input.unwrap_or(saved),
            TaskKind::BackwardInput => self.deferred - self.for_input,
            TaskKind::BackwardWeight => -self.deferred - self.for_weight,
            TaskKind::Backward | TaskKind::Update => -saved,
        }
    }

    /// What the tasks of a stage take whose `R` runs right before the backward and counts as a part of it.
    pub fn takes_with_recomputation(self, kind: TaskKind) -> i64 {
        match kind {
            TaskKind::BackwardInput | TaskKind::Backward if self.input.is_some() => {
                self.takes(TaskKind::Recompute) + self.takes(kind)
            }
            _ => self.takes(kind),
        }
    }

    /// Lower bound on the bytes held for one microbatch: until the end of `B`, and from there to the end of `W`.
    /// It is no more than what `BW` holds.
    pub fn least(self) -> Held {
        let bytes = |bytes: i64| bytes.max(0).unsigned_abs();
        Held {
            saved: bytes(self.for_weight.saturating_add(self.for_input)),
            waiting: bytes(self.for_weight.saturating_add(self.for_input.min(self.deferred))),
        }
    }
}
