//! Costs that nobody gave and that are no definition: halves of a backward of which only both at once have a cost.

pub mod stage_costs;

use crate::report::time;
use pipe_schedule::timing::costs::halves::Half;
use serde::Serialize;

/// A half of a backward, of stages next to each other for which it is the same.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DerivedCostReport {
    /// `B` or `W`.
    pub kind: &'static str,
    /// The first stage.
    pub first_stage: u32,
    /// The last one.
    pub last_stage: u32,
    /// How long the half is assumed to take, in the unit of the costs.
    pub time: f64,
    /// How long `BW` of each of these stages takes.
    pub fused_time: f64,
}

impl DerivedCostReport {
    /// All of some halves, `B` first.
    pub fn all(halves: impl IntoIterator<Item = Half>) -> Vec<Self> {
        let mut halves: Vec<Half> = halves.into_iter().collect();
        halves.sort_by_key(|half| (half.kind, half.stage));
        let alike = |one: &Half, next: &Half| {
            (one.kind, one.time, one.both, one.stage.0 + 1) == (next.kind, next.time, next.both, next.stage.0)
        };
        let runs = halves.chunk_by(alike).filter_map(|run| run.first().zip(run.last()));
        let report = |(first, last): (&Half, &Half)| Self {
            kind: first.kind.letters(),
            first_stage: first.stage.0,
            last_stage: last.stage.0,
            time: time(first.time),
            fused_time: time(first.both),
        };
        runs.map(report).collect()
    }
}
