//! Joins: where many tasks wait for the same tasks, as all devices do that have a stage at once. What they wait for is
//! looked at once, and not once for each of them.

use crate::dependencies::Join;
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use std::collections::BTreeMap;

/// The joins of a run, as far as it has come.
#[derive(Default)]
pub struct JoinWaits(BTreeMap<Join, JoinWait>);

/// How far a join has come.
#[derive(Default)]
struct JoinWait {
    /// How many of its tasks, in their order, have run.
    ran: usize,
    /// The queue that waits for the next of them.
    watcher: Option<usize>,
    /// Other queues that wait for all of them.
    others: Vec<usize>,
}

/// What a queue finds that comes to a join.
pub enum Found<T> {
    /// All of its tasks have run. These queues may go on.
    Complete(Vec<usize>),
    /// It is to wait for this one.
    Missing(T),
    /// Another queue waits for the next of them, and lets it know.
    Watched,
}

impl JoinWaits {
    /// Looks at the tasks of a join that were not known to have run. `missing` says what to wait for if one has not.
    pub fn come<T>(
        &mut self,
        (join, n_tasks): (Join, usize),
        queue: usize,
        missing: impl Fn(usize) -> Option<T>,
    ) -> Found<T> {
        let own = self.0.entry(join).or_default();
        if own.watcher.is_some_and(|watcher| watcher != queue) {
            own.others.push(queue);
            return Found::Watched;
        }
        own.watcher = None;
        while own.ran < n_tasks {
            if let Some(missing) = missing(own.ran) {
                own.watcher = Some(queue);
                return Found::Missing(missing);
            }
            own.ran += 1;
        }
        Found::Complete(std::mem::take(&mut own.others))
    }
}

/// The latest of what arrives at a device from devices that are all equally far from each other.
#[derive(Clone, Copy, Debug)]
pub struct Latest<T> {
    /// The latest of all, and where it is from.
    first: Option<(Ticks, DeviceId, T)>,
    /// The latest from another device.
    second: Option<(Ticks, T)>,
}

impl<T: Copy> Latest<T> {
    /// Of these, each from one device.
    pub fn of(all: impl IntoIterator<Item = (Ticks, DeviceId, T)>) -> Self {
        let mut latest = Self { first: None, second: None };
        for (end, device, what) in all {
            match latest.first {
                Some((most, from, before)) if end > most => {
                    if from != device {
                        latest.second = Some((most, before));
                    }
                    latest.first = Some((end, device, what));
                }
                Some((_, from, _)) => {
                    let is_later = latest.second.is_none_or(|(second, _)| end > second);
                    if from != device && is_later {
                        latest.second = Some((end, what));
                    }
                }
                None => latest.first = Some((end, device, what)),
            }
        }
        latest
    }

    /// What arrives last at a device, if all others are so far away.
    pub fn at(&self, device: DeviceId, far: Ticks) -> Option<(Ticks, T)> {
        match self.first? {
            (end, from, what) if from != device => Some((end + far, what)),
            (end, _, what) => {
                let other = self.second.map(|(end, what)| (end + far, what));
                Some(other.filter(|(other, _)| *other > end).unwrap_or((end, what)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_arrival_is_that_of_all_pairs() {
        let mut state = 1_u64;
        let mut draw = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for _ in 0..2_000 {
            let all: Vec<(Ticks, DeviceId, ())> =
                (0..draw(6)).map(|_| (Ticks(draw(9)), DeviceId(draw(4) as u32), ())).collect();
            let (far, device) = (Ticks(draw(4)), DeviceId(draw(4) as u32));
            let hop = |from: DeviceId| if from == device { Ticks::ZERO } else { far };
            let each = all.iter().map(|(end, from, ())| *end + hop(*from)).max();
            assert_eq!(Latest::of(all.iter().copied()).at(device, far).map(|(end, ())| end), each, "{all:?}");
        }
    }
}
