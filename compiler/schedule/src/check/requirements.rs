//! Rule: every `require` line of a pipeline holds.
//!
//! Numbers limit units. Another schedule is compared in bytes where a model is bound, and in units otherwise.

use super::memory::{Certificate, Peak, certificates};
use crate::dependencies::Dependencies;
use crate::ratio::Ratio;
use crate::requirement::{Limit, Requirement};
use crate::schedule::Schedule;
use crate::timing::timeline::Timeline;
use crate::units::{Ticks, Units};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_syntax::ast::Subject;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// What comparisons are about where a model is bound: the most bytes of activations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InBytes {
    /// By device.
    pub own: Vec<Bytes>,
    /// By requirement.
    pub others: Vec<Other>,
}

/// What a requirement compares with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Other {
    /// Nothing.
    None,
    /// A schedule that the model cannot run under, which is said elsewhere.
    Incomparable,
    /// What the fullest device of another schedule holds.
    Holds(Bytes),
}

/// Compares a timed schedule with the requirements on its peak and bubble. Bytes are compared in
/// [`pipe_compiler::memory::bytes`].
///
/// # Errors
/// A diagnostic per requirement that does not hold.
pub fn check(
    requirements: &[Requirement],
    schedule: &Schedule,
    (peaks, bytes): (&[Peak], Option<&InBytes>),
    timeline: &Timeline,
) -> Result<(), Diagnostics> {
    let failed = requirements.iter().enumerate().filter_map(|(index, requirement)| {
        let failure = match (requirement.subject, &requirement.limit) {
            (Subject::Peak, Limit::Number(limit)) => peak(schedule, peaks, limit.of(Units::UNIT.0), limit.to_string()),
            (Subject::Peak, Limit::PartOf { factor, schedule: other }) => {
                let other = other.as_ref()?;
                match bytes.and_then(|bytes| Some((&bytes.own, bytes.others.get(index)?))) {
                    Some((own, Other::Holds(most))) => bytes_of((schedule, peaks, own), *factor, (other, *most)),
                    Some((_, Other::Incomparable)) => None,
                    Some((_, Other::None)) | None => {
                        let others = super::memory::peaks(other, &Dependencies::of(other));
                        peak_against(schedule, peaks, *factor, (other, &others))
                    }
                }
            }
            (Subject::Bubble, Limit::Number(limit)) => bubble(schedule, timeline, *limit),
            // The grammar compares only peaks with other schedules; bytes are compared where they are known.
            (Subject::Bubble, Limit::PartOf { .. }) | (Subject::Memory, _) => None,
        }?;
        Some(diagnostic(requirement, failure))
    });
    let failed: Diagnostics = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// The least and the most that devices hold in a step that is not written out.
#[derive(Clone, Debug)]
pub struct Reach<'a> {
    schedule: &'a Schedule,
    n_microbatches: u32,
    least: Vec<Peak>,
    most: Vec<Peak>,
}

impl<'a> Reach<'a> {
    /// What follows from certificates: exactly that, unless the step is too short to reach it, or is reordered.
    pub fn of(schedule: &'a Schedule, devices: &[Certificate], n_microbatches: u32) -> Self {
        let is_reached = |held: &&Certificate| schedule.reorder.is_none() && u64::from(n_microbatches) >= held.from;
        let peak = |activations| Peak { activations, position: 0, fetch: None };
        let least = |held: &Certificate| peak(Some(held).filter(is_reached).map_or(0, |held| held.exact));
        let most = devices.iter().map(|held| peak(held.exact)).collect();
        Self { schedule, n_microbatches, least: devices.iter().map(least).collect(), most }
    }

    /// What the least and the most break of a limit; `None` where that needs the step.
    fn peak(&self, limit: &Limit, has_model: bool) -> Option<(Failure, Failure)> {
        match limit {
            Limit::Number(limit) => {
                let of = |peaks| peak(self.schedule, peaks, limit.of(Units::UNIT.0), limit.to_string());
                Some((of(&self.least), of(&self.most)))
            }
            // Bytes need the step.
            Limit::PartOf { .. } if has_model => None,
            Limit::PartOf { factor, schedule } => {
                let other = schedule.as_ref()?;
                let reach = Reach::of(other, &certificates(other)?, self.n_microbatches);
                let of = |peaks, others| peak_against(self.schedule, peaks, *factor, (other, others));
                Some((of(&self.least, &reach.most), of(&self.most, &reach.least)))
            }
        }
    }
}

