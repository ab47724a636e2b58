//! Sequence slices: how the stream of microbatches counts them, and what people call them.
//!
//! A microbatch may be cut in `Q` slices along its sequence. The compiler counts slices in one
//! stream: slice q of microbatch m is number m * Q + q, and has a [`MicrobatchId`] of its own. A
//! slice goes forward after the one before it and backward after the one behind it (Seq1F1B, arXiv
//! 2406.03488).

use pipe_ir::ids::MicrobatchId;
use pipe_ir::task::{Task, TaskKind};

/// In how many slices every microbatch is cut; at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slices(u32);

impl Slices {
    /// Microbatches that are not cut.
    pub const ONE: Self = Self(1);

    /// So many slices; none is one.
    pub fn new(count: u32) -> Self {
        Self(count.max(1))
    }

    /// How many.
    pub const fn count(self) -> u32 {
        self.0
    }

    /// Which slice of its microbatch this is.
    pub const fn slice(self, at: MicrobatchId) -> u32 {
        at.0 % self.0
    }

    /// Which microbatch it is a slice of.
    pub const fn microbatch(self, at: MicrobatchId) -> u32 {
        at.0 / self.0
    }

    /// The slice of the same microbatch whose task of this kind comes right before, if there is one.
    pub fn before(self, kind: TaskKind, at: MicrobatchId) -> Option<MicrobatchId> {
        let slice = self.slice(at);
        match kind {
            TaskKind::Forward => (slice > 0).then(|| MicrobatchId(at.0 - 1)),
            TaskKind::BackwardInput | TaskKind::Backward => {
                (slice + 1 < self.0).then(|| MicrobatchId(at.0.saturating_add(1)))
            }
            TaskKind::BackwardWeight | TaskKind::Recompute | TaskKind::Update => None,
        }
    }

    /// The `nth` slice to be run by tasks of this kind, where they take all in their natural order: microbatches
    /// ascending, in each of them slices ascending forward and descending backward.
    pub fn nth(self, kind: TaskKind, nth: u32) -> MicrobatchId {
        match kind {
            TaskKind::Forward => MicrobatchId(nth),
            _ => MicrobatchId(nth - nth % self.0 + (self.0 - 1 - nth % self.0)),
        }
    }

    /// `m1`, and with slices `m1 q2`.
    pub fn name(self, at: MicrobatchId) -> String {
        if self.0 == 1 { at.to_string() } else { format!("m{} q{}", self.microbatch(at), self.slice(at)) }
    }

    /// `F s0 m1`, and with slices `F s0 m1 q2`.
    pub fn task(self, task: Task) -> String {
        format!("{} {} {}", task.kind.letters(), task.stage, self.name(task.microbatch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_ir::ids::StageId;

    #[test]
    fn slices_go_forward_ascending_and_backward_descending() {
        let slices = Slices::new(3);
        let order = |kind| (0..6).map(|nth| slices.nth(kind, nth).0).collect::<Vec<u32>>();
        assert_eq!(order(TaskKind::Forward), [0, 1, 2, 3, 4, 5]);
        assert_eq!(order(TaskKind::Backward), [2, 1, 0, 5, 4, 3]);
        for kind in [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::Backward] {
            for (nth, number) in (0..6).map(|nth| (nth, slices.nth(kind, nth))) {
                let expected = (nth % 3 > 0).then(|| slices.nth(kind, nth - 1));
                assert_eq!(slices.before(kind, number), expected, "{kind:?} {nth}");
            }
        }
        assert_eq!(slices.before(TaskKind::BackwardWeight, MicrobatchId(1)), None);
    }

    #[test]
    fn names_say_the_slice_only_where_there_are_several() {
        let task = Task { kind: TaskKind::Forward, stage: StageId(2), microbatch: MicrobatchId(5) };
        assert_eq!([Slices::ONE.task(task), Slices::new(4).task(task)], ["F s2 m5", "F s2 m1 q1"]);
    }
}
