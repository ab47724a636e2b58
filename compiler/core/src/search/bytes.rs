//! Memory in bytes: what a pipeline's own model saves, in what its devices have.
//!
//! A task's bytes are those that it leaves for later tasks of its stage and microbatch. What a device holds beside them
//! (weights, gradients, optimizer state, transfers, temporaries) hardly depends on the order, so it is taken from the program
//! that the target was compiled to. The program of what is found has the last word: where it needs more, the search is
//! repeated with as much less.

use super::job::Job;
use super::target::Problem;
use crate::model::stage_set::StageSet;
use crate::report::{DeviceReport, Report};
use pipe_ir::program::Access;
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;

/// Of the room that was thought to be there, how much less a repeated search gets at least: one part in so many.
const LEAST_LESS: i64 = 64;

/// What a stage's tasks take, and give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Saved {
    for_input: i64,
    for_weight: i64,
    deferred: i64,
    /// What is kept from the forward on to be recomputed from, where the stage recomputes.
    input: Option<i64>,
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
}

fn saved(stages: &StageSet, n_stages: usize) -> Vec<Saved> {
    let mut all = vec![Saved::default(); n_stages];
    for value in &stages.values {
        let Some(saved) = all.get_mut(value.stage.index()) else { continue };
        let bytes = i64::try_from(value.bytes.0).unwrap_or(i64::MAX);
        match value.kind {
            ValueKind::SavedForInput => saved.for_input += bytes,
            ValueKind::SavedForWeight => saved.for_weight += bytes,
            ValueKind::DeferredGradient => saved.deferred += bytes,
            _ => {}
        }
    }
    for (saved, execs) in all.iter_mut().zip(&stages.stages) {
        let reads = |kind| execs.exec_of(kind).map(|exec| &stages.execs[exec.index()].operands);
        let (Some(forward), Some(again)) = (reads(TaskKind::Forward), reads(TaskKind::Recompute)) else { continue };
        let kept = again.iter().filter(|one| one.access == Access::Read && forward.contains(one));
        let kept = kept.map(|one| &stages.values[one.value.index()]).filter(|value| !value.kind.is_persistent());
        saved.input = Some(kept.map(|value| i64::try_from(value.bytes.0).unwrap_or(i64::MAX)).sum());
    }
    all
}

/// Counts memory in bytes. `report` is that of the target, in whatever order it has.
///
/// # Errors
/// The devices that cannot hold one microbatch, with the bytes that are missing.
pub(super) fn in_bytes(
    problem: &mut Problem,
    stages: &StageSet,
    report: &Report,
    limit: Bytes,
) -> Result<(), Vec<(usize, i64)>> {
    let saved = saved(stages, problem.schedule.n_stages());
    for lane in &mut problem.job.lanes {
        lane.takes = saved[lane.stage.index()].takes(lane.kind);
    }
    let own = problem.job.orders(&problem.schedule);
    let mut missing = Vec::new();
    for (device, report) in report.per_device.iter().enumerate() {
        let order = own.as_ref().map(|orders| orders[device].as_slice()).unwrap_or_default();
        let beside = bytes(report.peak_bytes) - held(&problem.job, order.iter().copied());
        let one = held(&problem.job, problem.job.on_device[device].iter().copied());
        let capacity = bytes(Some(limit.0)) - beside;
        if capacity < one {
            missing.push((device, one - capacity));
        }
        problem.job.capacity[device] = capacity;
    }
    problem.activations = activations(&problem.job, &saved);
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

/// By device, the most activations of single stages that it has room for.
fn activations(job: &Job, saved: &[Saved]) -> Vec<u64> {
    let of_device = |(lanes, capacity): (&Vec<usize>, &i64)| {
        let forwards = lanes.iter().map(|lane| &job.lanes[*lane]).filter(|lane| lane.kind == TaskKind::Forward);
        let all = forwards.map(|lane| saved[lane.stage.index()]);
        let least = all.map(|own| own.for_input + own.for_weight).min().unwrap_or(0);
        let all = (lanes.len() * job.microbatches) as i64;
        let most = if least > 0 { (capacity / least).min(all) } else { all };
        most.max(0).unsigned_abs()
    };
    job.on_device.iter().zip(&job.capacity).map(of_device).collect()
}

fn bytes(bytes: Option<u64>) -> i64 {
    i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX)
}

/// The most that a device holds in an order.
fn held(job: &Job, order: impl Iterator<Item = usize>) -> i64 {
    let (mut held, mut most) = (0, 0);
    for lane in order {
        held += job.lanes[lane].takes;
        most = most.max(held);
    }
    most
}

/// Leaves less room on the devices that have too little for what was found. Whether there is any such device.
pub(super) fn tighten(problem: &mut Problem, report: &Report, limit: Bytes) -> bool {
    let over = |device: &DeviceReport| bytes(device.peak_bytes) - bytes(Some(limit.0));
    let worst = report.per_device.iter().map(over).max().unwrap_or(0);
    let mut any = false;
    for (device, capacity) in report.per_device.iter().zip(&mut problem.job.capacity) {
        // Where no peak is too high, the arena is: the fullest devices get less.
        if over(device) > 0 || worst <= 0 && over(device) == worst {
            *capacity -= over(device).max(*capacity / LEAST_LESS).max(1);
            any = true;
        }
    }
    any && (0..problem.job.capacity.len())
        .all(|device| held(&problem.job, problem.job.on_device[device].iter().copied()) <= problem.job.capacity[device])
}
