//! Freezes stages of a schedule: removes tasks that they do not have, and adapts their costs.

use super::frozen::{Frozen, Gradients};
use crate::schedule::{BlockTask, Schedule, ScheduledTask};
use crate::stage_graph::StageGraph;
use crate::step_tasks::StepTaskKind;
use crate::timing::durations::{Costs, Times};
use crate::units::Ticks;
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};

/// Freezes more stages of a schedule. Tasks that they do not have drop out of the orders and the block. `BW` of a
/// frozen stage becomes `B`, with the slots of `BW` if the block has no `B`.
pub fn freeze(schedule: &mut Schedule, graph: &StageGraph, is_frozen: impl Fn(StageId) -> bool) {
    let stages = (0..schedule.n_stages()).map(StageId::from_index);
    let frozen: Vec<bool> = stages.map(|stage| schedule.frozen.is_frozen(stage) || is_frozen(stage)).collect();
    let all = Frozen::new(&frozen, graph);
    for order in &mut schedule.orders {
        let mut left: Vec<ScheduledTask> = Vec::with_capacity(order.len());
        for scheduled in order.iter() {
            let task = scheduled.task;
            if let Some(kind) = all.kind(task.kind, task.stage) {
                left.push(ScheduledTask { task: Task { kind, ..task }, ..*scheduled });
            } else if let Some(partner) = left.last_mut() {
                // A forward whose partner is not there has the device for itself.
                partner.with_next = false;
            }
        }
        *order = left;
    }
    if let Some(block) = &mut schedule.block {
        let has_half = block.slots.iter().any(|task| task.kind == TaskKind::BackwardInput);
        if !has_half {
            for durations in block.of_parts.iter_mut().chain([&mut block.durations]) {
                durations[TaskKind::BackwardInput.index()] = durations[TaskKind::Backward.index()];
            }
        }
        let left = |task: &BlockTask| Some(BlockTask { kind: all.kind(task.kind, task.stage)?, ..*task });
        block.slots = block.slots.iter().filter_map(left).collect();
    }
    // What keeps nothing has nothing that could leave.
    schedule.swaps.retain(|stage| all.has_backward(stage));
    // What stays as it is has no gradients, but tasks read it.
    schedule.step_tasks.retain(|one| one.kind == StepTaskKind::Gather || !all.is_frozen(one.stage));
    schedule.activations = schedule.activations.without(&all, schedule.n_stages());
    schedule.frozen = all;
}

/// Adapts costs that were given for stages that train: a frozen stage's `BW` takes as long as its `B`, and kinds of
/// tasks that it does not have take no time.
#[must_use]
pub fn costs(schedule: &Schedule, mut costs: Costs) -> Costs {
    for stage in schedule.placement.stages().filter(|stage| schedule.frozen.is_frozen(*stage)) {
        let gradients = schedule.frozen.gradients(stage);
        costs.tasks[stage.index()] = times(gradients, &costs.tasks[stage.index()]);
        let each = costs.each.get_mut(stage.index()).and_then(Option::as_mut);
        each.into_iter().for_each(|each| *each = each.iter().map(|own| times(gradients, own)).collect());
    }
    costs
}

/// The task durations of a frozen stage, computed from the durations of the same stage when it trains.
fn times(gradients: Gradients, times: &Times) -> Times {
    let mut own = *times;
    own[TaskKind::Backward.index()] = times[TaskKind::BackwardInput.index()];
    let absent = TaskKind::ALL.into_iter().filter(|kind| !gradients.need(*kind));
    absent.for_each(|kind| own[kind.index()] = Ticks::ZERO);
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::check::memory::{certificates, peaks};
    use crate::examples::{by_hand, one_f_one_b, v_half};

    fn words(schedule: &Schedule, device: usize) -> Vec<String> {
        schedule.orders[device].iter().map(|one| one.task.to_string()).collect()
    }

    #[test]
    fn what_is_not_there_drops_out_and_its_partner_runs_alone() {
        let mut schedule = by_hand(&[0, 0], 1, &["F0.0 F1.0 B1.0 W1.0 B0.0 W0.0"]);
        schedule.orders[0][1].with_next = true;
        freeze(&mut schedule, &StageGraph::chain(2), |stage| stage.0 == 1);
        assert_eq!(words(&schedule, 0), ["F s0 m0", "F s1 m0", "B s1 m0", "B s0 m0", "W s0 m0"]);
        assert!(schedule.orders[0][1].with_next);
        let mut schedule = by_hand(&[0, 0], 1, &["F0.0 F1.0 B1.0 W1.0 B0.0 W0.0"]);
        schedule.orders[0][1].with_next = true;
        freeze(&mut schedule, &StageGraph::chain(2), |stage| stage.0 == 1);
        freeze(&mut schedule, &StageGraph::chain(2), |stage| stage.0 == 0);
        assert_eq!(words(&schedule, 0), ["F s0 m0", "F s1 m0"]);
        assert!(schedule.frozen.is_forward_only() && !schedule.orders[0][1].with_next);
    }

    #[test]
    fn frozen_blocks_are_sound_and_hold_no_more() {
        for all in [one_f_one_b(4, 8), v_half(4, 8)] {
            let n_stages = all.n_stages();
            let before = peaks(&all, &check(&all).expect("sound").dependencies);
            for frozen in 0..1 << n_stages {
                let mut schedule = all.clone();
                freeze(&mut schedule, &all.graph, |stage| frozen >> stage.0 & 1 == 1);
                let order = check(&schedule).unwrap_or_else(|found| panic!("{frozen:b} {found:?}"));
                let held = peaks(&schedule, &order.dependencies);
                let certified = certificates(&schedule).expect("a block");
                for ((held, certified), before) in held.iter().zip(certified).zip(&before) {
                    assert!(held.activations <= certified.exact && certified.exact <= certified.bound, "{frozen:b}");
                    assert!(held.activations <= before.activations, "{frozen:b}");
                }
            }
        }
    }
}
