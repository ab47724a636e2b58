//! Prospects: how short a step can be at best, and how much devices hold at least, before a schedule is written out.
//!
//! A group of candidates, those with the same layout that keep the same, is bounded by the work and
//! the exchanges of the whole model, divided evenly among its devices, and so is what they hold:
//! some device has no less than the mean, and copies no less back to its host behind the exchange
//! of gradients, where state lives there. A single one is bounded as any schedule with its places
//! and costs is ([`pipe_schedule::bounds`]), and then some device still exchanges its gradients.
//! Neither depends on the order of tasks. A device holds the state of its stages, and, when a
//! microbatch has gone forward through all of them, what they keep of it.

use super::candidate::{Candidate, Keeping, Layout};
use super::families::Variant;
use super::problem::Problem;
use crate::tune::instantiate::Instance;
use pipe_compiler::cluster::durations::{TimedTarget, target};
use pipe_compiler::cluster::{DeviceSlot, collective};
use pipe_compiler::resolve_costs::costs;
use pipe_ir::ids::{DeviceId, MicrobatchId};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_model::stage_set::StageSet;
use pipe_model::transformer::exchanges::{Among, Exchange, at_end, beside, within};
use pipe_model::transformer::{Flops, StageAccount, Transformer, accounts};
use pipe_schedule::bounds::lower_bound;
use pipe_schedule::placement::Placement;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;

/// What is known of a candidate before it is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prospect {
    /// No schedule is shorter.
    pub time: Ticks,
    /// The device that holds most at least.
    pub device: DeviceId,
    /// What it holds at least.
    pub bytes: Bytes,
    /// What the first device of a pipeline whose stages are alike would hold with as many
    /// microbatches under way as it has devices, and a tenth more: an estimate.
    pub usual: Bytes,
}

/// Of all candidates with a layout that keep this; none where the model cannot be divided so.
pub(super) fn of_group(problem: &Problem, written: &Instance, layout: &Layout, keeping: Keeping) -> Option<Prospect> {
    if let Some(trained) = &problem.trained {
        let work = u128::from(written.work(problem, trained, *layout).0) * u128::from(layout.microbatches);
        let time = Ticks(narrow(work / u128::from(layout.devices * layout.tensor)));
        return Some(Prospect { time, device: DeviceId(0), bytes: Bytes::ZERO, usual: Bytes::ZERO });
    }
    let settings = layout.settings(&problem.transformer.settings, keeping);
    let transformer = Transformer { settings, ..problem.transformer.clone() };
    let whole = Placement::of_stages(vec![DeviceId(0)]);
    let account = accounts(&transformer, &whole, problem.span).ok()?.pop()?;
    let Flops { forward, backward_input, backward_weight, .. } = account.flops;
    let least = |all: Vec<Exchange>| all.iter().map(|one| quickest(problem, written, layout, one)).sum::<u128>();
    let task = |kind, computes: Ticks| {
        let own = u128::from(computes.0) + least(within(&transformer, &account, kind));
        own.max(least(beside(&transformer, &account, kind)))
    };
    let rates = &problem.cluster.rates;
    let backward = task(TaskKind::Backward, rates.least_backward(backward_input + backward_weight));
    let work = (task(TaskKind::Forward, rates.time(TaskKind::Forward, forward)) + backward)
        .saturating_mul(layout.microbatches.into());
    // Durations that are given may be shorter.
    let work = if problem.request.costs.is_some() { 0 } else { work };
    let devices = u128::from(layout.devices);
    let time = (work + least(at_end(&transformer, &account))) / devices;
    let back = problem.copying(account.away(keeping.offload) / devices);
    let state = account.staying(keeping.offload);
    let held = (state + account.activations()) / devices;
    let usual = (state / devices + account.activations()) * 11 / 10;
    let (bytes, usual) = (Bytes(narrow(held)), Bytes(narrow(usual)));
    Some(Prospect { time: Ticks(narrow(time)) + back, device: DeviceId(0), bytes, usual })
}

/// What a group takes at least for its exchanges, wherever it sits: inside a node that is where
/// links are quickest, and with a link between nodes, if it surely has one and all of them are
/// alike, at least what that link takes.
fn quickest(problem: &Problem, written: &Instance, layout: &Layout, one: &Exchange) -> u128 {
    let cluster = &problem.cluster;
    let (n, step, span) = match one.among {
        Among::Tensor => (layout.tensor, 1, layout.tensor),
        Among::Experts => (layout.expert, layout.tensor, layout.expert * layout.tensor),
        Among::Data => (layout.data, layout.tensor, layout.data * layout.tensor),
        Among::Alike => (layout.data / layout.expert, layout.expert * layout.tensor, layout.data * layout.tensor),
    };
    let per_node = u64::from(cluster.per_node);
    let device_slot = |number: u64| DeviceSlot(u32::try_from(number).unwrap_or(u32::MAX));
    let time = |device_slots: &[DeviceSlot]| u128::from(collective::time(cluster, device_slots, one.what, one.bytes).0);
    let least = if per_node.is_multiple_of(span) {
        // Of nodes that are alike, one is enough.
        let n_nodes = if cluster.is_even_inside() { 1 } else { cluster.n_nodes() };
        let nodes = 0..u64::from(n_nodes);
        nodes.map(|node| time(&(0..n).map(|at| device_slot(node * per_node + at * step)).collect::<Vec<_>>())).min()
    } else if written.are_nodes_alike && n.saturating_sub(1) * step >= per_node {
        // As many members, in two nodes.
        let ring: Vec<DeviceSlot> = (0..n).map(|at| device_slot(at % 2 * per_node)).collect();
        Some(time(&ring))
    } else {
        None
    };
    least.unwrap_or_default() * u128::from(one.times)
}

