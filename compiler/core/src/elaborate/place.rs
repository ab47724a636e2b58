//! `place`: the device of each stage, or of each microbatch of each stage.

use super::limits::tasks;
use super::parts::Place;
use super::period;
use super::schedule::Writer;
use super::scope::Fault;
use crate::diagnostic::{Code, Diagnostic};
use crate::placement::Placement;
use pipe_ir::ids::DeviceId;

/// A task that would run on no device: its stage, its microbatch where it was named, and the number of the device.
type Lost = (u32, Option<u32>, i64);

/// Evaluates the device of every stage, and of every microbatch where the device depends on it.
pub(super) fn write<'a>(writer: &mut Writer<'a>, place: Place<'a>, n_stages: u32) -> Placement {
    let mut lost = Vec::new();
    let devices = devices(writer, place, n_stages, &mut lost);
    if let Some(first) = lost.first() {
        let error = off_devices(writer, place, *first);
        let others = lost.len() - 1;
        let what = if first.1.is_some() { "tasks" } else { "stages" };
        writer.report.add(if others == 0 { error } else { error.note(format!("and {others} more {what} likewise")) });
    }
    match writer.report.take(devices) {
        Some((devices, repeats)) => Placement::repeated(n_stages as usize, devices, repeats),
        None => Placement::of_stages(vec![DeviceId(0); n_stages as usize]),
    }
}

/// A device for each stage of microbatch 0, then of microbatch 1, and so on, until they repeat; and after how many
/// microbatches they do, in every step.
fn devices<'a>(
    writer: &mut Writer<'a>,
    place: Place<'a>,
    n_stages: u32,
    lost: &mut Vec<Lost>,
) -> Result<(Vec<DeviceId>, Option<u32>), Fault> {
    let stage = writer.variable(place.stage)?;
    let microbatch = place.microbatch.map(|name| writer.variable(name)).transpose()?;
    let code = writer.scope.number(place.device)?;
    let microbatch = microbatch.filter(|slot| code.depends >> slot & 1 == 1);
    let mut repeats = Some(1);
    if let Some(slot) = microbatch {
        writer.machine.set(slot, 0);
        for index in 0..n_stages {
            writer.machine.set(stage, i64::from(index));
            let own = period::period(writer, &code, slot);
            repeats = own.zip(repeats).and_then(|(own, all)| period::common(own.into(), all.into())?.try_into().ok());
        }
    }
    let n_rows = match (microbatch, repeats) {
        (None, _) => 1,
        // Where blocks run on from step to step, devices count on as well.
        (Some(_), Some(repeats)) if writer.turn || writer.weights.is_some() => repeats,
        (Some(_), Some(repeats)) => repeats.min(writer.n_microbatches),
        (Some(_), None) => {
            writer.turn = false;
            writer.n_microbatches
        }
    };
    tasks(u128::from(n_rows) * u128::from(n_stages), place.device.span)?;
    let mut devices = Vec::new();
    for row in 0..n_rows {
        if let Some(slot) = microbatch {
            writer.machine.set(slot, i64::from(row));
        }
        for index in 0..n_stages {
            writer.machine.set(stage, i64::from(index));
            writer.machine.spend(1, place.device)?;
            let value = writer.eval(&code)?;
            let device = u32::try_from(value).ok().filter(|device| *device < writer.n_devices);
            if device.is_none() {
                lost.push((index, microbatch.map(|_| row), value));
            }
            devices.push(DeviceId(device.unwrap_or(0)));
        }
        // All slices of a microbatch live together.
        let first = devices.len() - n_stages as usize;
        for _ in 1..if microbatch.is_some() { writer.slices.count() } else { 1 } {
            devices.extend_from_within(first..first + n_stages as usize);
        }
    }
    [Some(stage), microbatch].into_iter().flatten().for_each(|slot| writer.machine.restore(slot, None));
    Ok((devices, repeats))
}

fn off_devices(writer: &Writer<'_>, place: Place<'_>, (stage, microbatch, device): Lost) -> Diagnostic {
    let last = writer.n_devices - 1;
    let (what, short) = match microbatch {
        Some(microbatch) => (format!("m{microbatch} of stage s{stage}"), format!("m{microbatch} of s{stage}")),
        None => (format!("stage s{stage}"), format!("s{stage}")),
    };
    let message = format!("{what} is placed on device {device}, and devices are d0 to d{last}");
    Diagnostic::error(Code::StageOffDevices, place.device.span, format!("{device} for {short}"), message)
}
