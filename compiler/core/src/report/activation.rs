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
        let stages = (0..schedule.n_whole_stages()).filter(|_| !activations.is_plain()).map(StageId::from_index);
        let own = |stage: StageId| {
            // Of several devices that have a stage at once, each holds as much.
            let rows = schedule.parts.positions(stage).map(|rows| activations.of(StageId::from_index(rows.start)));
            let (saved, waiting) =
                rows.fold((0, 0), |(saved, waiting), held| (saved + held.saved, waiting + held.waiting));
            Self { stage: stage.0, saved: of(saved), waiting: of(waiting) }
        };
        let all: Vec<Self> = stages.map(own).collect();
        let is_plain = all.iter().all(|stage| stage.saved == 1.0 && stage.waiting == 1.0);
        if is_plain { Vec::new() } else { all }
    }
}
