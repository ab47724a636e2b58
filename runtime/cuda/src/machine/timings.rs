//! Times of a step, from its marks: since the mark with which the GPU began.

use super::super::driver::DriverError;
use crate::machine::launch_plan::LaunchPlan;
use pipe_distributed::tokens::Tokens;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::verify::List;
use pipe_runtime::{DeviceStep, Joined, Nanos, Profile, Span};

/// The first steps of a run whose times are read, and of the later ones one in so many: for thousands of executables
/// the driver takes milliseconds to say them all.
const OFTEN: u64 = 16;

/// Whether times are read of the step before which so many were taken, where no trace asks for all.
pub(super) const fn is_looked_at(taken: u64) -> bool {
    taken < OFTEN || taken.is_multiple_of(OFTEN)
}

/// Adds all runs to the reports of their devices, and says how long each GPU was inside runs of any of them.
pub(super) fn runs(
    launch_plan: &LaunchPlan,
    devices: &mut [DeviceStep],
    (program, trace): (&Program, bool),
) -> Result<(), DriverError> {
    let n_lanes = program.lanes.len();
    let mut of_gpus = vec![Vec::new(); launch_plan.starts.len()];
    let mut on_lanes = vec![vec![Vec::new(); n_lanes]; devices.len()];
    for run in &launch_plan.runs {
        let (Some(first), Some(last)) = (run.marks.first(), run.marks.last()) else { continue };
        let start = since_start(launch_plan, run.gpu, *first)?;
        let end = since_start(launch_plan, run.gpu, *last)?.max(start);
        let span = Span { exec: run.exec, microbatch: run.microbatch, start, end };
        let device = run.device.index() - launch_plan.own.start;
        match run.lane {
            Some(lane) => on_lanes[device][lane.index()].push(span),
            None => devices[device].record(span, program.exec(run.exec).piece, trace || n_lanes > 0),
        }
        of_gpus[run.gpu].push((start, end));
    }
    for (report, lanes) in devices.iter_mut().zip(on_lanes) {
        report.note_lanes(lanes, trace);
    }
    let busy: Vec<Nanos> = of_gpus.into_iter().map(covered).collect();
    for run in &launch_plan.runs {
        devices[run.device.index() - launch_plan.own.start].gpu_busy = busy[run.gpu];
    }
    Ok(())
}

/// The time that some spans cover together.
fn covered(mut spans: Vec<(Nanos, Nanos)>) -> Nanos {
    spans.sort_unstable();
    let (mut covered, mut until) = (0, 0);
    for (start, end) in spans {
        covered += end.0.saturating_sub(start.0.max(until));
        until = end.0.max(until);
    }
    Nanos(covered)
}

/// Says at which run each device is: the first one that is not over.
pub(super) fn positions(launch_plan: &LaunchPlan, tokens: &Tokens) -> Result<(), DriverError> {
    for device in launch_plan.own.clone().map(DeviceId::from_index) {
        let runs: Vec<_> = launch_plan.runs.iter().filter(|run| run.device == device).collect();
        let (mut over, mut after) = (0, runs.len());
        while over < after {
            let middle = usize::midpoint(over, after);
            let last = runs[middle].marks.last().map_or(0, |last| *last);
            if launch_plan.marks[last].is_over()? { over = middle + 1 } else { after = middle }
        }
        if let Some(run) = runs.get(over).or(runs.last()) {
            tokens.at(device, List::Step, run.instruction as usize);
        }
    }
    Ok(())
}

/// Adds all collectives to the reports of their members, where these were looked at.
pub(super) fn collectives(launch_plan: &LaunchPlan, devices: &mut [DeviceStep]) -> Result<(), DriverError> {
    for joint in &launch_plan.joint {
        let start = since_start(launch_plan, joint.gpu, joint.marks.start)?;
        let end = since_start(launch_plan, joint.gpu, joint.marks.end - 1)?.max(start);
        let (collective, group) = (joint.collective, joint.group);
        for member in &joint.members {
            devices[member.index() - launch_plan.own.start].joined.push(Joined { collective, group, start, end });
        }
    }
    Ok(())
}

/// Adds all kernels to a profile, where these were looked at.
pub(super) fn kernels(launch_plan: &LaunchPlan, profile: &mut Profile) -> Result<(), DriverError> {
    for run in &launch_plan.runs {
        for (ends, (kind, amount)) in run.marks.windows(2).zip(&run.kinds) {
            let entry = profile.entries.entry((*kind).into()).or_default();
            entry.add(launch_plan.marks[ends[1]].since(&launch_plan.marks[ends[0]])?, *amount);
        }
    }
    Ok(())
}

fn since_start(launch_plan: &LaunchPlan, gpu: usize, mark: usize) -> Result<Nanos, DriverError> {
    launch_plan.marks[mark].since(&launch_plan.marks[launch_plan.starts[gpu]]).map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::{Nanos, covered};

    #[test]
    fn time_that_several_cover_counts_once() {
        let of = |spans: &[(u64, u64)]| covered(spans.iter().map(|(from, to)| (Nanos(*from), Nanos(*to))).collect()).0;
        assert_eq!((of(&[]), of(&[(3, 5)])), (0, 2));
        // One inside another, two that touch, and a gap.
        assert_eq!(of(&[(20, 21), (5, 12), (0, 10), (2, 4), (12, 13)]), 14);
    }
}
