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
        // What is on a lane has no weights, and says nothing about its stage.
        let of = |is_asked: fn(Gradients) -> bool| -> Vec<u32> {
            let stages = (0..schedule.n_whole_stages()).map(StageId::from_index);
            let is_frozen = |stage: &StageId| {
                let rows = schedule.parts.rows(*stage).map(StageId::from_index);
                let mut computing = rows.filter(|row| schedule.parts.lane(*row).is_none());
                computing.all(|row| is_asked(schedule.frozen.gradients(row)))
            };
            stages.filter(is_frozen).map(|stage| stage.0).collect()
        };
        let stages = of(|gradients| gradients != Gradients::Both);
        (!stages.is_empty()).then(|| Self {
            stages,
            forward_only: of(|gradients| gradients == Gradients::None),
            is_all_forward: schedule.frozen.is_forward_only(),
        })
    }
}
