//! Costs from floating-point operations: one operation takes one tick, so a unit is a million of
//! them. Of large models, a million operations take a tick.

use super::stage_set::{StageExecs, StageSet};
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::timing::durations::{Costs, Times};
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::sharing::Sharing;
use pipe_schedule::units::Ticks;

/// The costs of a model's tasks, in floating-point operations. Slices of equal length take their mean. If slices differ
/// in length, `unequal` is the number of microbatches of a step, each slice counted as one. Transfers take no time. A
/// stage set without a half of the backward pass gives it 0.
pub fn costs(set: &StageSet, unequal: Option<u32>) -> Costs {
    let n_stages = set.stages.len().min(set.graph.n_stages().max(1));
    let ticks = |flops: u64| Ticks(flops / set.flops_per_tick.max(1));
    let mean = |stage| TaskKind::ALL.map(|kind| ticks(operations(set, kind, stage).unwrap_or_default()));
    let of_slice = |row: &StageExecs| {
        let flops = |kind| row.exec_of(kind).map_or(0, |exec| set.execs[exec.index()].flops);
        TaskKind::ALL.map(|kind| ticks(flops(kind)))
    };
    let (mut tasks, mut each) = (Vec::with_capacity(n_stages), Vec::new());
    for stage in (0..n_stages).map(StageId::from_index) {
        let mut times = mean(stage);
        if let Some(count) = unequal {
            let slices: Vec<Times> = slices(set, stage).map(of_slice).collect();
            times = TaskKind::ALL.map(|kind| slices.iter().map(|slice| slice[kind.index()]).min().unwrap_or_default());
            let of_step = slices.iter().copied().cycle().take(count as usize);
            each.push(Some(of_step.collect()));
        }
        tasks.push(times);
    }
    Costs {
        tasks,
        each,
        pairs: [None; TaskKind::ALL.len()],
        latency: Latency::default(),
        copy: Ticks::ZERO,
        swaps: Default::default(),
        sharing: Sharing::default(),
    }
}

/// The operations of a task of a stage, the mean over its slices; none where the set has no such task.
pub fn operations(set: &StageSet, kind: TaskKind, stage: StageId) -> Option<u64> {
    let n_slices = slices(set, stage).count().max(1) as u64;
    let execs = slices(set, stage).filter_map(|stage| stage.exec_of(kind));
    let flops = execs.map(|exec| set.execs[exec.index()].flops);
    flops.reduce(u64::saturating_add).map(|sum| sum / n_slices)
}

/// The executables of each slice of a stage.
fn slices(set: &StageSet, stage: StageId) -> impl Iterator<Item = &StageExecs> {
    set.stages.iter().skip(stage.index()).step_by(set.graph.n_stages().max(1))
}
