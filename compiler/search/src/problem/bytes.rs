//! Memory in bytes: what a pipeline's own model saves, in what its devices have.
//!
//! A task's bytes are those that it leaves for later tasks of its stage and microbatch
//! ([`pipe_model::saved_bytes`]). What a device holds beside them (weights, gradients, optimizer state,
//! transfers, temporaries) hardly depends on the order, so it is taken from the program
//! that the target was compiled to. The program of what is found has the last word: where it needs more, the search is
//! repeated with as much less.
//!
//! Bounds and proofs must not depend on such an estimate. Between two tasks a device holds in any
//! program at least its weights, their gradients and optimizer state, as far as they do not live
//! with its host, and what later tasks still read of what earlier ones saved: each is a value of
//! its own. So they assume that all the rest needs nothing.
//!
//! Lowering may run a `B` and the `W` behind it at once, and then nothing is held between them. Such an
//! order is no better than the same one with `BW`, which the search knows: both hold as much, and `BW`
//! takes no longer, or they are not run at once.

use super::target::Problem;
use pipe_compiler::report::{DeviceReport, Report};
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_model::saved_bytes::saved;
use pipe_model::stage_set::StageSet;
use pipe_schedule::dispatch::job::{Job, Mention, Orders};
use pipe_schedule::policy::activation::Activations;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::saved::Saved;
use pipe_schedule::units::Ticks;

/// More than any devices hold together.
const UNLIMITED: i64 = i64::MAX >> 16;

/// Counts memory in bytes. `peaks` are those of the target's devices, in whatever order it has,
/// with as little of what lives with their hosts as possible.
///
/// # Errors
/// The devices that cannot hold one microbatch, with the bytes that are missing.
pub(crate) fn in_bytes(
    problem: &mut Problem,
    stages: &StageSet,
    peaks: &[Bytes],
    (limit, offload): (&Capacity, Offload),
) -> Result<(), Vec<(DeviceId, i64)>> {
    let saved = saved(stages, problem.schedule.n_stages(), offload);
    for series in problem.job.series.iter_mut() {
        series.takes = saved[series.stage.index()].takes(series.kind);
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
    for (device, peak) in (0..).map(DeviceId).zip(peaks) {
        let order = own.as_ref().map(|orders| orders[device].as_slice()).unwrap_or_default();
        let beside = bytes(Some(peak.0)) - held(&problem.job, order.iter().copied());
        let one = least(&problem.job, device);
        let limit = limit.of(device).0;
        let capacity = bytes(Some(limit)) - beside;
        if capacity < one {
            missing.push((device, one - capacity));
        }
        problem.job.capacity[device] = capacity;
        let own = problem.job.on_device[device].iter().map(|series| &problem.job.series[*series]);
        let forwards = own.filter(|series| series.kind == TaskKind::Forward);
        let kept = forwards.map(|series| saved[series.stage.index()].kept).sum::<i64>();
        // Of activations that may be away, any number can be under way.
        let most = if offload.activations { UNLIMITED } else { bytes(Some(limit)) - kept };
        problem.job.most[device] = most;
        problem.memory[device.index()] = most.max(0).unsigned_abs();
    }
    problem.held = Activations::in_other_parts(saved.into_iter().map(Saved::least).collect());
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

fn bytes(bytes: Option<u64>) -> i64 {
    i64::try_from(bytes.unwrap_or(0)).unwrap_or(i64::MAX)
}

/// The most that a device holds in an order.
fn held(job: &Job, order: impl Iterator<Item = Mention>) -> i64 {
    let (mut held, mut most) = (0, 0);
    for mention in order {
        held += job.takes(mention);
        most = most.max(held);
    }
    most
}

/// The least that a device can hold: one microbatch after the other.
fn least(job: &Job, device: DeviceId) -> i64 {
    held(job, job.turn(device).into_iter())
}

/// Leaves less room on the devices that have too little for what was found: less than that holds,
/// but enough for one microbatch. Whether there is any such device with more room than that.
pub(crate) fn tighten(problem: &mut Problem, found: &Orders, report: &Report, limit: &Capacity) -> bool {
    let over = |(id, device): (DeviceId, &DeviceReport)| bytes(device.peak_bytes) - bytes(Some(limit.of(id).0));
    let worst = (0..).map(DeviceId).zip(&report.per_device).map(over).max().unwrap_or(0);
    let job = &mut problem.job;
    let mut any = false;
    for (index, device) in (0..).map(DeviceId).zip(&report.per_device) {
        let over = over((index, device));
        // Where no peak is too high, the arena is: the fullest devices get less.
        if over > 0 || worst <= 0 && over == worst {
            let held = held(job, found[index].iter().copied());
            let room = (job.capacity[index].min(held) - over.max(1)).max(least(job, index));
            any |= room < job.capacity[index];
            job.capacity[index] = job.capacity[index].min(room);
        }
    }
    any
}
