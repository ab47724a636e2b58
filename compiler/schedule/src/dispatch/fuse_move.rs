//! The other form of a backward, as a change of a schedule: at once instead of in halves, or the other way round.

use super::fusion::{Fusion, Part};
use super::plan::{NOWHERE, Plan};

/// What was there before a backward changed its form.
#[derive(Clone, Debug)]
pub struct Before {
    device: usize,
    order: Vec<u32>,
    /// The microbatch of the backward.
    microbatch: usize,
    fusion: usize,
    was_fused: bool,
}

impl Plan<'_> {
    /// Gives the backward to which a task of a device belongs the other form, if its stage has
    /// both, lives on that device alone, and the memory allows it. Where it is split, its `W` comes
    /// so many places after its `B`. All of that happens between two `limits`.
    pub fn change_form(
        &mut self,
        (device, place): (usize, usize),
        apart: usize,
        limits: (usize, usize),
    ) -> Option<Before> {
        let (m, job) = (self.job.microbatches, self.job);
        let node = *self.orders[device].get(place)? as usize;
        let microbatch = node % m;
        let (Part::First(fusion) | Part::Second(fusion)) = job.parts[node / m] else { return None };
        let Fusion { first, second, .. } = job.fusions[fusion];
        if job.series[first].devices.len() > 1 {
            return None;
        }
        let (input, weight) = (self.places[first][microbatch] as usize, self.places[second][microbatch]);
        let was_fused = weight == NOWHERE;
        let last = if was_fused { (input + apart).min(limits.1 - 1) } else { weight as usize };
        if input < limits.0 || last >= limits.1 || last >= self.orders[device].len() {
            return None;
        }
        if was_fused {
            // The activation is held for longer.
            let split = |place: usize| if place == input { first } else { self.mention(self.orders[device][place]) };
            if !job.fits_on(device, (0..=last).map(split)) {
                return None;
            }
        }
        let before = Before { device, order: self.orders[device].clone(), microbatch, fusion, was_fused };
        if was_fused {
            self.orders[device].insert(last + 1, (second * m + microbatch) as u32);
            self.name_in_turn(device, second);
        } else {
            self.orders[device].remove(last);
        }
        self.set_form(fusion, microbatch, !was_fused);
        self.note_places(device, 0, self.orders[device].len());
        Some(before)
    }

    /// The tasks of a series in the order of their microbatches.
    fn name_in_turn(&mut self, device: usize, series: usize) {
        let m = self.job.microbatches;
        let order = &mut self.orders[device];
        let is_own = |node: u32| node as usize / m == series;
        let mut nodes: Vec<u32> = order.iter().copied().filter(|node| is_own(*node)).collect();
        nodes.sort_unstable();
        for (place, node) in order.iter_mut().filter(|node| is_own(**node)).zip(nodes) {
            *place = node;
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
        let in_turn = job.on_device.iter().map(|all| all.repeat(4)).collect();
        let (mut plan, _) = Plan::new(&job, Objective::Makespan, &in_turn).expect("no cycle");
        let (mut random, mut changed) = (Random::new(3), [0, 0]);
        for _ in 0..400 {
            let device = random.below(3);
            let (place, whole) = (random.below(plan.n_tasks(device)), (0, plan.n_tasks(device)));
            let (orders, starts) = (plan.orders(), plan.starts().to_vec());
            let Some(before) = plan.change_form((device, place), random.below(6), whole) else { continue };
            changed[usize::from(before.was_fused)] += 1;
            let length = plan.time();
            let again = Plan::new(&job, Objective::Makespan, &plan.orders());
            assert_eq!(length, again.map(|(_, length)| length));
            if random.below(3) == 0 {
                plan.undo(before);
                plan.time();
                assert_eq!((plan.orders(), plan.starts()), (orders, &starts[..]));
            }
            assert!(job.fits(&plan.orders()));
        }
        assert!(changed.iter().all(|count| *count > 50), "{changed:?}");
    }
}
