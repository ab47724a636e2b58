//! What activations count in units, where that was said.

use pipe_ir::ids::StageId;
use pipe_schedule::schedule::Schedule;
use serde::Serialize;

/// What a device holds of a microbatch of a stage, in activations of the mean stage.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ActivationReport {
    /// Which.
    pub stage: u32,
    /// Until its `B`, or `BW`, has ended.
    pub saved: f64,
    /// From there to the end of its `W`.
    pub waiting: f64,
}

impl ActivationReport {
    /// By stage; nothing where each counts as one until `W`.
    pub fn all(schedule: &Schedule) -> Vec<Self> {
        let activations = &schedule.activations;
        let of = |parts: u64| parts as f64 / activations.whole as f64;
        let stages = (0..schedule.n_stages()).filter(|_| !activations.is_plain()).map(StageId::from_index);
        let own = |stage: StageId| (stage.0, activations.of(stage));
        stages.map(own).map(|(stage, held)| Self { stage, saved: of(held.saved), waiting: of(held.waiting) }).collect()
    }
}
