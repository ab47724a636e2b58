//! The bytes that each task of a stage leaves for later tasks of its stage and microbatch, or frees.
//!
//! A forward saves what `B` and `W` read; `B` frees its part and keeps gradients for its `W`. Transfers
//! and temporaries are not counted: they hardly depend on the order.

use crate::activation::Held;
use crate::model::stage_set::StageSet;
use crate::offload::Offload;
use pipe_ir::ids::{StageId, ValueId};
use pipe_ir::program::{Access, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use std::collections::BTreeSet;

/// What a stage's tasks take, and give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Saved {
    pub(crate) for_input: i64,
    pub(crate) for_weight: i64,
    pub(crate) deferred: i64,
    /// What is kept from the forward on to be recomputed from, where the stage recomputes.
    pub(crate) input: Option<i64>,
    /// What is there all the time.
    pub(crate) kept: i64,
}

impl Saved {
    /// What a task of a kind takes, or gives back.
    pub(crate) fn takes(self, kind: TaskKind) -> i64 {
        let saved = self.for_input + self.for_weight;
        match kind {
            TaskKind::Forward => self.input.unwrap_or(saved),
            TaskKind::Recompute => saved - self.input.unwrap_or(saved),
            TaskKind::BackwardInput => self.deferred - self.for_input,
            TaskKind::BackwardWeight => -self.deferred - self.for_weight,
            TaskKind::Backward | TaskKind::Update => -saved,
        }
    }

    /// What the tasks of a stage take whose `R` runs right before the backward and counts as a part of it.
    pub(crate) fn takes_with_recomputation(self, kind: TaskKind) -> i64 {
        match kind {
            TaskKind::BackwardInput | TaskKind::Backward if self.input.is_some() => {
                self.takes(TaskKind::Recompute) + self.takes(kind)
            }
            _ => self.takes(kind),
        }
    }

    /// Lower bound on the bytes held for one microbatch: until the end of `B`, and from there to the end of `W`.
    /// It is no more than what `BW` holds.
    pub(crate) fn least(self) -> Held {
        let bytes = |bytes: i64| bytes.max(0).unsigned_abs();
        Held {
            saved: bytes(self.for_weight.saturating_add(self.for_input)),
            waiting: bytes(self.for_weight.saturating_add(self.for_input.min(self.deferred))),
        }
    }
}

/// By stage. What lives with the hosts by `offload` is not kept on the devices.
pub(crate) fn saved(stages: &StageSet, n_stages: usize, offload: Offload) -> Vec<Saved> {
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
