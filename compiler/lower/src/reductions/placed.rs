//! Applies the places that orders give to reductions. Reductions without a place stay where they are, or move later.

use pipe_ir::ids::StageId;
use pipe_model::stage_set::StageSet;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_schedule::timing::reductions::Reduction;
use std::collections::BTreeSet;

/// Moves members to their places, and sorts reductions so that each device can join placed ones exactly there. `all` is
/// sorted by the time at which the last member could join; the result keeps that order where places allow it.
pub(super) fn in_order(schedule: &Schedule, set: &StageSet, mut all: Vec<Reduction>) -> Vec<Reduction> {
    let stages = |one: &Reduction| -> BTreeSet<StageId> {
        let group = set.weights.iter().find(|group| group.gradients == Some(one.gradients));
        group.into_iter().flat_map(|group| group.stages.iter().copied()).collect()
    };
    let own: Vec<BTreeSet<StageId>> = all.iter().map(stages).collect();
    // By device: where it joins each reduction, and whether its list says that.
    let mut lists = vec![Vec::new(); schedule.n_devices()];
    for (index, one) in all.iter_mut().enumerate() {
        for member in &mut one.members {
            let placed = schedule.step_tasks.of(member.device).iter();
            let placed = placed.filter(|task| task.kind == StepTaskKind::Reduce && own[index].contains(&task.stage));
            let before = placed.map(|task| (task.at, schedule.tasks_before(member.device, task))).max();
            if let Some(after) = before.and_then(|(_, before)| u32::try_from(before.checked_sub(1)?).ok()) {
                member.after = member.after.max(Some(after));
            }
            // Weights that several stages share are summed up after the last of these stages.
            let place = before.filter(|_| own[index].len() == 1).map_or(u32::MAX, |(at, _)| at);
            lists[member.device.index()].push((member.after, place, index));
        }
    }
    // On each device, a placed reduction comes before the next placed one, and before all others until then.
    let mut next: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); all.len()];
    for list in &mut lists {
        list.sort_unstable();
        let mut last = None;
        for (_, place, index) in list {
            last.map(|last: usize| next[last].insert(*index));
            last = if *place == u32::MAX { last } else { Some(*index) };
        }
    }
    let mut waits = vec![0_usize; all.len()];
    next.iter().flatten().for_each(|index| waits[*index] += 1);
    let mut ready: BTreeSet<usize> = (0..all.len()).filter(|index| waits[*index] == 0).collect();
    let mut sorted = Vec::with_capacity(all.len());
    while let Some(index) = ready.pop_first() {
        sorted.push(index);
        for follower in &next[index] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                ready.insert(*follower);
            }
        }
    }
    let mut all: Vec<Option<Reduction>> = all.into_iter().map(Some).collect();
    sorted.into_iter().filter_map(|index| all[index].take()).collect()
}
