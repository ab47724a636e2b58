//! The longest chain of tasks where stages read earlier microbatches: there a chain leads through many microbatches.

use super::{Chain, Hops};
use crate::units::Ticks;
use pipe_ir::ids::StageId;

/// The least makespan by the longest chain, and the stage whose task ends it.
pub(super) fn longest(chain: &Chain, hops: &Hops<'_>) -> Option<(Ticks, StageId)> {
    let graph = hops.graph;
    let (n_stages, n_microbatches) = (graph.n_stages(), hops.schedule.n_microbatches as usize);
    if graph.earlier().is_empty() {
        return None;
    }
    let stages = || (0..n_stages).map(StageId::from_index);
    // By microbatch and stage: when tasks end at the earliest.
    let mut forward = vec![vec![Ticks::ZERO; n_stages]; n_microbatches];
    let mut best: Option<(Ticks, StageId)> = None;
    let mut meet = |makespan: Ticks, stage| best = best.max(Some((makespan, stage)));
    for own in 0..n_microbatches {
        let mut known = None;
        for stage in stages() {
            let step = chain.forward[stage.index()];
            let same = hops.latest_before(stage.index(), &mut known, |from| Some((forward[own][from], ())));
            let same = same.map(|(end, ())| end);
            let earlier = graph.earlier_before(stage).filter_map(|edge| {
                let from = own.checked_sub(edge.behind as usize)?;
                Some(forward[from][edge.from.index()] + hops.latency(edge.from, stage))
            });
            forward[own][stage.index()] = same.into_iter().chain(earlier).fold(Ticks::ZERO, Ord::max) + step.duration;
            meet(forward[own][stage.index()] + step.tail, stage);
        }
    }
    let mut backward = vec![vec![Ticks::ZERO; n_stages]; n_microbatches];
    for own in (0..n_microbatches).rev() {
        let mut known = None;
        for stage in stages().rev().filter(|stage| hops.schedule.frozen.has_backward(*stage)) {
            let step = chain.backward[stage.index()];
            let same = hops.latest_after(stage.index(), &mut known, |to| Some((backward[own][to], ())));
            let same = same.map(|(end, ())| end);
            let later = graph.earlier_after(stage).filter_map(|edge| {
                let ends = backward.get(own + edge.behind as usize)?[edge.to.index()];
                Some(ends + hops.latency(edge.to, stage))
            });
            let saved = forward[own][stage.index()] + chain.recompute[stage.index()].duration;
            let start = same.into_iter().chain(later).fold(saved, Ord::max);
            backward[own][stage.index()] = start + step.duration;
            meet(backward[own][stage.index()] + step.tail, stage);
        }
    }
    best
}
