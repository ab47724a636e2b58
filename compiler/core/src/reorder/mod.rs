//! Better warm-up and cool-down for a repeated block, within the peak that every device has anyway.
//!
//! A portfolio of list schedules, guided by the plain order, runs on a step with few microbatches. The best ones are cut
//! in their steady state, where a window holds every lane equally often, and that window is repeated for the
//! microbatches left out: so the search costs about the same for every number of microbatches. The plain order stays
//! unless the result is shorter and holds no more on any device. Where stages recompute, `R` and its backward are ordered as one task; so
//! no more microbatches are under way on any device than before, either. V-Half and ZB-V reach the published makespans
//! (arXiv 2405.15362).

mod lanes;
mod list_schedule;
mod search;

use crate::check::dependencies::Order;
use crate::check::memory::peaks;
use crate::check::{completeness, dependencies};
use crate::dependencies::Dependencies;
use crate::recompute::{folded, insert, recomputing, without};
use crate::schedule::{Costs, Schedule};
use crate::timeline::place;
use lanes::Lanes;

/// A shorter schedule of the same tasks under these costs, with the evidence that it runs to its end; the given one
/// where none was found, or stages live on several devices.
#[must_use]
pub fn reorder(schedule: Schedule, order: Order, costs: &Costs) -> (Schedule, Order) {
    if schedule.placement.is_replicated() || schedule.placement.spread_stage().is_some() {
        return (schedule, order);
    }
    let mut makespan = place(&schedule, &order, costs).makespan();
    let limit: Vec<u64> = peaks(&schedule, &order.dependencies).iter().map(|peak| peak.activations).collect();
    let recomputing = recomputing(&schedule);
    let (plain, folded) = (without(&schedule), folded(costs, &recomputing));
    let dependencies = Dependencies::of(&plain);
    let under_way: Vec<u64> = peaks(&plain, &dependencies).iter().map(|peak| peak.activations).collect();
    let lanes = Lanes::new(&plain, &dependencies, &folded);
    let mut best = None;
    for orders in search::candidates(&lanes, &plain, &under_way).unwrap_or_default() {
        let mut candidate = Schedule { orders: lanes.tasks(&orders), block: None, ..plain.clone() };
        insert(&mut candidate, |stage| recomputing[stage.index()]);
        candidate.block.clone_from(&schedule.block);
        // The search promises sound orders; the checks decide.
        let evidence = completeness::check(&candidate).and_then(|table| dependencies::check(&candidate, table));
        let Ok(evidence) = evidence else { continue };
        let peaks = peaks(&candidate, &evidence.dependencies);
        let fits = peaks.iter().zip(&limit).all(|(peak, limit)| peak.activations <= *limit);
        let length = place(&candidate, &evidence, costs).makespan();
        if fits && length < makespan {
            makespan = length;
            best = Some((candidate, evidence));
        }
    }
    best.unwrap_or((schedule, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Shares;
    use crate::check::check;
    use crate::costs::of_stages;
    use crate::examples::{one_f_one_b, v_half, v_zb};
    use crate::pipeline::StageCosts;
    use crate::units::Ticks;

    fn slots(schedule: Schedule, costs: &str) -> (u64, u64) {
        let costs = of_stages(&StageCosts::parse(costs).expect("well-formed"), schedule.n_stages());
        let order = check(&schedule).expect("sound");
        let plain = place(&schedule, &order, &costs).makespan();
        let before = peaks(&schedule, &order.dependencies);
        let (better, order) = reorder(schedule, order, &costs);
        for (peak, before) in peaks(&better, &order.dependencies).iter().zip(before) {
            assert!(peak.activations <= before.activations);
        }
        let length = place(&better, &order, &costs).makespan();
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
            let activations =
                shares.parse::<Shares>().expect("well-formed").of(schedule.n_stages()).expect("few parts");
            let (plain, better) = slots(Schedule { activations, ..schedule }, "");
            assert!(better <= plain, "{shares}: {better}");
        }
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
