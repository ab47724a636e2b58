//! Latency: how long a transfer takes from one device to another. Both ways take the same time.

use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use std::collections::BTreeMap;

/// The latency of every link between two devices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    usual: Ticks,
    /// Links that take another time, the lower device first, ascending.
    links: Vec<((DeviceId, DeviceId), Ticks)>,
    /// How long a sum of gradients takes, if that is said.
    sum: Option<Ticks>,
}

impl Latency {
    /// The same for every link.
    pub fn uniform(usual: Ticks) -> Self {
        Self { usual, ..Self::default() }
    }

    /// The same, but for some links; of several numbers for one link, the last one holds.
    pub fn with_links(usual: Ticks, links: impl Iterator<Item = (DeviceId, DeviceId, Ticks)>) -> Self {
        let mut links: Vec<_> = links.map(|(one, other, time)| ((one.min(other), one.max(other)), time)).collect();
        // A stable sort, read from the end: what was said last comes first.
        links.reverse();
        links.sort_by_key(|(ends, _)| *ends);
        links.dedup_by_key(|(ends, _)| *ends);
        Self { usual, links, sum: None }
    }

    /// The same, and how long a sum of gradients takes, if that is said.
    #[must_use]
    pub fn with_sum(self, sum: Option<Ticks>) -> Self {
        Self { sum, ..self }
    }

    /// How long a sum takes from when one of its members joins: as long as a transfer to the farthest of the others,
    /// unless it is said.
    pub fn of_sum(&self, member: DeviceId, members: impl Iterator<Item = DeviceId>) -> Ticks {
        self.sum.unwrap_or_else(|| self.farthest(member, members))
    }

    /// How long a sum of gradients takes, if that is said.
    pub const fn sum(&self) -> Option<Ticks> {
        self.sum
    }

    /// What every link takes, if all take the same.
    pub fn of_all(&self) -> Option<Ticks> {
        self.links.is_empty().then_some(self.usual)
    }

    /// From one device to another: nothing on one device.
    pub fn between(&self, one: DeviceId, other: DeviceId) -> Ticks {
        if one == other {
            return Ticks::ZERO;
        }
        let ends = (one.min(other), one.max(other));
        let found = self.links.binary_search_by_key(&ends, |(ends, _)| *ends);
        found.map_or(self.usual, |place| self.links[place].1)
    }

    /// From the devices that have something to those that need it, both ascending: each takes it
    /// from the nearest one, where it does not have it already, and the last one counts.
    pub fn between_sets(&self, from: &[DeviceId], to: &[DeviceId]) -> Ticks {
        self.between_queues(from, to, |device| device)
    }

    /// The same for queues of devices. `device` says whose a queue is; the devices of each set ascend like its queues.
    pub fn between_queues(&self, from: &[DeviceId], to: &[DeviceId], device: impl Fn(DeviceId) -> DeviceId) -> Ticks {
        if let ([one], [other]) = (from, to) {
            return self.between(device(*one), device(*other));
        }
        let has =
            |queues: &[DeviceId], own: DeviceId| queues.binary_search_by_key(&own, |queue| device(*queue)).is_ok();
        let others = || to.iter().map(|queue| device(*queue)).filter(|own| !has(from, *own));
        if self.links.is_empty() {
            return others().next().map_or(Ticks::ZERO, |_| self.usual);
        }
        // By device that needs it: over how many links of their own it may come, and the quickest of these.
        let mut special: BTreeMap<DeviceId, (usize, Ticks)> = BTreeMap::new();
        for ((one, other), time) in &self.links {
            for (near, far) in [(*one, *other), (*other, *one)] {
                if has(from, near) && has(to, far) {
                    let (count, least) = special.entry(far).or_insert((0, *time));
                    (*count, *least) = (*count + 1, (*least).min(*time));
                }
            }
        }
        let nearest = |device: DeviceId| match special.get(&device) {
            Some((count, least)) if *count == from.len() => *least,
            Some((_, least)) => self.usual.min(*least),
            None => self.usual,
        };
        others().map(nearest).max().unwrap_or_default()
    }

    /// From one device to the last of some others: nothing where there are no others.
    pub fn farthest(&self, from: DeviceId, to: impl Iterator<Item = DeviceId>) -> Ticks {
        let mut others = to.filter(|device| *device != from);
        if self.links.is_empty() {
            return others.next().map_or(Ticks::ZERO, |_| self.usual);
        }
        others.map(|device| self.between(from, device)).max().unwrap_or_default()
    }

    /// All times that links may take.
    pub fn times(&self) -> impl Iterator<Item = &Ticks> {
        self.links.iter().map(|(_, time)| time).chain([&self.usual])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_their_own_latency_both_ways() {
        let links = [(3, 0, 5), (1, 2, 7), (0, 3, 4)];
        let links = links.map(|(one, other, time)| (DeviceId(one), DeviceId(other), Ticks(time)));
        let latency = Latency::with_links(Ticks(1), links.into_iter());
        for ((one, other), time) in [((0, 3), 4), ((3, 0), 4), ((2, 1), 7), ((0, 1), 1), ((2, 2), 0), ((9, 3), 1)] {
            assert_eq!(latency.between(DeviceId(one), DeviceId(other)), Ticks(time), "{one} {other}");
        }
        let all = || (0..4).map(DeviceId);
        assert_eq!(all().map(|from| latency.farthest(from, all()).0).collect::<Vec<_>>(), [4, 7, 7, 4]);
        assert_eq!(latency.farthest(DeviceId(1), [DeviceId(1)].into_iter()), Ticks::ZERO);
        let alike = Latency::uniform(Ticks(2));
        assert_eq!([all().count(), 1].map(|n| alike.farthest(DeviceId(0), all().take(n)).0), [2, 0]);
        let sets = |from: &[u32], to: &[u32]| {
            let ids = |devices: &[u32]| devices.iter().map(|device| DeviceId(*device)).collect::<Vec<_>>();
            latency.between_sets(&ids(from), &ids(to)).0
        };
        let cases = [
            (&[0, 1][..], &[1][..], 0),
            (&[0, 1], &[3], 1),
            (&[0], &[0, 3], 4),
            (&[0, 2], &[1, 3], 1),
            (&[2], &[1, 3], 7),
        ];
        for (from, to, time) in cases {
            assert_eq!(sets(from, to), time, "{from:?} {to:?}");
        }
        assert_eq!(latency.times().map(|time| time.0).collect::<Vec<_>>(), [4, 7, 1]);
    }
}
