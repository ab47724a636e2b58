//! The other form of a backward, as a change of a schedule: at once instead of in halves, or the other way round.

use super::fusion::{Fusion, Part};
use super::job::{FusionId, Mention, SeriesId, TaskId};
use super::plan::{NOWHERE, Plan};
use pipe_ir::ids::{DeviceId, MicrobatchId};
use std::ops::Range;

/// What was there before a backward changed its form.
#[derive(Clone, Debug)]
pub struct Before {
    device: DeviceId,
    order: Vec<TaskId>,
    /// The microbatch of the backward.
    microbatch: MicrobatchId,
    fusion: FusionId,
    was_fused: bool,
}

impl Plan<'_> {
    /// Gives the backward to which a task of a device belongs the other form, if its stage has
    /// both, lives on that device alone, and the memory allows it. Where it is split, its `W` comes
    /// so many places after its `B`. All of that happens within some places.
    pub fn change_form(
        &mut self,
        (device, place): (DeviceId, usize),
        apart: usize,
        within: Range<usize>,
    ) -> Option<Before> {
        let job = self.job;
        let (series, microbatch) = job.of_task(*self.orders[device].get(place)?);
        let (Part::First(fusion) | Part::Second(fusion)) = job.parts[series] else { return None };
        let Fusion { first, second, .. } = job.fusions[fusion];
        if job.series[first].devices.len() > 1 {
            return None;
        }
        let [input, weight] = [first, second].map(|half| self.places[half][microbatch.index()]);
        let (input, was_fused) = (input as usize, weight == NOWHERE);
        let last = if was_fused { (input + apart).min(within.end - 1) } else { weight as usize };
        if input < within.start || last >= within.end || last >= self.orders[device].len() {
            return None;
        }
        if was_fused {
            // The activation is held for longer.
            let split = |place: usize| {
                if place == input { Mention::Series(first) } else { self.mention(self.orders[device][place]) }
            };
            if !job.fits_on(device, (0..=last).map(split)) {
                return None;
            }
        }
        let before = Before { device, order: self.orders[device].clone(), microbatch, fusion, was_fused };
        if was_fused {
            self.orders[device].insert(last + 1, job.task(second, microbatch));
            self.name_in_turn(device, second);
        } else {
            self.orders[device].remove(last);
        }
        self.set_form(fusion, microbatch, !was_fused);
        self.note_places(device, 0, self.orders[device].len());
        Some(before)
    }

    /// The tasks of a series in the order of their microbatches.
    fn name_in_turn(&mut self, device: DeviceId, series: SeriesId) {
        let order = &mut self.orders[device];
        let is_own = |task: TaskId| self.job.of_task(task).0 == series;
        let mut tasks: Vec<TaskId> = order.iter().copied().filter(|task| is_own(*task)).collect();
        tasks.sort_unstable();
        for (place, task) in order.iter_mut().filter(|task| is_own(**task)).zip(tasks) {
            *place = task;
        }
    }

    /// Takes a change of form back.
    pub fn undo(&mut self, before: Before) {
        self.orders[before.device] = before.order;
        self.set_form(before.fusion, before.microbatch, before.was_fused);
        self.note_places(before.device, 0, self.orders[before.device].len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Objective;
    use crate::dispatch::random::Random;
    use crate::dispatch::samples::fusing;

    #[test]
    fn changes_of_form_keep_plans_whole_and_can_be_undone() {
        let job = fusing(3, 4, 3, [2, 3, 2, 4], 1);
        let in_turn = job.in_turn().swap_remove(0);
        let (mut plan, _) = Plan::new(&job, Objective::Makespan, &in_turn).expect("no cycle");
        let (mut random, mut changed) = (Random::new(3), [0, 0]);
        for _ in 0..400 {
            let device = DeviceId::from_index(random.below(3));
            let (place, whole) = (random.below(plan.n_tasks(device)), 0..plan.n_tasks(device));
            let (orders, starts) = (plan.orders(), plan.starts().clone());
            let Some(before) = plan.change_form((device, place), random.below(6), whole) else { continue };
            changed[usize::from(before.was_fused)] += 1;
            let length = plan.time();
            let again = Plan::new(&job, Objective::Makespan, &plan.orders());
            assert_eq!(length, again.map(|(_, length)| length));
            if random.below(3) == 0 {
                plan.undo(before);
                plan.time();
                assert_eq!((plan.orders(), plan.starts()), (orders, &starts));
            }
            assert!(job.fits(&plan.orders()));
        }
        assert!(changed.iter().all(|count| *count > 50), "{changed:?}");
    }
}
