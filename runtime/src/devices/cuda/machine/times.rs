//! Times of a step, from its marks: since the mark with which the GPU began.

use super::super::driver::DriverError;
use super::score::Score;
use crate::profile::Profile;
use crate::report::{DeviceStep, Joined, Nanos, Span};

/// Adds all runs to the reports of their devices.
pub(super) fn runs(score: &Score, devices: &mut [DeviceStep], trace: bool) -> Result<(), DriverError> {
    for run in &score.runs {
        let start = since_start(score, run.gpu, run.marks.start)?;
        let end = since_start(score, run.gpu, run.marks.end - 1)?.max(start);
        devices[run.device.index()].record(Span { exec: run.exec, microbatch: run.microbatch, start, end }, trace);
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
            devices[member.index()].joined.push(Joined { collective, group, start, end });
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
