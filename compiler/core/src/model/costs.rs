//! Costs from floating-point operations: one operation takes one tick, so a unit is a million of them.

use super::stage_set::StageSet;
use crate::schedule::Costs;
use crate::units::Ticks;
use pipe_ir::task::TaskKind;

/// How long the tasks of a model take, relative to each other. Transfers take no time. A stage set without a half of
/// the backward pass gives it 0.
#[must_use]
pub fn costs(set: &StageSet) -> Costs {
    let flops = |exec: pipe_ir::ids::ExecId| set.execs[exec.index()].flops;
    let tasks = set.stages.iter().map(|stage| {
        TaskKind::ALL.map(|kind| Ticks(if kind == TaskKind::Update { 0 } else { stage.exec_of(kind).map_or(0, flops) }))
    });
    Costs { tasks: tasks.collect(), pairs: [None; TaskKind::ALL.len()], latency: Ticks::ZERO }
}
