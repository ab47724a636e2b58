//! The bytes that each task of a stage leaves for later tasks of its stage and microbatch, or frees.
//!
//! A forward saves what `B` and `W` read; `B` frees its part and keeps gradients for its `W`. Transfers
//! and temporaries are not counted: they hardly depend on the order.

use super::stage_set::StageSet;
use pipe_ir::ids::{StageId, ValueId};
use pipe_ir::program::{Access, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::saved::Saved;
use std::collections::BTreeSet;

/// By stage. What lives with the hosts by `offload` is not kept on the devices.
pub fn saved(stages: &StageSet, n_stages: usize, offload: Offload) -> Vec<Saved> {
    let mut all = vec![Saved::default(); n_stages];
    for value in &stages.values {
        let Some(saved) = all.get_mut(value.stage.index()) else { continue };
        let bytes = i64::try_from(value.bytes.0).unwrap_or(i64::MAX);
        match value.kind {
            ValueKind::SavedForInput => saved.for_input += bytes,
            ValueKind::SavedForWeight => saved.for_weight += bytes,
            ValueKind::DeferredGradient => saved.deferred += bytes,
            ValueKind::Parameters if offload.parameters => {}
            ValueKind::OptimizerState if offload.optimizer => {}
            ValueKind::Parameters | ValueKind::ParameterGradients | ValueKind::OptimizerState => saved.kept += bytes,
            _ => {}
        }
    }
    for (saved, execs) in all.iter_mut().zip(&stages.stages) {
        let reads = |kind| execs.exec_of(kind).map(|exec| &stages.execs[exec.index()].operands);
        // What flows in and stays until the backward has read it is held as if it was saved.
        let backward = reads(TaskKind::BackwardInput).or_else(|| reads(TaskKind::Backward));
        let received = backward.into_iter().flatten().map(|one| &stages.values[one.value.index()]);
        let received: u64 =
            received.filter(|value| value.kind == ValueKind::Activation).map(|value| value.bytes.0).sum();
        // Gradients that arrived may stay for the weight half.
        let retained = reads(TaskKind::BackwardWeight).into_iter().flatten();
        let retained = retained.map(|one| &stages.values[one.value.index()]);
        let retained: u64 = retained.filter(|value| value.kind == ValueKind::Gradient).map(|value| value.bytes.0).sum();
        saved.deferred = saved.deferred.saturating_add(i64::try_from(retained).unwrap_or(i64::MAX));
        saved.for_input = saved.for_input.saturating_add(i64::try_from(received).unwrap_or(i64::MAX));
        let (Some(forward), Some(again)) = (reads(TaskKind::Forward), reads(TaskKind::Recompute)) else { continue };
        // What other stages read as well may be one buffer for all of them, and data can be loaded again.
        let is_own = |value: &ValueId| {
            let others = stages.execs.iter().filter(|exec| exec.stage != stages.values[value.index()].stage);
            let reads =
                |exec: &&Exec| exec.operands.iter().any(|one| one.value == *value && one.access == Access::Read);
            let readers: BTreeSet<StageId> = others.filter(reads).map(|exec| exec.stage).collect();
            readers.len() == 1 && stages.values[value.index()].kind == ValueKind::Activation
        };
        let kept = again.iter().filter(|one| one.access == Access::Read && forward.contains(one));
        let kept = kept.map(|one| one.value).filter(is_own).map(|value| stages.values[value.index()].bytes.0);
        saved.input = Some(i64::try_from(kept.sum::<u64>()).unwrap_or(i64::MAX));
    }
    all
}
