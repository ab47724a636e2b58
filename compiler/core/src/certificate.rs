//! Certificates: what holds of a building block for every number of microbatches, without writing a step out.
//!
//! Nothing in such a block depends on `M`, so one turn of it is written out, whatever `M` is. Its
//! tasks never meet, in no two turns, and start after their inputs, so the order of the slots is an
//! order in which everything runs: no step is stuck. Activations are counted over the phases of one
//! period. The slowest cycle in the graph of dependencies sets the throughput of an endless
//! step. Where blocks run on across steps, each update stands at a slot as well, behind the
//! gradients that it sums up and before the tasks that read what it makes, so that the order of the
//! slots is still one in which everything runs; unless sums of gradients travel between replicas in
//! another order (see [`pipe_schedule::block::chained_reductions`]): then there is no certificate.
//!
//! A block whose text names `M` is another one for every `M`: see [`crate::block_family`]. It is
//! proved for the numbers looked at.

use crate::block_family::Numbers;
use crate::{Certificates, Request, elaborate, resolve_costs, stage_set};
use pipe_ir::ids::DeviceId;
use pipe_model::pipeline::{Elaborated, Pipeline};
use pipe_schedule::block::async_window::too_late;
use pipe_schedule::block::chained_reductions::follow_slots;
use pipe_schedule::block::period::{Turn, turn};
use pipe_schedule::block::throughput::{Pace, pace};
use pipe_schedule::block::weight_versions::{Kept, cycles};
use pipe_schedule::check;
use pipe_schedule::check::memory::{Certificate, certificates};
use pipe_schedule::check::requirements::{self, Reach};
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::schedule::{Block, Schedule};
use pipe_schedule::window::Window;
use pipe_syntax::ast::Weights;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::Files;

/// What holds for all these numbers of microbatches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    /// One turn, written out as a step.
    pub schedule: Schedule,
    /// The same, with slots.
    pub turn: Turn,
    /// For which numbers of microbatches.
    pub numbers: Numbers,
    /// Microbatches of the step that was asked for.
    pub n_microbatches: u32,
    /// What each device holds at most.
    pub devices: Vec<Certificate>,
    /// Which versions of the weights are read and kept, where blocks run on across steps.
    pub versions: Option<VersionsCertified>,
    /// How an endless step goes on under the costs at hand; none where that would take too long to find.
    pub pace: Option<Pace>,
}

/// The versions of the weights that are read and kept, in steps of every length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionsCertified {
    /// Which ones tasks read.
    pub weights: Weights,
    /// Over steps of all lengths, by stage.
    pub most: Vec<Kept>,
    /// In steps of the length at hand, likewise.
    pub given: Vec<Kept>,
    /// Versions kept on each device over steps of all lengths, and in steps of the length at hand.
    pub devices: Vec<(u64, u64)>,
}

/// Proves a block for the numbers of microbatches that [`crate::block_family::numbers`] found. None
/// where the schedule is no block, or where its devices take too long to repeat.
pub fn certify(files: &Files, request: &Request, numbers: Option<Numbers>) -> Option<Proof> {
    let (numbers, n_microbatches) = (numbers?, elaborate::microbatches_of(files, &request.choice)?);
    // What is wrong with the text is said about the step that was asked for.
    let choice = elaborate::Request { turn: true, ..request.choice.clone() };
    let elaborated = elaborate::elaborate(files, &choice).ok()?;
    elaborated.schedule.placement.repeats()?;
    prove(files, elaborated, request, (numbers, n_microbatches)).transpose()
}

/// What [`certify`] finds.
pub type Proof = Result<(Elaborated, Certified), Diagnostics>;

/// Whether a step need not be written out: it is only too large, and all that is required of it can be judged without.
pub fn is_enough(found: &[Diagnostic], proof: &Proof, request: &Request) -> bool {
    let is_judged = |(elaborated, certified): &(Elaborated, Certified)| {
        let analysis = elaborated.pipeline.as_ref().map(|pipeline| requirements(pipeline, certified));
        analysis.is_none_or(|analysis| analysis.map_or(true, |open| open.is_empty()))
    };
    let is_judged = proof.as_ref().map_or(true, is_judged);
    request.certificate != Certificates::Beside && is_judged && found.iter().all(|one| one.code == Code::TooLarge)
}

/// A certificate as the whole answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Alone {
    /// One turn of the block, and the pipeline that binds it.
    pub elaborated: Elaborated,
    /// What holds for all numbers of microbatches.
    pub certified: Certified,
    /// Requirements that need the step.
    pub open: Vec<String>,
}

