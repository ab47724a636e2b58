//! Times of a step, from its marks: since the mark with which the GPU began.

use super::super::driver::DriverError;
use super::score::Score;
use crate::channel::Mailboxes;
use crate::profile::Profile;
use crate::report::{DeviceStep, Joined, Nanos, Span};
use pipe_ir::ids::DeviceId;
use pipe_ir::verify::List;

/// Adds all runs to the reports of their devices.
pub(super) fn runs(score: &Score, devices: &mut [DeviceStep], trace: bool) -> Result<(), DriverError> {
    for run in &score.runs {
        let start = since_start(score, run.gpu, run.marks.start)?;
        let end = since_start(score, run.gpu, run.marks.end - 1)?.max(start);
        devices[run.device.index() - score.own.start]
            .record(Span { exec: run.exec, microbatch: run.microbatch, start, end }, trace);
    }
    Ok(())
}

/// Says at which run each device is: the first one that is not over.
pub(super) fn positions(score: &Score, mailboxes: &Mailboxes) -> Result<(), DriverError> {
    for device in score.own.clone().map(DeviceId::from_index) {
        let runs: Vec<_> = score.runs.iter().filter(|run| run.device == device).collect();
        let (mut over, mut after) = (0, runs.len());
        while over < after {
            let middle = usize::midpoint(over, after);
            if score.marks[runs[middle].marks.end - 1].is_over()? { over = middle + 1 } else { after = middle }
        }
        if let Some(run) = runs.get(over).or(runs.last()) {
            mailboxes.at(device, List::Step, run.instruction as usize);
        }
    }
    Ok(())
}

/// Adds all collectives to the reports of their members, where these were looked at.
pub(super) fn collectives(score: &Score, devices: &mut [DeviceStep]) -> Result<(), DriverError> {
    for joint in &score.joint {
        let start = since_start(score, joint.gpu, joint.marks.start)?;
        let end = since_start(score, joint.gpu, joint.marks.end - 1)?.max(start);
        let (collective, group) = (joint.collective, joint.group);
        for member in &joint.members {
            devices[member.index() - score.own.start].joined.push(Joined { collective, group, start, end });
        }
    }
    Ok(())
}

/// Adds all kernels to a profile, where these were looked at.
pub(super) fn kernels(score: &Score, profile: &mut Profile) -> Result<(), DriverError> {
    for run in &score.runs {
        for (mark, (kind, flops, elements)) in run.marks.clone().zip(&run.kinds) {
            let entry = profile.entries.entry((*kind).into()).or_default();
            entry.count += 1;
            entry.nanos += score.marks[mark + 1].since(&score.marks[mark])?;
            entry.flops += flops;
            entry.elements += elements;
        }
    }
    Ok(())
}

fn since_start(score: &Score, gpu: usize, mark: usize) -> Result<Nanos, DriverError> {
    score.marks[mark].since(&score.marks[score.starts[gpu]]).map(Nanos)
}
