//! Seats: in which order the nodes of a cluster are filled for a candidate, where they are not all alike.
//!
//! A candidate is first timed on a cluster whose links are all as good as the best one, which no order makes slower. Only where that is among the
//! best so far, orders are looked at ([`crate::mapping`]).

use super::candidate::Candidate;
use super::evaluate::{Taken, evaluate};
use super::problem::Problem;
use super::written::{Sound, Written};
use crate::mapping::steps::Steps;
use crate::mapping::{Found, Options, best};
use crate::timed::Setting;

/// All orders of up to six nodes, and some hundred of more: `check --map` looks longer.
const OPTIONS: Options = Options { seed: 1, moves: 300, most_orders: 720 };

/// Of more nodes, microbatches for each device of a pipeline: enough for links to be waited for as in a whole step.
const MICROBATCHES: u64 = 2;

/// The candidate with its nodes in the best order that is found, and what it takes then.
///
/// # Errors
/// Why its schedule does not go with its sizes.
pub(super) fn seated(
    problem: &Problem,
    written: &Written,
    candidate: &Candidate,
) -> Result<(Candidate, Taken), String> {
    let request = &problem.request;
    let as_numbered = (candidate.clone(), evaluate(problem, (written, request), candidate, false)?);
    let few = (MICROBATCHES * candidate.layout.devices).min(candidate.layout.microbatches);
    let found = match ordered(problem, written, candidate, few) {
        Ok(found) if !found.is_best => found,
        // There are so few orders that each can be looked at with the whole step.
        _ => ordered(problem, written, candidate, candidate.layout.microbatches)?,
    };
    if found.nodes.is_sorted() {
        return Ok(as_numbered);
    }
    let ordered = Candidate { nodes: found.nodes, ..candidate.clone() };
    let taken = evaluate(problem, (written, request), &ordered, false)?;
    // A schedule may be reordered otherwise under other links.
    let is_better = |one: &Taken, other: &Taken| (!one.fits(problem), one.time) < (!other.fits(problem), other.time);
    Ok(if is_better(&taken, &as_numbered.1) { (ordered, taken) } else { as_numbered })
}

/// The best order that is found for a step of so many microbatches.
fn ordered(problem: &Problem, written: &Written, candidate: &Candidate, microbatches: u64) -> Result<Found, String> {
    let (layout, request) = (&candidate.layout, &problem.request);
    let Sound { mut schedule, order } = written.write(problem, &candidate.variant, layout.devices, microbatches)?;
    let pipeline = candidate.pipeline(problem);
    let stages = written.stages(&pipeline, &schedule)?;
    stages.tell(&mut schedule);
    let timed = Setting { stages: &stages, pipeline: Some(&pipeline), request }.timed(schedule, order);
    let steps = Steps::of(request, Some(&pipeline), (&timed.schedule, &timed.order), &stages);
    let steps = steps.ok_or("the cluster has too few devices")?;
    Ok(best(&steps, OPTIONS, &mut || true))
}
