//! Levels: how many bytes are alive at each moment, where they change over ranges of moments and
//! the most of a range is asked for.
//!
//! A tree over the moments: each node knows the most of its half, so that a change and a question
//! take a number of steps that grows with the logarithm of the moments.

use std::ops::Range;

/// Bytes alive, by moment.
pub(super) struct Levels {
    /// Leaves of the tree: a power of two.
    width: usize,
    /// By node, the root at 1: the most below it, with what was added to it, but not with what was added above.
    most: Vec<i128>,
    /// By node: what was added to everything below it.
    added: Vec<i128>,
}

impl Levels {
    pub(super) fn new(alive: &[u64]) -> Self {
        let width = alive.len().next_power_of_two();
        let mut most = vec![0; 2 * width];
        for (place, bytes) in most.iter_mut().skip(width).zip(alive) {
            *place = i128::from(*bytes);
        }
        for node in (1..width).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self { width, added: vec![0; 2 * width], most }
    }

    /// The most bytes alive in a range of moments; none in an empty one.
    pub(super) fn most(&self, range: &Range<usize>) -> i128 {
        self.most_below(1, 0..self.width, range).unwrap_or(0)
    }

    fn most_below(&self, node: usize, own: Range<usize>, range: &Range<usize>) -> Option<i128> {
        if own.end <= range.start || range.end <= own.start {
            return None;
        }
        if range.start <= own.start && own.end <= range.end {
            return Some(self.most[node]);
        }
        let middle = own.start.midpoint(own.end);
        let low = self.most_below(2 * node, own.start..middle, range);
        let high = self.most_below(2 * node + 1, middle..own.end, range);
        low.max(high).map(|most| most + self.added[node])
    }

    /// Adds bytes to all moments of a range, or takes them away.
    pub(super) fn add(&mut self, range: &Range<usize>, bytes: i128) {
        self.add_below(1, 0..self.width, range, bytes);
    }

    fn add_below(&mut self, node: usize, own: Range<usize>, range: &Range<usize>, bytes: i128) {
        if own.end <= range.start || range.end <= own.start {
            return;
        }
        if range.start <= own.start && own.end <= range.end {
            self.most[node] += bytes;
            self.added[node] += bytes;
            return;
        }
        let middle = own.start.midpoint(own.end);
        self.add_below(2 * node, own.start..middle, range, bytes);
        self.add_below(2 * node + 1, middle..own.end, range, bytes);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;

    #[test]
    fn the_most_of_a_range_is_what_counting_one_by_one_gives() {
        let mut plain: Vec<u64> = (0..11).map(|moment| moment * 7 % 5 + 20).collect();
        let mut levels = Levels::new(&plain);
        for round in 0..200_usize {
            let (one, other) = (round * 5 % 12, round * 7 % 12);
            let range = one.min(other)..one.max(other);
            let more = round as u64 % 4;
            plain[range.clone()].iter_mut().for_each(|bytes| *bytes += more);
            levels.add(&range, i128::from(more));
            let asked = round % 11..(round * 3 % 11 + 1).max(round % 11 + 1);
            let expected = plain[asked.clone()].iter().max().copied().unwrap_or(0);
            assert_eq!(levels.most(&asked), i128::from(expected), "{asked:?}");
        }
        assert_eq!(levels.most(&(3..3)), 0);
    }
}
