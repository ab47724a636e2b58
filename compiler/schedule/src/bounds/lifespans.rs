//! How long each stage holds the activations of a microbatch at least: the longest way from its forward through those
//! that need it to its `B`, or `BW`, and to the end of that.
//!
//! If one stage alone reads a stage, the way leads through that one. If many stages read many others, as where several
//! devices have stages at once, the longest way between any two of these is looked for once.

use super::{Chain, Hops};
use crate::stage_graph::ListId;
use crate::units::Ticks;
use pipe_ir::ids::StageId;

/// By [`StageId`].
pub(super) fn lifespans(chain: &Chain, hops: &Hops<'_>) -> Vec<Ticks> {
    let n_stages = chain.forward.len();
    if hops.graph.is_chain() {
        return chain.backward.iter().zip(&chain.forward).map(|(last, first)| last.end() - first.head).collect();
    }
    let mut all = vec![Ticks::ZERO; n_stages];
    let mut known: Option<(ListId, Option<Way>)> = None;
    for stage in (0..n_stages).rev().map(StageId::from_index) {
        let both = chain.forward[stage.index()].duration + chain.backward[stage.index()].duration;
        let after = hops.graph.after(stage);
        let between = |way: &Way| way.time + hops.latency(stage, way.first) + hops.latency(way.last, stage);
        all[stage.index()] = match after {
            [] => both,
            [only] => both + between(&Way { first: *only, last: *only, time: all[only.index()] }),
            _ => {
                let far = hops.graph.join_after(stage).zip(hops.alone(stage));
                let through = far.and_then(|(list, (far, _))| {
                    let way = match known {
                        Some((before, way)) if list == before => way,
                        _ => longest(chain, hops, after, None),
                    };
                    known = Some((list, way));
                    // Other ways are no longer, unless a device of this one is near.
                    way.filter(|way| between(way) == way.time + far + far)
                });
                let through = through.map(|way| between(&way));
                let through = through.or_else(|| Some(longest(chain, hops, after, Some(stage))?.time));
                both + through.unwrap_or_default()
            }
        };
    }
    all
}

/// The longest way from the start of the forward of a stage to the end of the backward of one.
#[derive(Clone, Copy)]
struct Way {
    first: StageId,
    last: StageId,
    time: Ticks,
}

