//! Memory in bytes: what a pipeline's own model saves, in what its devices have.
//!
//! A task's bytes are those that it leaves for later tasks of its stage and microbatch. What a device holds beside them
//! (weights, gradients, optimizer state, transfers, temporaries) hardly depends on the order, so it is taken from the program
//! that the target was compiled to. The program of what is found has the last word: where it needs more, the search is
//! repeated with as much less.
//!
//! Bounds and proofs must not depend on such an estimate. Between two tasks a device holds in any program at least its
//! weights, their gradients and optimizer state, as far as they do not live with its host, and what later tasks still read of what earlier ones saved: each is a
//! value of its own. So they assume that all the rest needs nothing.

use super::job::{Job, Orders};
use super::target::Problem;
use crate::activation::{Activations, Held};
use crate::model::stage_set::StageSet;
use crate::offload::Offload;
use crate::report::{DeviceReport, Report};
use crate::units::Ticks;
use pipe_ir::ids::{StageId, ValueId};
use pipe_ir::program::{Access, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use std::collections::BTreeSet;

/// What a stage's tasks take, and give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Saved {
    for_input: i64,
    for_weight: i64,
    deferred: i64,
    /// What is kept from the forward on to be recomputed from, where the stage recomputes.
    input: Option<i64>,
    /// What is there all the time.
    kept: i64,
}

impl Saved {
    /// What a task of a kind takes, or gives back.
    fn takes(self, kind: TaskKind) -> i64 {
        let saved = self.for_input + self.for_weight;
        match kind {
            TaskKind::Forward => self.input.unwrap_or(saved),
            TaskKind::Recompute => saved - self.input.unwrap_or(saved),
            TaskKind::BackwardInput => self.deferred - self.for_input,
            TaskKind::BackwardWeight => -self.deferred - self.for_weight,
            TaskKind::Backward | TaskKind::Update => -saved,
        }
    }

    /// The least that is held of a microbatch from where its activations are saved to the end of its `B`, and from there to that of its `W`:
    /// no more than if both ran at once.
    fn least(self) -> Held {
        let bytes = |bytes: i64| bytes.max(0).unsigned_abs();
        Held {
            saved: bytes(self.for_weight.saturating_add(self.for_input)),
            waiting: bytes(self.for_weight.saturating_add(self.for_input.min(self.deferred))),
        }
    }
}

fn saved(stages: &StageSet, n_stages: usize, offload: Offload) -> Vec<Saved> {
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

/// More than any devices hold together.
const UNLIMITED: i64 = i64::MAX >> 16;

/// Counts memory in bytes. `peaks` are those of the target's devices, in whatever order it has, with as little of what lives with their hosts as possible.
///
/// # Errors
/// The devices that cannot hold one microbatch, with the bytes that are missing.
pub(super) fn in_bytes(
    problem: &mut Problem,
    stages: &StageSet,
    peaks: &[Bytes],
    (limit, offload): (Bytes, Offload),
) -> Result<(), Vec<(usize, i64)>> {
    let saved = saved(stages, problem.schedule.n_stages(), offload);
    for lane in &mut problem.job.lanes {
        lane.takes = saved[lane.stage.index()].takes(lane.kind);
    }
    // A `BW` holds nothing between its halves, so where that is much it counts as a form of its own whatever it takes.
    let may_fuse = |stage: StageId| {
        let much = saved[stage.index()].deferred > saved[stage.index()].for_input;
        much || problem.costs.saved_by_fusing(stage) > Ticks::ZERO
    };
    let duration = |stage| problem.scale.of(problem.costs.of(TaskKind::Backward, stage));
    let fusions = problem.job.backwards(may_fuse, duration);
    problem.job = problem.job.clone().with_fusions(fusions);
    let own = problem.job.orders(&problem.schedule);
    let mut missing = Vec::new();
    for (device, peak) in peaks.iter().enumerate() {
        let order = own.as_ref().map(|orders| orders[device].as_slice()).unwrap_or_default();
        let beside = bytes(Some(peak.0)) - held(&problem.job, order.iter().copied());
        let one = least(&problem.job, device);
        let capacity = bytes(Some(limit.0)) - beside;
        if capacity < one {
            missing.push((device, one - capacity));
        }
        problem.job.capacity[device] = capacity;
        let lanes = problem.job.on_device[device].iter().map(|lane| &problem.job.lanes[*lane]);
        let forwards = lanes.filter(|lane| lane.kind == TaskKind::Forward);
        let kept = forwards.map(|lane| saved[lane.stage.index()].kept).sum::<i64>();
        // Of activations that may be away, any number can be under way.
        let most = if offload.activations { UNLIMITED } else { bytes(Some(limit.0)) - kept };
        problem.job.most[device] = most;
        problem.memory[device] = most.max(0).unsigned_abs();
    }
    problem.held = Activations::in_other_parts(saved.into_iter().map(Saved::least).collect());
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

fn bytes(bytes: Option<u64>) -> i64 {
    i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX)
}

/// The most that a device holds in an order.
fn held(job: &Job, order: impl Iterator<Item = usize>) -> i64 {
    let (mut held, mut most) = (0, 0);
    for mention in order {
        held += job.takes(mention);
        most = most.max(held);
    }
    most
}

/// The least that a device can hold: one microbatch after the other.
fn least(job: &Job, device: usize) -> i64 {
    held(job, job.turn(device).into_iter())
}

/// Leaves less room on the devices that have too little for what was found: less than that holds, but enough for one microbatch. Whether there is any
/// such device with more room than that.
pub(super) fn tighten(problem: &mut Problem, found: &Orders, report: &Report, limit: Bytes) -> bool {
    let over = |device: &DeviceReport| bytes(device.peak_bytes) - bytes(Some(limit.0));
    let worst = report.per_device.iter().map(over).max().unwrap_or(0);
    let job = &mut problem.job;
    let mut any = false;
    for (index, device) in report.per_device.iter().enumerate() {
        // Where no peak is too high, the arena is: the fullest devices get less.
        if over(device) > 0 || worst <= 0 && over(device) == worst {
            let held = held(job, found[index].iter().copied());
            let room = (job.capacity[index].min(held) - over(device).max(1)).max(least(job, index));
            any |= room < job.capacity[index];
            job.capacity[index] = job.capacity[index].min(room);
        }
    }
    any
}
