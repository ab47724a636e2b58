//! What a tuning finds, and what is known of it on the way.

use super::candidate::Candidate;
use super::evaluate::StepTime;
use pipe_ir::units::Bytes;
use pipe_schedule::units::Ticks;
use serde::Serialize;
use std::collections::BTreeMap;

/// What was done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Layouts with what they keep.
    pub groups: usize,
    /// Of these, those of which nothing can fit.
    pub hopeless: usize,
    /// Candidates that were bounded.
    pub bounded: usize,
    /// Of these, those that do not fit, whatever their order.
    pub too_large: usize,
    /// Candidates whose schedule was written out and timed.
    pub timed: usize,
    /// Of these, those that do not fit.
    pub misfits: usize,
    /// Candidates that were timed with nodes that are all as good as the best, where they differ.
    pub unseated: usize,
    /// Candidates whose schedule does not take their numbers of devices and microbatches.
    pub refused: usize,
}

/// What is known while the queue is worked off.
#[derive(Clone, Copy, Debug)]
pub struct TuneProgress<'a> {
    /// What was done.
    pub counts: Counts,
    /// How many are finished for good.
    pub found: usize,
    /// The shortest step so far, if any fits.
    pub best: Option<(&'a Candidate, Ticks)>,
    /// No step is shorter.
    pub bound: Ticks,
}

/// A candidate that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// Which.
    pub candidate: Candidate,
    /// What it takes.
    pub taken: StepTime,
    /// Whether it was timed, or takes at least this long.
    pub is_timed: bool,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TuneResult {
    /// The best, shortest first.
    pub best: Vec<(Candidate, StepTime)>,
    /// Others that fit and were timed, shortest first.
    pub slower: Vec<(Candidate, StepTime)>,
    /// What would be shorter than the last of the best, but does not fit; of that, what is least too large.
    pub misfits: Vec<Misfit>,
    /// So many more are slower, one for each layout and schedule.
    pub more_slower: usize,
    /// So many more do not fit, and may be shorter than the last of the best.
    pub more_misfits: usize,
    /// Of layouts of which nothing fits, the least that some device holds for its state and a single microbatch.
    pub least_held: Option<Bytes>,
    /// Candidates whose schedule does not go with its sizes: how many by name of the schedule and reason.
    pub refused: BTreeMap<(String, String), usize>,
    /// No candidate that may fit is shorter.
    pub bound: Ticks,
    /// Whether nothing was left out.
    pub is_complete: bool,
    /// Whether no other order of the nodes of any candidate would change the rows that are known:
    /// false where only some orders were looked at.
    pub are_orders_best: bool,
    /// So many of the best, the first ones, are what they would be with more time.
    pub n_final: usize,
    /// What was done.
    pub counts: Counts,
}
