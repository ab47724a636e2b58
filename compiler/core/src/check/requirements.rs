//! Rule: every `require` line of a pipeline holds.

use super::memory::{Peak, peaks};
use crate::dependencies::Dependencies;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::pipeline::{Limit, Requirement, Share};
use crate::schedule::Schedule;
use crate::timeline::Timeline;
use crate::units::{Ticks, Units};
use pipe_ir::ids::DeviceId;

/// Compares a timed schedule with the requirements on its peak and bubble. Bytes are compared in [`super::bytes`].
///
/// # Errors
/// A diagnostic per requirement that does not hold.
pub fn check(
    requirements: &[Requirement],
    schedule: &Schedule,
    peaks: &[Peak],
    timeline: &Timeline,
) -> Result<(), Diagnostics> {
    let failed = requirements.iter().filter_map(|requirement| {
        let (has, limit, help) = match &requirement.limit {
            Limit::Peak(limit) => peak(schedule, peaks, u128::from(limit.0), limit.to_string()),
            Limit::PeakOf { factor, schedule: other } => peak_of(schedule, peaks, *factor, other),
            Limit::Bubble(limit) => bubble(schedule, timeline, *limit),
            Limit::Memory(_) => None,
        }?;
        let message = format!("{has}, but {limit} is required");
        Some(Diagnostic::error(Code::RequirementFailed, requirement.span, "does not hold", message).help(help))
    });
    let failed: Diagnostics = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// What the schedule has, what was allowed, and what to do about it; `None` where the requirement holds.
type Failure = Option<(String, String, String)>;

/// `allowed` is in millionths of a unit.
fn peak(schedule: &Schedule, peaks: &[Peak], allowed: u128, limit: String) -> Failure {
    let (device, most) = fullest(peaks)?;
    let units = schedule.units(most.activations);
    (u128::from(units.0) > allowed).then(|| {
        let has = format!("{device} of `{}` holds {} of activations", schedule.name, units.words());
        (has, format!("at most {limit}"), "choose a schedule with shorter lifespans, or fewer microbatches".to_owned())
    })
}

fn peak_of(schedule: &Schedule, own: &[Peak], factor: Share, other: &Schedule) -> Failure {
    let (_, most) = fullest(&peaks(other, &Dependencies::of(other)))?;
    let units = other.units(most.activations);
    let allowed = u128::from(units.0) * u128::from(factor.0) / u128::from(Share::ONE.0);
    let limit = Units(u64::try_from(allowed).unwrap_or(u64::MAX));
    let times = if factor == Share::ONE { String::new() } else { format!("{factor} * ") };
    peak(schedule, own, allowed, format!("{limit} ({times}{units} of `{}`)", other.name))
}

fn bubble(schedule: &Schedule, timeline: &Timeline, limit: Share) -> Failure {
    let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
    let work = devices.map(|device| timeline.busy(device)).max()?;
    let makespan = timeline.makespan();
    let idle = makespan - work;
    let broken = u128::from(idle.0) * u128::from(Share::ONE.0) > u128::from(makespan.0) * u128::from(limit.0);
    broken.then(|| {
        let share = u128::from(idle.0) * u128::from(Ticks::UNIT.0) / u128::from(makespan.0.max(1));
        let share = Share(u64::try_from(share).unwrap_or(u64::MAX));
        let has = format!("the busiest device idles {share} of the makespan of {makespan}");
        (has, format!("at most {limit}"), "use more microbatches, or split the backward in `B` and `W`".to_owned())
    })
}

fn fullest(peaks: &[Peak]) -> Option<(DeviceId, Peak)> {
    let peaks = peaks.iter().enumerate().map(|(device, peak)| (DeviceId::from_index(device), *peak));
    peaks.max_by_key(|(device, peak)| (peak.activations, std::cmp::Reverse(*device)))
}
