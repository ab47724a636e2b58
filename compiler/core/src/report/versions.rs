//! What a report says about versions of the weights.

use pipe_model::stage_set::StageSet;
use pipe_schedule::order::Versions;
use pipe_schedule::schedule::Schedule;
use serde::Serialize;

/// Versions of the weights, where blocks run on across steps.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WeightsReport {
    /// `previous` or `newest`.
    pub mode: &'static str,
    /// The share of tasks that read the newest version that their step can have.
    pub fresh: f64,
    /// Updates that are missing from what tasks read, on average.
    pub staleness_mean: f64,
    /// The most of them.
    pub staleness_most: u32,
    /// The most versions of stages alive at once, where each stage has at least one.
    pub versions_alive_most: u64,
    /// The same on average over the slots of a step.
    pub versions_alive_mean: f64,
    /// Bytes of all versions on all devices, where a model is bound.
    pub bytes: Option<u64>,
    /// By stage.
    pub stages: Vec<StageVersions>,
}

/// Versions of one stage's weights.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StageVersions {
    /// Which.
    pub stage: u32,
    /// The share of microbatches that read the newest version that their step can have.
    pub fresh: f64,
    /// Updates that are missing from what microbatches read, on average.
    pub staleness_mean: f64,
    /// The most of them.
    pub staleness_most: u32,
    /// Buffers that versions take turns in, on each device of the stage.
    pub versions_alive: u32,
    /// Their bytes on one device, where a model is bound.
    pub bytes: Option<u64>,
    /// By microbatch of a step: how many updates fewer than the step's number the version has that its tasks read.
    pub behind: Vec<u32>,
}

impl WeightsReport {
    /// The figures of a schedule's window; none where a step flushes.
    pub fn new(schedule: &Schedule, versions: &Versions) -> Option<Self> {
        let window = schedule.window.as_ref()?;
        let rows = window.stages.iter().zip(&versions.stages).enumerate();
        let stages = rows.map(|(index, (stage, staleness))| StageVersions {
            stage: u32::try_from(index).unwrap_or(u32::MAX),
            fresh: share(staleness.fresh as u64, staleness.microbatches as u64),
            staleness_mean: share(staleness.sum, staleness.microbatches as u64),
            staleness_most: staleness.most,
            versions_alive: stage.buffers,
            bytes: None,
            behind: stage.lags.clone(),
        });
        let sum = |part: fn(&pipe_schedule::order::Staleness) -> u64| versions.stages.iter().map(part).sum::<u64>();
        let tasks = sum(|stage| stage.microbatches as u64);
        Some(Self {
            mode: window.weights.word(),
            fresh: share(sum(|stage| stage.fresh as u64), tasks),
            staleness_mean: share(sum(|stage| stage.sum), tasks),
            staleness_most: versions.stages.iter().map(|stage| stage.most).max().unwrap_or_default(),
            versions_alive_most: versions.most_alive,
            versions_alive_mean: share(versions.slots_alive, versions.slots),
            bytes: None,
            stages: stages.collect(),
        })
    }

    /// Fills in the bytes of all versions.
    pub fn count(&mut self, set: &StageSet, schedule: &Schedule) {
        let mut all = 0;
        for group in &set.weights {
            let [stage] = group.stages.as_slice() else { continue };
            let bytes = set.values[group.parameters.index()].bytes.0;
            let Some(row) = self.stages.get_mut(stage.index()) else { continue };
            let own = bytes * u64::from(row.versions_alive);
            row.bytes = Some(row.bytes.unwrap_or_default() + own);
            all += own * schedule.placement.devices_of(*stage).len() as u64;
        }
        self.bytes = Some(all);
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
