//! Better warm-up and cool-down for a repeated block, within the peak that every device has anyway.
//!
//! [`crate::dispatch::improve`] looks for shorter schedules, starting from the block; its steady
//! state, or another one that takes no more memory, is repeated for steps of any length. The plain
//! order stays unless the result is shorter, or as short with a shorter longest span, and no
//! device holds more: neither units of activations nor, with a model, bytes that its tasks save,
//! including what `B` keeps for its `W`. Transfers, and halves that lowering may join, are not
//! counted. Where stages recompute, `R` and its backward are ordered as one task, so that no more
//! microbatches are in flight on any device. V-Min, V-Half and ZB-V are no longer than the figures
//! published with them (arXiv 2405.15362, 2401.10241; `tests/tests/published_v.rs`).

use crate::check::memory::peaks;
use crate::check::{completeness, dependencies};
use crate::dependencies::Dependencies;
use crate::dispatch::improve::{Slots, improved};
use crate::dispatch::job::{Job, Mention, Orders, SeriesId, TaskSeries};
use crate::dispatch::scale::Scale;
use crate::order::Order;
use crate::policy::recompute::{folded, insert, recomputing, without};
use crate::saved::Saved;
use crate::schedule::{Schedule, ScheduledTask};
use crate::timing::durations::Costs;
use crate::timing::timeline::{Timeline, simulate};
use crate::units::Ticks;
use pipe_ir::ids::{IndexVec, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeMap;

/// Tasks that all schedules together may place that are tried.
const STEPS: u64 = 3_000_000;
/// Schedules that are checked, the best first, until one is as good as it promises.
const FINALISTS: usize = 2;

/// A shorter schedule of the same tasks under these costs, with the evidence that it runs to its end. The given one if
/// none was found, if stages live on several devices, have parts or read earlier microbatches, or if microbatches or
/// slices differ in what they keep. `saved`, by stage, limits the bytes of each device to what the given order takes.
pub fn reorder(schedule: Schedule, order: Order, costs: &Costs, saved: Option<&[Saved]>) -> (Schedule, Order) {
    let has_pairs = || schedule.orders.iter().flatten().any(|scheduled| scheduled.with_next);
    let reads_earlier = !schedule.graph.earlier().is_empty();
    if schedule.placement.is_replicated()
        || schedule.placement.spread_stage().is_some()
        || reads_earlier
        || !schedule.shares.is_empty()
        || !schedule.parts.is_empty()
        || !schedule.recomputed_microbatches().is_empty()
        || has_pairs()
    {
        return (schedule, order);
    }
    let least = merit(&simulate(&schedule, &order, costs));
    let limit = held(&schedule, &order, saved);
    let recomputing = recomputing(&schedule);
    let (plain, folded) = (without(&schedule), folded(costs, &recomputing));
    // The search promises sound orders; the checks decide.
    let checked = |orders: Vec<Vec<ScheduledTask>>| {
        let mut candidate = Schedule { orders, block: None, ..plain.clone() };
        insert(&mut candidate, |stage, _| recomputing[stage.index()]);
        candidate.block.clone_from(&schedule.block);
        let evidence = completeness::check(&candidate).and_then(|table| dependencies::check(&candidate, table)).ok()?;
        let fits = held(&candidate, &evidence, saved).iter().zip(&limit).all(|(held, limit)| held.is_within(limit));
        let reached = merit(&simulate(&candidate, &evidence, costs));
        (fits && reached < least).then_some((reached, candidate, evidence))
    };
    let best = |counted: Option<&[Saved]>| {
        let found = candidates(&plain, &folded, counted).into_iter().filter_map(checked);
        found.min_by_key(|(reached, ..)| *reached)
    };
    // What keeps to the bytes may hold too many units; one of those that keep to the units may then keep to the bytes.
    let better = best(saved).or_else(|| saved.and_then(|_| best(None)));
    better.map_or((schedule, order), |(_, schedule, order)| (schedule, order))
}

/// The most that a device holds.
struct Most {
    /// Parts of activations.
    activations: u64,
    /// 0 without a model.
    bytes: i64,
}

impl Most {
    fn is_within(&self, limit: &Self) -> bool {
        self.activations <= limit.activations && self.bytes <= limit.bytes
    }
}

/// What every device holds at most.
fn held(schedule: &Schedule, order: &Order, saved: Option<&[Saved]>) -> Vec<Most> {
    let bytes = |device: usize| {
        let takes = |saved: &[Saved], task: Task| saved[task.stage.index()].takes(task.kind);
        saved.map_or(0, |saved| most(schedule.orders[device].iter().map(|one| takes(saved, one.task))))
    };
    let peaks = peaks(schedule, &order.dependencies);
    peaks
        .iter()
        .enumerate()
        .map(|(device, peak)| Most { activations: peak.activations, bytes: bytes(device) })
        .collect()
}

/// The largest sum of the first numbers.
fn most(takes: impl Iterator<Item = i64>) -> i64 {
    let sums = takes.scan(0, |held, takes| {
        *held += takes;
        Some(*held)
    });
    sums.max().unwrap_or(0)
}

/// What is to be small: above all the makespan.
fn merit(timeline: &Timeline) -> (Ticks, Ticks) {
    (timeline.makespan(), timeline.longest_stage())
}

/// Better orders of a schedule, if it takes microbatches in turn.
fn candidates(plain: &Schedule, costs: &Costs, saved: Option<&[Saved]>) -> Vec<Vec<Vec<ScheduledTask>>> {
    let dependencies = Dependencies::of(plain);
    let scale = Scale::new(costs, plain.n_tasks() * 2);
    let capacity = peaks(plain, &dependencies).iter().map(|peak| peak.activations.cast_signed()).collect();
    let mut job = Job::as_it_is(plain, &dependencies, costs, &scale, capacity);
    let Some(orders) = job.orders(plain) else { return Vec::new() };
    if let Some(saved) = saved {
        let takes = |series: &TaskSeries| saved[series.stage.index()].takes_with_recomputation(series.kind);
        let takes: IndexVec<SeriesId, i64> = job.series.iter().map(takes).collect();
        let of_mention = |mention: &Mention| takes[job.series_of(*mention).0];
        let capacity = orders.iter().map(|order| most(order.iter().map(of_mention))).collect();
        job = job.with_memory(&takes, capacity);
    }
    let statements: BTreeMap<(StageId, TaskKind), u16> =
        plain.orders.iter().flatten().map(|one| ((one.task.stage, one.task.kind), one.origin)).collect();
    let tasks = |orders: Orders| {
        let mut tasks = job.tasks(&orders);
        for one in tasks.iter_mut().flatten() {
            one.origin = statements.get(&(one.task.stage, one.task.kind)).copied().unwrap_or_default();
        }
        tasks
    };
    let slots = plain.block.as_ref().and_then(|block| Slots::of(&job, block));
    improved(&job, &orders, slots.as_ref(), STEPS).into_iter().take(FINALISTS).map(tasks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::examples::{one_f_one_b, v_half, v_zb};
    use crate::policy::activation::Shares;
    use crate::timing::costs::{StageCosts, of_stages};

    fn slots(schedule: Schedule, costs: &str) -> (u64, u64) {
        let costs = of_stages(&StageCosts::parse(costs).expect("well-formed"), schedule.n_stages());
        let order = check(&schedule).expect("sound");
        let plain = simulate(&schedule, &order, &costs).makespan();
        let before = peaks(&schedule, &order.dependencies);
        let (better, order) = reorder(schedule, order, &costs, None);
        for (peak, before) in peaks(&better, &order.dependencies).iter().zip(before) {
            assert!(peak.activations <= before.activations);
        }
        let length = simulate(&better, &order, &costs).makespan();
        (plain.0 / Ticks::UNIT.0, length.0 / Ticks::UNIT.0)
    }

    #[test]
    fn the_published_makespans_are_reached() {
        let cases = [
            (4, 8, 60, 53, 53, 51),
            (4, 16, 108, 101, 101, 99),
            (8, 16, 122, 113, 109, 103),
            (8, 32, 218, 209, 205, 199),
        ];
        for (p, m, half, half_better, zb, zb_better) in cases {
            assert_eq!(slots(v_half(p, m), ""), (half, half_better), "V-Half {p} {m}");
            assert_eq!(slots(v_zb(p, m), ""), (zb, zb_better), "V-ZB {p} {m}");
        }
    }

    #[test]
    fn no_device_holds_more_where_a_part_waits_for_weights() {
        for (schedule, shares) in [(v_half(4, 12), "W=1/3"), (v_zb(5, 9), "W=0"), (v_half(3, 7), "W=0.75,F[0]=2")] {
            let activations = shares
                .parse::<Shares>()
                .expect("well-formed")
                .of(schedule.n_stages(), &schedule.parts)
                .expect("few parts");
            let (plain, better) = slots(Schedule { activations, ..schedule }, "");
            assert!(better <= plain, "{shares}: {better}");
        }
    }

    #[test]
    fn no_device_holds_more_bytes_whatever_a_backward_keeps_for_its_weights() {
        let mut shorter = 0;
        for schedule in [v_half(3, 7), v_half(4, 12), v_zb(5, 9), v_zb(4, 20)] {
            let costs = of_stages(&StageCosts::parse("F=3,B=4,W=2,comm=1").expect("well-formed"), schedule.n_stages());
            for deferred in [0, 40, 300] {
                let of_stage = |stage: usize| Saved {
                    for_input: 100 + 7 * stage as i64,
                    for_weight: 50,
                    deferred: deferred * (1 + stage as i64 % 3),
                    ..Saved::default()
                };
                let saved: Vec<Saved> = (0..schedule.n_stages()).map(of_stage).collect();
                let order = check(&schedule).expect("sound");
                let limit = held(&schedule, &order, Some(&saved));
                let plain = simulate(&schedule, &order, &costs).makespan();
                let (better, order) = reorder(schedule.clone(), order, &costs, Some(&saved));
                let most = held(&better, &order, Some(&saved));
                assert!(most.iter().zip(&limit).all(|(most, limit)| most.is_within(limit)));
                let length = simulate(&better, &order, &costs).makespan();
                assert!(length <= plain);
                shorter += u32::from(length < plain);
            }
        }
        assert!(shorter >= 6, "{shorter} of 12");
    }

    #[test]
    fn no_order_gets_longer_whatever_tasks_cost() {
        for costs in ["F=5,B=6,W=4,comm=1", "F=1,B=2,W=1,comm=3", "F=0,B=0,W=0", "F=1000000000,B=1,W=0.000001,comm=7"] {
            for schedule in [v_half(3, 7), v_zb(5, 40), v_half(4, 1), one_f_one_b(4, 9)] {
                let (plain, better) = slots(schedule, costs);
                assert!(better <= plain, "{costs}: {better} > {plain}");
            }
        }
    }
}
