//! Node orders: in which order the nodes of a cluster are filled for a candidate, where they are not all alike.
//!
//! A candidate is first timed on a cluster whose links are all as good as the best one, which no
//! order makes slower. Only where that is among the best so far, orders are looked at
//! ([`pipe_compiler::mapping`]): all, where there are few and the step can be timed quickly, and
//! else some.
//!
//! What is under way between devices depends on times, so that a candidate may fit in some orders of its
//! nodes only. Where the shortest does not fit, every order is written out, as long as there are few.

use super::candidate::Candidate;
use super::evaluate::{StepTime, evaluate};
use super::orders;
use super::problem::Problem;
use crate::tune::instantiate::{Instance, Sound};
use pipe_compiler::Request;
use pipe_compiler::mapping::steps::Steps;
use pipe_compiler::mapping::{MappingResult, Objective, Options, best};
use pipe_compiler::timing::Setting;
use pipe_schedule::units::Ticks;

/// All orders of up to six nodes, and some hundred of more: `check --map` looks longer.
const OPTIONS: Options = Options { seed: 1, moves: 300, most_orders: 720 };

/// The same of a schedule that is reordered for each order of nodes, which takes longer: all orders of up to four.
const REORDERED: Options = Options { seed: 1, moves: 40, most_orders: 24 };

/// Of more nodes, microbatches for each device of a pipeline: enough for links to be waited for as in a whole step.
const MICROBATCHES: u64 = 2;

/// Programs are written for every order of so many nodes.
const WRITTEN: u32 = 4;

/// A candidate with its nodes in an order.
pub(super) struct NodeOrder {
    pub candidate: Candidate,
    pub taken: StepTime,
    /// Whether no order that fits is shorter, or none fits.
    pub is_best: bool,
    /// No order is shorter, whether it fits or not.
    pub least: Option<Ticks>,
}

/// The candidate with its nodes in the best order that is found, and what it takes then. An error says why its schedule
/// does not go with its sizes.
pub(super) fn with_node_order(
    problem: &Problem,
    written: &Instance,
    candidate: &Candidate,
) -> Result<NodeOrder, String> {
    let request = &problem.request;
    let taken = evaluate(problem, (written, request), candidate, false)?;
    let few = (MICROBATCHES * candidate.layout.devices).min(candidate.layout.microbatches);
    let found = match ordered(problem, written, candidate, few) {
        Ok(found) if !found.is_best => found,
        // There are so few orders that each can be looked at with the whole step.
        _ => ordered(problem, written, candidate, candidate.layout.microbatches)?,
    };
    let least = found.is_best.then_some(found.time);
    let mut best = (taken, candidate.clone());
    let rank = |taken: &StepTime| (!taken.fits(problem), taken.time);
    let look = |best: &mut (StepTime, Candidate), nodes: Vec<u32>| {
        let candidate = Candidate { nodes, ..candidate.clone() };
        let taken = evaluate(problem, (written, request), &candidate, false)?;
        if rank(&taken) < rank(&best.0) {
            *best = (taken, candidate);
        }
        Ok::<bool, String>(taken.fits(problem))
    };
    let fits = if found.nodes.is_sorted() { taken.fits(problem) } else { look(&mut best, found.nodes)? };
    // Copies are only in what the program takes.
    let mut is_best = found.is_best && fits && !candidate.keeping.offload.any();
    if !is_best && problem.cluster.n_nodes() <= WRITTEN {
        for (time, nodes) in timed(problem, written, candidate)? {
            // Copies only add to that.
            if best.0.fits(problem) && best.0.time <= time {
                break;
            }
            look(&mut best, nodes)?;
        }
        is_best = true;
    }
    let (taken, candidate) = best;
    Ok(NodeOrder { candidate, taken, is_best, least })
}

/// The best order that is found for a step of so many microbatches.
fn ordered(
    problem: &Problem,
    written: &Instance,
    candidate: &Candidate,
    microbatches: u64,
) -> Result<MappingResult, String> {
    with_steps((problem, written, candidate), microbatches, |steps, is_reordered| {
        best(steps, if is_reordered { REORDERED } else { OPTIONS }, &mut || true)
    })
}

/// All orders with what their steps take without copies, the shortest first.
fn timed(problem: &Problem, written: &Instance, candidate: &Candidate) -> Result<Vec<(Ticks, Vec<u32>)>, String> {
    with_steps((problem, written, candidate), candidate.layout.microbatches, |steps, _| {
        let mut all: Vec<_> = orders(problem).into_iter().map(|nodes| (steps.time(&nodes), nodes)).collect();
        all.sort();
        all
    })
}

/// Does something with the step of a candidate with so many microbatches, and whether it is reordered for
/// each order of its nodes.
fn with_steps<T>(
    (problem, written, candidate): (&Problem, &Instance, &Candidate),
    microbatches: u64,
    work: impl FnOnce(&Steps<'_>, bool) -> T,
) -> Result<T, String> {
    let (layout, request) = (&candidate.layout, &problem.request);
    let Sound { mut schedule, order } = written.write(problem, &candidate.variant, layout.devices, microbatches)?;
    let pipeline = candidate.pipeline(problem);
    let stages = written.stages(&pipeline, &schedule)?;
    stages.tell(&mut schedule);
    let setting = Setting { stages: &stages, pipeline: Some(&pipeline), request };
    let time =
        |request: &Request| Setting { request, ..setting }.timed(schedule.clone(), order.clone()).timeline.makespan();
    let steps = Steps::new(setting, (&schedule, &order), &time).ok_or("the cluster has too few devices")?;
    Ok(work(&steps, schedule.reorder.is_some()))
}