/// Compares what devices hold with the requirements, and names those that cannot be judged without the step.
///
/// # Errors
/// A diagnostic per requirement that cannot hold.
pub fn check_reach(
    requirements: &[Requirement],
    own: &Reach<'_>,
    has_model: bool,
) -> Result<Vec<Subject>, Diagnostics> {
    let (mut failed, mut open) = (Diagnostics::new(), Vec::new());
    for requirement in requirements {
        let reach = match requirement.subject {
            Subject::Peak => own.peak(&requirement.limit, has_model),
            Subject::Memory | Subject::Bubble => None,
        };
        match reach {
            Some((Some(failure), _)) => failed.push(diagnostic(requirement, failure)),
            None | Some((None, Some(_))) => open.push(requirement.subject),
            Some((None, None)) => {}
        }
    }
    open.dedup();
    if failed.is_empty() { Ok(open) } else { Err(failed) }
}

fn diagnostic(requirement: &Requirement, (has, limit, help): (String, String, String)) -> Diagnostic {
    let message = format!("{has}, but {limit} is required");
    Diagnostic::error(Code::RequirementFailed, requirement.span, "does not hold", message).help(help)
}

/// What the schedule has, what was allowed, and what to do about it; `None` where the requirement holds.
type Failure = Option<(String, String, String)>;

/// What helps against a peak.
const SHORTER: &str = "choose a schedule with shorter lifespans, or fewer microbatches";

/// `allowed` is in millionths of a unit.
fn peak(schedule: &Schedule, peaks: &[Peak], allowed: u128, limit: String) -> Failure {
    let (device, most) = fullest(peaks)?;
    let units = schedule.units(most.activations);
    (u128::from(units.0) > allowed).then(|| {
        let has = format!("{device} of `{}` holds {} of activations", schedule.name, units.words());
        (has, format!("at most {limit}"), SHORTER.to_owned())
    })
}

/// The same in bytes, with the units beside them.
fn bytes_of(
    (schedule, peaks, bytes): (&Schedule, &[Peak], &[Bytes]),
    factor: Ratio,
    (other, most): (&Schedule, Bytes),
) -> Failure {
    let allowed = factor.of(most.0);
    let held = bytes.iter().max().copied().unwrap_or_default();
    if u128::from(held.0) <= allowed {
        return None;
    }
    let device = DeviceId::from_index(bytes.iter().position(|bytes| *bytes == held).unwrap_or_default());
    let units = |schedule: &Schedule, peaks: &[Peak]| fullest(peaks).map(|(_, most)| schedule.units(most.activations));
    let own = units(schedule, peaks).map_or_else(String::new, |own| format!(" ({})", own.words()));
    let others = units(other, &super::memory::peaks(other, &Dependencies::of(other)));
    let others = others.map_or_else(String::new, |others| format!(", {}", others.words()));
    let times = if factor == Ratio::ONE { String::new() } else { format!("{factor} * ") };
    let limit = Bytes(u64::try_from(allowed).unwrap_or(u64::MAX));
    let has_weight_tasks = schedule.orders.iter().flatten().any(|one| one.task.kind == TaskKind::BackwardWeight);
    Some((
        format!("{device} of `{}` holds {held} of activations{own}", schedule.name),
        format!("at most {limit} ({times}{most} of `{}`{others})", other.name),
        if has_weight_tasks {
            "choose a schedule with shorter lifespans, or one whose `W` follows its `B` sooner: what waits for `W` counts"
        } else {
            SHORTER
        }
        .to_owned(),
    ))
}

fn peak_against(schedule: &Schedule, own: &[Peak], factor: Ratio, (other, peaks): (&Schedule, &[Peak])) -> Failure {
    let (_, most) = fullest(peaks)?;
    let units = other.units(most.activations);
    let allowed = factor.of(units.0);
    let limit = Units(u64::try_from(allowed).unwrap_or(u64::MAX));
    let times = if factor == Ratio::ONE { String::new() } else { format!("{factor} * ") };
    peak(schedule, own, allowed, format!("{limit} ({times}{units} of `{}`)", other.name))
}

fn bubble(schedule: &Schedule, timeline: &Timeline, limit: Ratio) -> Failure {
    let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
    let work = devices.map(|device| timeline.busy(device)).max()?;
    let makespan = timeline.makespan();
    let idle = makespan - work;
    // The idle time is whole, so that rounding the limit down changes nothing.
    (u128::from(idle.0) > limit.of(makespan.0)).then(|| {
        let share = u128::from(idle.0) * u128::from(Ticks::UNIT.0) / u128::from(makespan.0.max(1));
        let share = Ticks(u64::try_from(share).unwrap_or(u64::MAX));
        let has = format!("the busiest device idles {share} of the makespan of {makespan}");
        (has, format!("at most {limit}"), "use more microbatches, or split the backward in `B` and `W`".to_owned())
    })
}

fn fullest(peaks: &[Peak]) -> Option<(DeviceId, Peak)> {
    let peaks = peaks.iter().enumerate().map(|(device, peak)| (DeviceId::from_index(device), *peak));
    peaks.max_by_key(|(device, peak)| (peak.activations, std::cmp::Reverse(*device)))
}
