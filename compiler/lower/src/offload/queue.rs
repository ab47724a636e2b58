//! The timetable of a queue of copies, which carries one after the other.

use std::collections::BTreeMap;

/// How many times at which the queue is busy are looked at for one copy: those that are looked for
/// far away hide less anyway.
const LOOKS: usize = 64;

/// When a queue is busy. What touches is one time.
#[derive(Default)]
pub(super) struct CopyTimetable {
    /// By start: the end.
    busy: BTreeMap<u64, u64>,
}

impl CopyTimetable {
    pub(super) fn new(busy: &[(u64, u64)]) -> Self {
        let mut queue = Self::default();
        busy.iter().for_each(|(start, end)| queue.take(*start, *end));
        queue
    }

    /// The earliest start of a copy that begins and ends between two moments.
    pub(super) fn earliest(&self, from: u64, length: u64, until: u64) -> Option<u64> {
        let before = self.busy.range(..=from).next_back().map(|(_, end)| *end);
        let mut start = from.max(before.unwrap_or(0));
        let mut behind = self.busy.range(start..);
        for _ in 0..LOOKS {
            let end = start.checked_add(length).filter(|end| *end <= until)?;
            match behind.next() {
                Some((next, busy_until)) if *next < end => start = *busy_until,
                _ => return Some(start),
            }
        }
        None
    }

    /// The latest start of a copy that begins and ends between two moments.
    pub(super) fn latest(&self, until: u64, length: u64, from: u64) -> Option<u64> {
        let mut end = until;
        let mut before = self.busy.range(..until).rev();
        for _ in 0..LOOKS {
            let start = end.checked_sub(length).filter(|start| *start >= from)?;
            match before.next() {
                Some((next, busy_until)) if *busy_until > start => end = *next,
                _ => return Some(start),
            }
        }
        None
    }

    /// Takes a time at which the queue is not busy yet.
    pub(super) fn take(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        if let Some((before, until)) = self.busy.range(..=start).next_back().filter(|(_, until)| **until >= start) {
            (start, end) = (*before, end.max(*until));
        }
        while let Some((next, until)) = self.busy.range(start..).find(|(next, _)| **next != start) {
            if *next > end {
                break;
            }
            let (next, until) = (*next, *until);
            end = end.max(until);
            self.busy.remove(&next);
        }
        self.busy.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::CopyTimetable;

    #[test]
    fn copies_take_the_first_or_the_last_time_that_is_free() {
        let queue = CopyTimetable::new(&[(12, 15), (0, 3), (5, 8), (8, 9)]);
        assert_eq!(queue.busy.len(), 3);
        assert_eq!(queue.earliest(0, 2, 20), Some(3));
        assert_eq!(queue.earliest(1, 3, 20), Some(9));
        assert_eq!(queue.earliest(6, 4, 20), Some(15));
        assert_eq!(queue.earliest(6, 4, 18), None);
        assert_eq!(queue.earliest(3, 2, 5), Some(3));
        assert_eq!(queue.latest(20, 5, 0), Some(15));
        assert_eq!(queue.latest(19, 5, 0), None);
        assert_eq!(queue.latest(14, 3, 0), Some(9));
        assert_eq!(queue.latest(12, 3, 10), None);
        assert_eq!(queue.latest(5, 2, 3), Some(3));
        assert_eq!(queue.latest(5, 2, 4), None);
        assert_eq!(CopyTimetable::default().earliest(4, u64::MAX, u64::MAX), None);
    }

    #[test]
    fn every_free_time_is_found_as_by_looking_at_each_moment() {
        for seed in 0..400_u64 {
            let mut queue = CopyTimetable::default();
            let mut busy = [false; 40];
            for round in 0..5 {
                let start = (seed * 31 + round * 17) % 36;
                let end = start + 1 + (seed + round) % 4;
                if !busy[start as usize..end as usize].contains(&true) {
                    busy[start as usize..end as usize].fill(true);
                    queue.take(start, end);
                }
            }
            let (from, length, until) = (seed % 20, 1 + seed % 5, 22 + seed % 18);
            let mut free = (from..until).filter(|start| {
                start + length <= until && !busy[*start as usize..(start + length) as usize].contains(&true)
            });
            assert_eq!(queue.earliest(from, length, until), free.clone().next(), "seed {seed}");
            assert_eq!(queue.latest(until, length, from), free.next_back(), "seed {seed}");
        }
    }
}
