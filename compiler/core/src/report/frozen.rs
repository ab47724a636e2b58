//! Frozen stages in the report: all of them, and those that run forward only.

use pipe_ir::ids::StageId;
use pipe_schedule::policy::frozen::Gradients;
use pipe_schedule::schedule::Schedule;
use serde::Serialize;

/// The frozen stages of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FrozenReport {
    /// All of them, ascending.
    pub stages: Vec<u32>,
    /// Those without a backward, ascending.
    pub forward_only: Vec<u32>,
    /// Whether every stage runs forward only. Caches that outlive a microbatch (keys and values) are not counted.
    pub is_all_forward: bool,
}

impl FrozenReport {
    /// None where all stages train.
    pub fn new(schedule: &Schedule) -> Option<Self> {
        let of = |is_asked: fn(Gradients) -> bool| {
            let stages = (0..schedule.n_stages()).map(StageId::from_index);
            stages.filter(|stage| is_asked(schedule.frozen.gradients(*stage))).map(|stage| stage.0).collect()
        };
        schedule.frozen.any().then(|| Self {
            stages: of(|gradients| gradients != Gradients::Both),
            forward_only: of(|gradients| gradients == Gradients::None),
            is_all_forward: schedule.frozen.is_forward_only(),
        })
    }
}