/// The longest way from any of these stages, which ascend, to any of them. If they are read from another stage, also
/// the way there, and the way back.
fn longest(chain: &Chain, hops: &Hops<'_>, stages: &[StageId], of: Option<StageId>) -> Option<Way> {
    let start = stages.first()?.index();
    let n_stages = chain.forward.len();
    // By stage from there on: when its forward, and its backward, end at the latest, and where that way begins.
    let mut ends: Vec<[Option<(Ticks, StageId)>; 2]> = vec![[None; 2]; n_stages - start];
    let later =
        |one: Option<(Ticks, StageId)>, other: (Ticks, StageId)| one.filter(|one| one.0 >= other.0).or(Some(other));
    let mut own = stages.iter().peekable();
    let mut known = None;
    for next in start..n_stages {
        let is_reached = hops.graph.before(StageId::from_index(next)).last().is_some_and(|last| last.index() >= start);
        let end = |before: usize| ends[before.checked_sub(start)?][0];
        let input = if is_reached { hops.latest_before(next, &mut known, end) } else { None };
        let begins = own.next_if(|stage| stage.index() == next);
        let begins = begins.map(|stage| (of.map_or(Ticks::ZERO, |of| hops.latency(of, *stage)), *stage));
        let begins = begins.into_iter().fold(input, later);
        ends[next - start][0] = begins.map(|(begin, first)| (begin + chain.forward[next].duration, first));
    }
    let mut known = None;
    for next in (start..n_stages).rev() {
        let Some(forward) = ends[next - start][0] else { continue };
        let input = hops.latest_after(next, &mut known, |after| ends[after - start][1]);
        let begins = later(input, forward);
        ends[next - start][1] = begins.map(|(begin, first)| (begin + chain.backward[next].duration, first));
    }
    let ways = stages.iter().filter_map(|last| {
        let (end, first) = ends[last.index() - start][1]?;
        Some(Way { first, last: *last, time: end + of.map_or(Ticks::ZERO, |of| hops.latency(*last, of)) })
    });
    ways.max_by_key(|way| way.time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Step;
    use crate::examples::by_hand;
    use crate::placement::{DeviceSets, Placement};
    use crate::stage_graph::StageGraph;
    use crate::timing::latency::Latency;
    use pipe_ir::ids::DeviceId;

    struct Draw(u64);

    impl Draw {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % most
        }
    }

    /// From each stage on its own, through all stages behind it.
    fn one_by_one(chain: &Chain, hops: &Hops<'_>) -> Vec<Ticks> {
        let n_stages = chain.forward.len();
        let id = StageId::from_index;
        let of = |own: usize| {
            let mut ends: Vec<[Option<Ticks>; 2]> = vec![[None; 2]; n_stages];
            ends[own][0] = Some(chain.forward[own].duration);
            for next in own + 1..n_stages {
                let inputs = hops.graph.before(id(next)).iter();
                let inputs = inputs.filter_map(|from| Some(ends[from.index()][0]? + hops.latency(*from, id(next))));
                ends[next][0] = inputs.max().map(|start| start + chain.forward[next].duration);
            }
            for next in (own..n_stages).rev() {
                let Some(forward) = ends[next][0] else { continue };
                let inputs = hops.graph.after(id(next)).iter();
                let inputs = inputs.filter_map(|from| Some(ends[from.index()][1]? + hops.latency(*from, id(next))));
                ends[next][1] = Some(inputs.fold(forward, Ord::max) + chain.backward[next].duration);
            }
            ends[own][1].unwrap_or_default()
        };
        (0..n_stages).map(of).collect()
    }

    /// Groups of stages, each on a device of its own or on several at once, that read groups before them.
    fn random(draw: &mut Draw) -> (Vec<(StageId, StageId)>, DeviceSets) {
        let mut sets = DeviceSets::default();
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        let mut edges = Vec::new();
        for place in 0..2 + draw.below(5) {
            let size = if draw.below(2) == 0 { 1 } else { 3 + draw.below(5) };
            let start = sets.len();
            for device in 0..size as u32 {
                if size == 1 && draw.below(2) == 0 {
                    sets.push((0..8).map(DeviceId));
                } else {
                    sets.push([DeviceId(if size == 1 { draw.below(8) as u32 } else { device })]);
                }
            }
            let own = start..sets.len();
            for before in groups.iter().skip(place.saturating_sub(1 + draw.below(2))) {
                let is_alone = before.len() == own.len() && draw.below(2) == 0;
                for (from, to) in before.clone().flat_map(|from| own.clone().map(move |to| (from, to))) {
                    if !is_alone || from - before.start == to - own.start {
                        edges.push((StageId::from_index(from), StageId::from_index(to)));
                    }
                }
            }
            groups.push(own);
        }
        (edges, sets)
    }

    #[test]
    fn lifespans_are_those_that_each_stage_has_on_its_own() {
        let draw = &mut Draw(7);
        let mut joins = 0;
        for _ in 0..1_500 {
            let (edges, sets) = random(draw);
            let graph = StageGraph::new(sets.len(), edges);
            let n_stages = graph.n_stages();
            let mut schedule = by_hand(&[0], 1, &["F0.0 B0.0 W0.0"]);
            schedule.placement = Placement::of_stages(sets);
            schedule.orders = vec![Vec::new(); 8];
            let latency = match draw.below(3) {
                0 => Latency::with_links(Ticks(2), [(DeviceId(0), DeviceId(1), Ticks(5))].into_iter()),
                _ => Latency::uniform(Ticks(draw.below(4) as u64)),
            };
            let mut step = || Step { duration: Ticks(1 + draw.below(5) as u64), ..Step::default() };
            let mut steps = || (0..n_stages).map(|_| step()).collect::<Vec<_>>();
            let mut chain = Chain {
                forward: steps(),
                recompute: vec![Step::default(); n_stages],
                backward: steps(),
                weight: vec![Step::default(); n_stages],
                most_forward: Vec::new(),
                most: Vec::new(),
                most_weight: Vec::new(),
                lifespans: Vec::new(),
            };
            let hops = Hops { schedule: &schedule, graph: &graph, latency: &latency };
            chain.heads(&hops);
            joins += (0..n_stages).filter(|stage| graph.join_after(StageId::from_index(*stage)).is_some()).count();
            assert_eq!(lifespans(&chain, &hops), one_by_one(&chain, &hops), "{graph:?}");
            // Heads, likewise.
            for stage in (0..n_stages).map(StageId::from_index) {
                let inputs = graph.before(stage).iter();
                let inputs = inputs.map(|from| chain.forward[from.index()].end() + hops.latency(*from, stage));
                assert_eq!(chain.forward[stage.index()].head, inputs.max().unwrap_or_default(), "{graph:?}");
            }
        }
        assert!(joins > 2_000, "{joins}");
    }
}