/// Of one candidate. An error says why it is none.
pub(super) fn of_candidate(problem: &Problem, written: &Instance, candidate: &Candidate) -> Result<Prospect, String> {
    let Candidate { layout, variant, .. } = candidate;
    if problem.trained.is_some() {
        return of_group(problem, written, layout, candidate.keeping).ok_or_else(|| "no bound".to_owned());
    }
    let sketch = sketch(problem, written, layout, variant)?;
    let (mut schedule, dependencies) = (sketch.schedule.clone(), &sketch.order.dependencies);
    let pipeline = candidate.pipeline(problem);
    let stages = written.stages(&pipeline, &schedule)?;
    schedule.n_microbatches = u32::try_from(layout.microbatches).map_err(|_| "too many microbatches".to_owned())?;
    let costs = costs(&written.request, Some(&pipeline), &stages, &schedule);
    let held = vec![u64::MAX; schedule.n_devices()];
    let bound = lower_bound(&schedule, dependencies, &costs, (&schedule.activations, &held)).makespan;
    let target = target(&written.request, Some(&pipeline), &stages, &schedule);
    let exchanged = target.map_or(Ticks::ZERO, |target| least_exchange(&target, &pipeline.transformer));
    let (device, bytes) = fullest(&schedule, &stages, pipeline.offload);
    let time = bound + exchanged + least_back(problem, &schedule, &stages, pipeline.offload);
    Ok(Prospect { time, device, bytes, usual: bytes })
}

/// Whether a candidate's order of tasks depends on what they take.
pub(super) fn is_reordered(problem: &Problem, written: &Instance, candidate: &Candidate) -> bool {
    let sketch = sketch(problem, written, &candidate.layout, &candidate.variant);
    sketch.is_ok_and(|sketch| sketch.schedule.reorder.is_some())
}

/// The schedule of a few microbatches: all that bounds ask of it is where its tasks are, and of which kinds.
fn sketch(
    problem: &Problem,
    written: &Instance,
    layout: &Layout,
    variant: &Variant,
) -> Result<std::sync::Arc<crate::tune::instantiate::Sound>, String> {
    let few = 2 * layout.devices;
    if few < layout.microbatches
        && let Ok(found) = written.sketch(problem, variant, layout.devices, few)
    {
        return Ok(found);
    }
    written.sketch(problem, variant, layout.devices, layout.microbatches)
}

/// What every device exchanges at the end of a step at least.
fn least_exchange(target: &TimedTarget<'_>, transformer: &Option<Transformer>) -> Ticks {
    let Some(transformer) = transformer else { return Ticks::ZERO };
    let mut of_device = vec![Ticks::ZERO; target.schedule.n_devices()];
    for (stage, account) in target.schedule.placement.stages().zip(&target.stages.accounts) {
        let time = target.exchanged(stage, &at_end(transformer, account));
        target.schedule.placement.devices_of(stage).iter().for_each(|home| of_device[home.index()] += time);
    }
    of_device.into_iter().min().unwrap_or_default()
}

/// What the device that copies most copies back to its host behind the exchange of gradients: only then all is updated.
fn least_back(problem: &Problem, schedule: &Schedule, stages: &StageSet, offload: Offload) -> Ticks {
    let bytes = of_devices(schedule, stages, |account| account.away(offload)).into_iter().max();
    problem.copying(bytes.unwrap_or_default())
}

/// What the stages of each device have in all.
fn of_devices(schedule: &Schedule, stages: &StageSet, bytes: impl Fn(&StageAccount) -> u128) -> Vec<u128> {
    let placement = &schedule.placement;
    let mut all = vec![0_u128; schedule.n_devices()];
    for (stage, account) in placement.stages().zip(&stages.accounts) {
        placement.devices_of(stage).iter().for_each(|home| all[home.index()] += bytes(account));
    }
    all
}

/// The device that holds most when a microbatch has gone forward through its stages.
fn fullest(schedule: &Schedule, stages: &StageSet, offload: Offload) -> (DeviceId, Bytes) {
    let placement = &schedule.placement;
    let state = of_devices(schedule, stages, |account| account.staying(offload));
    let mut kept = vec![0_u128; schedule.n_devices()];
    for turn in (0..placement.period()).map(MicrobatchId) {
        let mut own = vec![0_u128; schedule.n_devices()];
        for (stage, account) in placement.stages().zip(&stages.accounts) {
            placement.devices(stage, turn).iter().for_each(|device| own[device.index()] += account.activations());
        }
        kept.iter_mut().zip(own).for_each(|(kept, own)| *kept = (*kept).max(own));
    }
    let sums = state.iter().zip(&kept).map(|(state, kept)| Bytes(narrow(state + kept)));
    let all = (0..).map(DeviceId).zip(sums);
    all.max_by_key(|(device, bytes)| (*bytes, std::cmp::Reverse(*device))).unwrap_or((DeviceId(0), Bytes::ZERO))
}

pub(super) fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
