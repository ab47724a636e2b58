//! Recomputation: which stages and microbatches run their forward again for the backward pass, and where `R`
//! stands if the schedule does not say it.
//!
//! An `order` or a `block` may place `R` itself. Where a pipeline or the command line asks for it,
//! `R` goes right before its backward: nobody else waits for it, and activations live shortest
//! there. In a block it then takes no slot of its own, but stands at the slot of its backward, so
//! that the order of the slots is still one in which everything runs.

use crate::schedule::{BlockTask, Schedule, ScheduledTask};
use crate::stage_range::stages;
use crate::timing::durations::{Costs, Times};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::ops::Range;
use std::str::FromStr;

/// The stages or microbatches that a user wants to recompute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recomputation {
    /// Every stage.
    All,
    /// The stages in these ranges.
    Stages(Vec<Range<u32>>),
    /// For each stage: whether it recomputes each microbatch of a step. Each slice counts as one.
    Microbatches(Vec<Vec<bool>>),
}

impl FromStr for Recomputation {
    type Err = String;

    /// Reads `all`, `none`, or stages and ranges of stages between commas: `0..2,5`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "all" => Ok(Self::All),
            "none" => Ok(Self::Stages(Vec::new())),
            text => {
                let ranges: Result<Vec<_>, _> = text.split(',').map(|range| stages(range.trim())).collect();
                ranges.map(Self::Stages).map_err(|_| "expected `all`, `none` or stages, as in `0..2,5`".to_owned())
            }
        }
    }
}

impl Recomputation {
    /// Whether a stage is asked to, for a microbatch.
    pub fn has(&self, stage: StageId, microbatch: MicrobatchId) -> bool {
        match self {
            Self::All => true,
            Self::Stages(ranges) => ranges.iter().any(|range| range.contains(&stage.0)),
            Self::Microbatches(all) => {
                let own = all.get(stage.index()).map_or(&[][..], Vec::as_slice);
                microbatch.index().checked_rem(own.len()).is_some_and(|microbatch| own[microbatch])
            }
        }
    }

    /// Whether some stage is to recompute some microbatches, but not all.
    pub fn is_varied(&self) -> bool {
        let Self::Microbatches(all) = self else { return false };
        all.iter().any(|own| own.contains(&true) && own.contains(&false))
    }

    /// A stage that it names, and that is not one of so many.
    pub fn beyond(&self, n_stages: usize) -> Option<StageId> {
        let Self::Stages(ranges) = self else { return None };
        let last = ranges.iter().filter(|range| !range.is_empty()).map(|range| range.end - 1).max()?;
        (last as usize >= n_stages).then_some(StageId(last))
    }
}

/// The stages of a schedule that recompute, some microbatches at least, by [`StageId`].
pub fn recomputing(schedule: &Schedule) -> Vec<bool> {
    let mut all = vec![false; schedule.n_stages()];
    for task in schedule.orders.iter().flatten().map(|scheduled| scheduled.task) {
        if task.kind == TaskKind::Recompute
            && let Some(recomputes) = all.get_mut(task.stage.index())
        {
            *recomputes = true;
        }
    }
    all
}

/// The stages that recompute, with all of their parts if one does.
fn recomputing_stages(schedule: &Schedule) -> Vec<bool> {
    let rows = recomputing(schedule);
    let of_stage = |row: StageId| schedule.parts.rows(schedule.parts.stage_of(row)).any(|other| rows[other]);
    (0..rows.len()).map(StageId::from_index).map(of_stage).collect()
}

/// Whether a task is one right before which `R` goes.
const fn is_backward(kind: TaskKind) -> bool {
    matches!(kind, TaskKind::BackwardInput | TaskKind::Backward)
}

/// How many tasks [`insert`] adds.
pub fn added(schedule: &Schedule, is_asked: impl Fn(StageId, MicrobatchId) -> bool) -> usize {
    let has = recomputing_stages(schedule);
    let tasks = schedule.orders.iter().flatten().map(|scheduled| scheduled.task);
    let is_asked = |task: &Task| is_asked(task.stage, task.microbatch) && !has[task.stage.index()];
    tasks.filter(|task| is_backward(task.kind) && is_asked(task)).count()
}

/// Adds `R` to stages that have none. Each `R` stands right before its backward, or before the pair that has it. If
/// microbatches differ, the schedule must not have a block.
pub fn insert(schedule: &mut Schedule, is_asked: impl Fn(StageId, MicrobatchId) -> bool) {
    let has = recomputing_stages(schedule);
    let wants = |kind: TaskKind, stage: StageId, microbatch: MicrobatchId| {
        is_backward(kind) && is_asked(stage, microbatch) && !has[stage.index()]
    };
    for order in &mut schedule.orders {
        let mut longer: Vec<ScheduledTask> = Vec::with_capacity(order.len());
        for scheduled in order.iter() {
            let task = scheduled.task;
            if wants(task.kind, task.stage, task.microbatch) {
                let shares = longer.last().is_some_and(|before| before.with_next);
                let again = Task { kind: TaskKind::Recompute, ..task };
                let again = ScheduledTask { task: again, with_next: false, ..*scheduled };
                longer.insert(longer.len() - usize::from(shares), again);
            }
            longer.push(*scheduled);
        }
        *order = longer;
    }
    let Some(block) = &mut schedule.block else { return };
    let n_slots = block.slots.len();
    let both = |task: &BlockTask| {
        let again = BlockTask { kind: TaskKind::Recompute, ..*task };
        [wants(task.kind, task.stage, task.microbatch).then_some(again), Some(*task)].into_iter().flatten()
    };
    block.slots = block.slots.iter().flat_map(both).collect();
    if block.slots.len() > n_slots {
        let all = block.of_parts.iter_mut().chain([&mut block.durations]);
        all.for_each(|durations| durations[TaskKind::Recompute.index()] = 0);
    }
}

