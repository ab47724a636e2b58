//! Seats: in which order the nodes of a cluster are filled for a candidate, where they are not all alike.
//!
//! A candidate is first timed on a cluster whose links are all as good as the best one, which no order makes slower. Only where that is among the
//! best so far, orders are looked at ([`crate::mapping`]): all, where there are few and the step can be timed quickly, and else some.

use super::candidate::Candidate;
use super::evaluate::{Taken, evaluate};
use super::problem::Problem;
use super::written::{Sound, Written};
use crate::Request;
use crate::mapping::steps::Steps;
use crate::mapping::{Found, Options, best};
use crate::timed::Setting;

/// All orders of up to six nodes, and some hundred of more: `check --map` looks longer.
const OPTIONS: Options = Options { seed: 1, moves: 300, most_orders: 720 };

/// The same of a schedule that is reordered for each order of nodes, which takes longer: all orders of up to four.
const REORDERED: Options = Options { seed: 1, moves: 40, most_orders: 24 };

/// Of more nodes, microbatches for each device of a pipeline: enough for links to be waited for as in a whole step.
const MICROBATCHES: u64 = 2;

/// A candidate with its nodes in an order.
pub(super) struct Seated {
    pub candidate: Candidate,
    pub taken: Taken,
    /// Whether no order is shorter.
    pub is_best: bool,
}

/// The candidate with its nodes in the best order that is found, and what it takes then.
///
/// # Errors
/// Why its schedule does not go with its sizes.
pub(super) fn seated(problem: &Problem, written: &Written, candidate: &Candidate) -> Result<Seated, String> {
    let request = &problem.request;
    let taken = evaluate(problem, (written, request), candidate, false)?;
    let few = (MICROBATCHES * candidate.layout.devices).min(candidate.layout.microbatches);
    let found = match ordered(problem, written, candidate, few) {
        Ok(found) if !found.is_best => found,
        // There are so few orders that each can be looked at with the whole step.
        _ => ordered(problem, written, candidate, candidate.layout.microbatches)?,
    };
    // Copies are only in what the program takes, which is not written for every order.
    let is_best = found.is_best && !candidate.keeping.offload.any();
    let as_numbered = Seated { candidate: candidate.clone(), taken, is_best };
    if found.nodes.is_sorted() {
        return Ok(as_numbered);
    }
    let candidate = Candidate { nodes: found.nodes, ..candidate.clone() };
    let taken = evaluate(problem, (written, request), &candidate, false)?;
    let rank = |taken: &Taken| (!taken.fits(problem), taken.time);
    Ok(if rank(&taken) < rank(&as_numbered.taken) { Seated { candidate, taken, is_best } } else { as_numbered })
}

/// The best order that is found for a step of so many microbatches.
fn ordered(problem: &Problem, written: &Written, candidate: &Candidate, microbatches: u64) -> Result<Found, String> {
    let (layout, request) = (&candidate.layout, &problem.request);
    let Sound { mut schedule, order } = written.write(problem, &candidate.variant, layout.devices, microbatches)?;
    let pipeline = candidate.pipeline(problem);
    let stages = written.stages(&pipeline, &schedule)?;
    stages.tell(&mut schedule);
    let setting = Setting { stages: &stages, pipeline: Some(&pipeline), request };
    let time =
        |request: &Request| Setting { request, ..setting }.timed(schedule.clone(), order.clone()).timeline.makespan();
    let steps = Steps::new(setting, (&schedule, &order), &time).ok_or("the cluster has too few devices")?;
    Ok(best(&steps, if schedule.reorder.is_some() { REORDERED } else { OPTIONS }, &mut || true))
}
