//! Costs from floating-point operations: one operation takes one tick, so a unit is a million of
//! them. Of large models, a million operations take a tick.

use super::stage_set::StageSet;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::sharing::Sharing;
use pipe_schedule::units::Ticks;

/// How long the tasks of a model take, relative to each other; every slice of a stage takes their
/// mean. Transfers take no time. A stage set without a half of the backward pass gives it 0.
pub fn costs(set: &StageSet) -> Costs {
    let n_stages = set.stages.len().min(set.graph.n_stages().max(1));
    let tasks = (0..n_stages).map(|stage| {
        let of = |kind| operations(set, kind, StageId::from_index(stage)).unwrap_or_default();
        TaskKind::ALL.map(|kind| Ticks(of(kind) / set.flops_per_tick.max(1)))
    });
    Costs {
        tasks: tasks.collect(),
        each: Vec::new(),
        pairs: [None; TaskKind::ALL.len()],
        latency: Latency::default(),
        copy: Ticks::ZERO,
        sharing: Sharing::default(),
    }
}

/// The operations of a task of a stage, the mean over its slices; none where the set has no such task.
pub fn operations(set: &StageSet, kind: TaskKind, stage: StageId) -> Option<u64> {
    let n_stages = set.graph.n_stages().max(1);
    let n_slices = (set.stages.len() / n_stages).max(1) as u64;
    let slices = set.stages.iter().skip(stage.index()).step_by(n_stages).filter_map(|stage| stage.exec_of(kind));
    let flops = slices.map(|exec| set.execs[exec.index()].flops);
    flops.reduce(u64::saturating_add).map(|sum| sum / n_slices)
}