/// The same tasks without recomputation, as orders.
pub fn without(schedule: &Schedule) -> Schedule {
    let mut schedule = schedule.clone();
    schedule.orders.iter_mut().for_each(|order| order.retain(|one| one.task.kind != TaskKind::Recompute));
    schedule
}

/// Costs of a schedule [`without`] recomputation that takes as long: backwards of these stages take
/// what their `R` takes, too.
pub fn folded(costs: &Costs, recomputing: &[bool]) -> Costs {
    let mut costs = costs.clone();
    let fold = |times: &mut Times| {
        let again = times[TaskKind::Recompute.index()];
        TaskKind::ALL.into_iter().filter(|kind| is_backward(*kind)).for_each(|kind| times[kind.index()] += again);
    };
    costs.tasks.iter_mut().zip(recomputing).filter(|(_, recomputes)| **recomputes).for_each(|(times, _)| fold(times));
    for (each, _) in costs.each.iter_mut().zip(recomputing).filter(|(_, recomputes)| **recomputes) {
        if let Some(each) = each {
            let mut folded = each.to_vec();
            folded.iter_mut().for_each(fold);
            *each = folded.into();
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::check::memory::{certificates, peaks};
    use crate::examples::{by_hand, one_f_one_b, v_half};

    #[test]
    fn stages_are_read_as_ranges() {
        let of = |text: &str| {
            text.parse::<Recomputation>()
                .map(|asked| (0..6).filter(|stage| asked.has(StageId(*stage), MicrobatchId(0))).collect())
        };
        assert_eq!(of("all"), Ok(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(of("none"), Ok(vec![]));
        assert_eq!(of("0..2, 5"), Ok(vec![0, 1, 5]));
        for text in ["", "0..", "-1", "2..2", "s1", "0;1", "all,1"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!("0..2,5".parse::<Recomputation>().expect("stages").beyond(5), Some(StageId(5)));
        assert_eq!("0..2,5".parse::<Recomputation>().expect("stages").beyond(6), None);
    }

    #[test]
    fn microbatches_of_later_steps_are_like_those_of_the_first() {
        let asked = Recomputation::Microbatches(vec![vec![true, false, false], vec![false; 3]]);
        let of = |stage| (0..6).filter(|m| asked.has(StageId(stage), MicrobatchId(*m))).collect::<Vec<u32>>();
        assert_eq!([of(0), of(1), of(2)], [vec![0, 3], vec![], vec![]]);
        assert!(asked.is_varied() && !Recomputation::Microbatches(vec![vec![true; 3]]).is_varied());
        let mut schedule = by_hand(&[0], 3, &["F0.0 F0.1 BW0.0 F0.2 BW0.1 BW0.2"]);
        insert(&mut schedule, |stage, microbatch| asked.has(stage, microbatch));
        let words: Vec<String> = schedule.orders[0].iter().map(|one| one.task.to_string()).collect();
        assert_eq!(words.join(", "), "F s0 m0, F s0 m1, R s0 m0, BW s0 m0, F s0 m2, BW s0 m1, BW s0 m2");
        // The first forward saves nothing, and the others do until their backwards.
        let order = check(&schedule).expect("sound");
        assert_eq!(peaks(&schedule, &order.dependencies)[0].activations, 2);
    }

    #[test]
    fn pairs_stay_together_and_what_recomputes_already_stays_as_it_is() {
        let mut schedule = by_hand(&[0, 0], 1, &["F0.0 F1.0 R1.0 BW1.0 BW0.0"]);
        schedule.orders[0][0].with_next = true;
        assert_eq!(added(&schedule, |_, _| true), 1);
        insert(&mut schedule, |_, _| true);
        let words = |schedule: &Schedule| -> Vec<String> {
            schedule.orders[0].iter().map(|one| one.task.to_string()).collect()
        };
        assert_eq!(words(&schedule), ["F s0 m0", "F s1 m0", "R s1 m0", "BW s1 m0", "R s0 m0", "BW s0 m0"]);
        let mut schedule = by_hand(&[0], 2, &["F0.0 F0.1 BW0.0 BW0.1"]);
        schedule.orders[0][1].with_next = true;
        insert(&mut schedule, |_, _| true);
        assert_eq!(words(&schedule), ["F s0 m0", "R s0 m0", "F s0 m1", "BW s0 m0", "R s0 m1", "BW s0 m1"]);
    }

    #[test]
    fn a_block_stays_sound_and_holds_one_activation_at_a_time() {
        let mut schedule = one_f_one_b(4, 8);
        insert(&mut schedule, |stage, _| stage.0 < 3);
        let order = check(&schedule).expect("sound");
        let held: Vec<u64> = peaks(&schedule, &order.dependencies).iter().map(|peak| peak.activations).collect();
        assert_eq!(held, [1; 4]);
        let certified: Vec<_> =
            certificates(&schedule).expect("a block").iter().map(|one| (one.bound, one.exact)).collect();
        assert_eq!(certified, [(1, 1); 4]);
        let mut schedule = v_half(4, 8);
        insert(&mut schedule, |_, _| true);
        let order = check(&schedule).expect("sound");
        for (peak, one) in peaks(&schedule, &order.dependencies).iter().zip(certificates(&schedule).expect("a block")) {
            assert!(peak.activations <= one.exact && one.exact <= one.bound, "{peak:?} {one:?}");
        }
    }
}