/// Takes a certificate as the whole answer.
///
/// # Errors
/// What speaks against the block, devices that hold more than they may, or requirements that do not hold.
pub fn alone(proof: Proof, request: &Request, answer: &mut Option<Alone>) -> Result<(), Diagnostics> {
    let (elaborated, certified) = proof?;
    let mut found = Diagnostics::new();
    let open =
        elaborated.pipeline.as_ref().map_or_else(|| Ok(Vec::new()), |pipeline| requirements(pipeline, &certified));
    let open = open.unwrap_or_else(|broken| {
        found.extend(broken);
        Vec::new()
    });
    let within = request.memory.as_ref();
    let within = within.map_or(Ok(()), |limit| self::within(&certified.schedule, &certified.devices, limit));
    found.extend(within.err().into_iter().flatten());
    *answer = Some(Alone { elaborated, certified, open });
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Judges what a pipeline requires without a step, and names what cannot be judged so.
fn requirements(pipeline: &Pipeline, certified: &Certified) -> Result<Vec<String>, Diagnostics> {
    let own = Reach::of(&certified.schedule, &certified.devices, certified.n_microbatches);
    let open = requirements::check_reach(&pipeline.requirements, &own, pipeline.has_model())?;
    let open = open.into_iter().map(|subject| format!("`require {}`", subject.word()));
    Ok(open.chain(pipeline.memory.as_ref().map(|_| "memory of devices".to_owned())).collect())
}

fn prove(
    files: &Files,
    mut elaborated: Elaborated,
    request: &Request,
    (numbers, n_microbatches): (Numbers, u32),
) -> Result<Option<(Elaborated, Certified)>, Diagnostics> {
    let stages = stage_set(files, &mut elaborated)?;
    // A turn has no window, only what its tasks read: no sums travel in it.
    let window = elaborated.schedule.window.take();
    stages.tell(&mut elaborated.schedule);
    check::check(&elaborated.schedule)?;
    request.check(&elaborated)?;
    let pipeline = elaborated.pipeline.as_ref();
    let costs = resolve_costs::costs(request, pipeline, &stages, &elaborated.schedule);
    let schedule = elaborated.schedule.clone();
    let (Some(block), Some(devices)) = (&schedule.block, certificates(&schedule)) else { return Ok(None) };
    let trained = stages.trained();
    if window.is_some() && !follow_slots(block, &schedule.placement, |stage| trained.contains(&stage)) {
        return Ok(None);
    }
    let versions = window.map(|window| versions(&schedule, block, window, n_microbatches)).transpose()?;
    let turn = turn(block, &schedule.placement, (schedule.n_queues(), schedule.n_microbatches));
    // Where replicas add up gradients while others go on, tasks wait for that as well; a block of
    // one number of microbatches is not repeated without end.
    // What lanes and lists wait for is not in the graph that paces a block.
    let is_paced = schedule.parts.lanes().is_empty()
        && schedule.carried.is_empty()
        && block.only.is_none()
        && (versions.is_none() || !schedule.placement.is_replicated());
    let pace = if is_paced { pace(&schedule, &turn, &costs) } else { None };
    Ok(Some((elaborated, Certified { turn, numbers, n_microbatches, devices, versions, pace, schedule })))
}

fn versions(
    schedule: &Schedule,
    block: &Block,
    window: Window,
    n_microbatches: u32,
) -> Result<VersionsCertified, Diagnostics> {
    let (weights, blocks) = (window.weights, u64::from(n_microbatches / block.microbatches.max(1)));
    let cycles = cycles(block, schedule.n_stages());
    let (mut given, mut late) = (Vec::new(), Diagnostics::new());
    for cycle in &cycles {
        match cycle.kept(weights, blocks) {
            Ok(kept) => given.push(kept),
            Err(one) => late.push(too_late(one, window.span, n_microbatches)),
        }
    }
    if !late.is_empty() {
        return Err(late);
    }
    let most: Vec<Kept> = cycles.iter().map(|cycle| cycle.most(weights)).collect();
    let mut devices = vec![(0, 0); schedule.n_devices()];
    for stage in schedule.placement.stages() {
        for device in schedule.placement.devices_of(stage) {
            devices[device.index()].0 += most[stage.index()].buffers;
            devices[device.index()].1 += given[stage.index()].buffers;
        }
    }
    Ok(VersionsCertified { weights, most, given, devices })
}

/// Compares what every device holds at most with a limit.
fn within(schedule: &Schedule, devices: &[Certificate], limit: &MemoryLimit) -> Result<(), Diagnostics> {
    let all = devices.iter().enumerate().zip(limit.activations(schedule));
    let over = all.filter(|((_, held), allowed)| held.exact > *allowed);
    let found: Diagnostics = over
        .map(|((device, held), _)| {
            let limit = limit.of(DeviceId::from_index(device));
            let needed = schedule.units(held.exact).words();
            let message = format!(
                "d{device} holds {needed} of activations from {} microbatches on, but may hold {limit}",
                held.from
            );
            let label = format!("d{device} needs {needed}");
            Diagnostic::error(Code::MemoryExceeded, schedule.span, label, message)
                .help("let backwards start earlier, or allow more memory")
        })
        .collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}
