//! Rule: where `BW` of a stage has a cost and a half of it has none, the half follows from it: half
//! of it each, or what the given half leaves.
//!
//! That is an assumption, not a definition, so reports name every half that took its cost this way.

use super::{CostName, OfStage, Said, StageCosts, Times, by_stage};
use crate::units::Ticks;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;

/// The halves of a backward.
pub(super) const HALVES: [TaskKind; 2] = [TaskKind::BackwardInput, TaskKind::BackwardWeight];

/// A half of a backward that has no cost of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Half {
    /// `B` or `W`.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: StageId,
    /// How long it is assumed to take.
    pub time: Ticks,
    /// How long `BW` of this stage takes.
    pub both: Ticks,
}

/// The halves of one stage that follow from its `BW`, with what they take. Of an odd number of
/// ticks, `B` has the longer half.
pub(super) fn of(tasks: &Times, said: &Said) -> impl Iterator<Item = (TaskKind, Ticks)> + use<> {
    let [both, input, weight] = [TaskKind::Backward, HALVES[0], HALVES[1]].map(|kind| tasks[kind.index()]);
    let short = Ticks(both.0 / 2);
    let times = match HALVES.map(|half| said[half.index()]) {
        _ if !said[TaskKind::Backward.index()] => [None; 2],
        [false, false] => [Some(both - short), Some(short)],
        [true, false] => [None, Some(both - input)],
        [false, true] => [Some(both - weight), None],
        [true, true] => [None; 2],
    };
    HALVES.into_iter().zip(times).filter_map(|(half, time)| Some((half, time?)))
}

/// The halves that follow from `BW`, stage by stage. Stages whose microbatches differ are left out.
pub fn following(costs: &StageCosts, n_stages: usize) -> Vec<Half> {
    let of_stage = |(stage, OfStage { times, said, .. }): (usize, OfStage)| {
        let (stage, both) = (StageId::from_index(stage), times[TaskKind::Backward.index()]);
        of(&times, &said).map(move |(kind, time)| Half { kind, stage, time, both })
    };
    let mut differs = vec![false; n_stages];
    for entry in costs.entries.iter().filter(|entry| entry.each.is_some()) {
        if let CostName::Stages(_, about) = &entry.name {
            let about = differs.iter_mut().take(about.end as usize).skip(about.start as usize);
            about.for_each(|differs| *differs = true);
        }
    }
    let alike = by_stage(costs, n_stages).enumerate().filter(|(stage, _)| !differs[*stage]);
    alike.flat_map(of_stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_without_costs_follow_from_both_at_once() {
        let found = |text: &str| -> Vec<(&str, u32, u64)> {
            let costs = StageCosts::parse(text).expect("well-formed");
            let of_half = |half: Half| (half.kind.letters(), half.stage.0, half.time.0);
            following(&costs, 2).into_iter().map(of_half).collect()
        };
        let all = [("B", 0, 2_500_000), ("W", 0, 2_500_000), ("B", 1, 2_500_000), ("W", 1, 2_500_000)];
        assert_eq!(found("F=1,BW=5"), all);
        assert_eq!(found("BW=0.000005")[..2], [("B", 0, 3), ("W", 0, 2)]);
        assert_eq!(found("BW=5,B=4")[..1], [("W", 0, 1_000_000)]);
        assert_eq!(found("BW=5,W=4")[..1], [("B", 0, 1_000_000)]);
        assert_eq!(found("BW=5,W=6")[..1], [("B", 0, 0)]);
        assert_eq!(found("BW[1]=4"), [("B", 1, 2_000_000), ("W", 1, 2_000_000)]);
        assert_eq!(found("B=1,BW[1]=4"), [("W", 1, 3_000_000)]);
        for none in ["", "F=1,B=2,W=3", "BW=5,B=2,W=2", "B=1,W=1,BW[1]=4"] {
            assert_eq!(found(none), [], "{none}");
        }
    }
}
