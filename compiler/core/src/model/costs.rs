//! Costs from floating-point operations: one operation takes one tick, so a unit is a million of them. Of large models, a million
//! operations take a tick.

use super::stage_set::StageSet;
use crate::latency::Latency;
use crate::schedule::Costs;
use crate::units::Ticks;
use pipe_ir::task::TaskKind;

/// How long the tasks of a model take, relative to each other; every slice of a stage takes their mean. Transfers take no
/// time. A stage set without a half of the backward pass gives it 0.
#[must_use]
pub fn costs(set: &StageSet) -> Costs {
    let flops = |exec: pipe_ir::ids::ExecId| set.execs[exec.index()].flops;
    let n_stages = set.graph.n_stages().max(1);
    let n_slices = (set.stages.len() / n_stages).max(1) as u64;
    let tasks = (0..set.stages.len().min(n_stages)).map(|stage| {
        TaskKind::ALL.map(|kind| {
            let slices = set.stages.iter().skip(stage).step_by(n_stages).filter_map(|stage| stage.exec_of(kind));
            let sum = slices.fold(0_u64, |sum, exec| sum.saturating_add(flops(exec)));
            Ticks(sum / n_slices / set.flops_per_tick.max(1))
        })
    });
    Costs { tasks: tasks.collect(), pairs: [None; TaskKind::ALL.len()], latency: Latency::default() }
}
