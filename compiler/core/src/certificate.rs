//! Certificates: what holds of a building block for every number of microbatches, without writing a step out.
//!
//! Nothing in such a block depends on `M`, so one turn of it is written out, whatever `M` is. Its tasks never meet, in no two
//! turns, and start after their inputs, so the order of the slots is an order in which everything runs: no step is stuck.
//! Activations are counted over the phases of one period. The pace of an endless step is that of the slowest circle in the
//! graph of what waits for what.

use crate::check::memory::{Certificate, certificates};
use crate::check::{self, uniform};
use crate::costs::of_stages;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::elaborate::{self, Elaborated};
use crate::files::Files;
use crate::pace::{Pace, pace};
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::schedule::{Costs, Schedule};
use crate::turn::{Turn, turn};
use crate::units::Units;
use crate::{Certificates, Request, model};

/// The most tasks of a turn that is written out for a certificate.
const MOST_TASKS: u64 = 1_000_000;

/// What holds for every number of microbatches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    /// One turn, written out as a step.
    pub schedule: Schedule,
    /// The same, with slots.
    pub turn: Turn,
    /// What each device holds at most.
    pub devices: Vec<Certificate>,
    /// How an endless step goes on under the costs at hand; none where that would take too long to find.
    pub pace: Option<Pace>,
}

/// Proves a block for all numbers of microbatches at once. None where the schedule is no block, or one that depends on the
/// number of microbatches, or where its devices take too long to repeat.
#[must_use]
pub fn certify(files: &Files, request: &Request) -> Option<Proof> {
    let (declared, call) = elaborate::schedule_of(files, &request.choice)?;
    if !uniform::is_uniform(declared) || call.is_some_and(uniform::call_mentions) {
        return None;
    }
    let with = |microbatches: u32| {
        let mut choice = request.choice.clone();
        choice.settings.push(("microbatches".to_owned(), i64::from(microbatches)));
        elaborate::elaborate(files, &choice)
    };
    // What is wrong with the text is said about the step that was asked for.
    let first = with(1).ok()?;
    let block = first.schedule.block.as_ref()?;
    let (size, repeats) = (block.microbatches, first.schedule.placement.repeats()?);
    let whole = elaborate::common_period(u64::from(size), u64::from(repeats))?;
    if first.schedule.window.is_some() || whole / u64::from(size) * block.slots.len() as u64 > MOST_TASKS {
        return None;
    }
    Some(prove(files, with(u32::try_from(whole).ok()?).ok()?, request))
}

/// What [`certify`] finds.
pub type Proof = Result<(Elaborated, Certified), Diagnostics>;

/// Whether a step need not be written out: it is only too large, and nothing else is required of it.
#[must_use]
pub fn is_enough(found: &[Diagnostic], proof: &Proof, request: &Request) -> bool {
    let free = |pipeline: &Pipeline| pipeline.requirements.is_empty() && pipeline.memory.is_none();
    let unbound = proof.as_ref().map_or(true, |(elaborated, _)| elaborated.pipeline.as_ref().is_none_or(free));
    request.certificate != Certificates::Beside && unbound && found.iter().all(|one| one.code == Code::TooLarge)
}

/// Reports a certificate as the whole answer.
///
/// # Errors
/// What speaks against the block, or devices that hold more than they may.
pub fn alone(proof: &Proof, request: &Request, report: &mut Report) -> Result<(), Diagnostics> {
    let (elaborated, certified) = proof.as_ref().map_err(Clone::clone)?;
    let set = request.choice.settings.iter().rev().find(|(name, _)| name == "microbatches");
    let default = elaborated.pipeline.is_none().then_some(elaborate::DEFAULT_MICROBATCHES);
    let n_microbatches = set.map_or(default, |(_, value)| u32::try_from(*value).ok());
    report.certify(certified, elaborated.pipeline.as_ref(), n_microbatches);
    request.memory.map_or(Ok(()), |limit| within(&certified.schedule, &certified.devices, limit))
}

fn prove(files: &Files, mut elaborated: Elaborated, request: &Request) -> Proof {
    let stages = model::stage_set(files, &elaborated)?;
    stages.tell(&mut elaborated.schedule);
    check::check(&elaborated.schedule)?;
    let costs = costs(&elaborated, &stages, request);
    let schedule = elaborated.schedule.clone();
    let (Some(block), Some(devices)) = (&schedule.block, certificates(&schedule)) else {
        return Err(Vec::new());
    };
    let turn = turn(block, &schedule.placement, (schedule.n_devices(), schedule.n_microbatches));
    let pace = pace(&schedule, &turn, &costs);
    Ok((elaborated, Certified { turn, devices, pace, schedule }))
}

/// The request's costs come before the pipeline's, and those before the model's.
fn costs(elaborated: &Elaborated, stages: &model::stage_set::StageSet, request: &Request) -> Costs {
    let pipeline = elaborated.pipeline.as_ref();
    match request.costs.or(pipeline.and_then(|pipeline| pipeline.costs)) {
        None if pipeline.is_some_and(|pipeline| pipeline.model.is_some()) => model::costs(stages),
        given => of_stages(&given.unwrap_or_default(), elaborated.schedule.n_stages()),
    }
}

/// Compares what every device holds at most with a limit.
fn within(schedule: &Schedule, devices: &[Certificate], limit: Units) -> Result<(), Diagnostics> {
    let allowed = schedule.activations_in(limit);
    let over = devices.iter().enumerate().filter(|(_, held)| held.exact > allowed);
    let found: Diagnostics = over
        .map(|(device, held)| {
            let needed = schedule.units(held.exact);
            let message = format!(
                "d{device} holds {needed} units of activations from {} microbatches on, but may hold {limit}",
                held.from
            );
            let label = format!("d{device} needs {needed} units");
            Diagnostic::error(Code::MemoryExceeded, schedule.span, label, message)
                .help("let backwards start earlier, or allow more memory")
        })
        .collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}
