//! Windows: which tokens or which example of a file each row of a microbatch is. Always a pure function of step,
//! microbatch and row.

use crate::values::random::mix;
use pipe_ir::ids::MicrobatchId;
use std::ops::Range;

/// A row of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) step: u64,
    /// Of the step, as a whole.
    pub(super) microbatch: MicrobatchId,
    pub(super) row: u64,
    /// Rows of a microbatch.
    pub(super) rows: u64,
}

/// How much of a file a window takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Length {
    /// From one window to the next: its positions.
    step: u64,
    /// What it reads behind them.
    behind: u64,
}

impl Length {
    /// Each window is an example.
    pub(super) const OF_EXAMPLES: Self = Self { step: 1, behind: 0 };

    /// So many tokens, and the one after them, which is predicted.
    pub(super) const fn of_tokens(positions: u64) -> Self {
        Self { step: if positions == 0 { 1 } else { positions }, behind: 1 }
    }

    /// Windows without overlap in so many tokens or examples.
    pub(super) fn windows(self, count: u64) -> u64 {
        (count.saturating_sub(self.behind) / self.step).max(1)
    }
}

/// Which windows rows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Windows {
    /// Windows that begin anywhere.
    Random {
        /// Of the draws.
        seed: u64,
    },
    /// Windows that follow each other, spread over the file.
    InOrder(InOrder),
    /// All windows without overlap, each once in an epoch, in an order that follows from seed and epoch.
    Shuffled {
        /// Of the orders.
        seed: u64,
        /// Microbatches of a step.
        microbatches: u64,
    },
}

/// How many steps read windows in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Steps {
    /// As many as it takes to read all of them.
    #[default]
    All,
    /// The same, but no more than so many.
    AtMost(u64),
}

/// Windows that follow each other without overlap, from the first to the last. Where the steps have more rows than
/// there are windows, the windows begin anew, and what rows learn then is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InOrder {
    /// Windows that the file has.
    pub windows: u64,
    /// Positions of each.
    pub sequence: u64,
    /// Steps that are done.
    pub steps: u64,
    /// Microbatches of a step.
    pub microbatches: u64,
    /// Rows of a microbatch.
    pub rows: u64,
}

impl InOrder {
    /// Windows of so many tokens or examples.
    pub(super) fn new(count: u64, (length, rows): (Length, u64), microbatches: u64, steps: Steps) -> Self {
        let (sequence, rows, microbatches) = (length.step, rows.max(1), microbatches.max(1));
        let windows = length.windows(count);
        let whole = (windows / rows).max(1).div_ceil(microbatches);
        let steps = match steps {
            Steps::All => whole,
            Steps::AtMost(most) => whole.min(most),
        };
        Self { windows, sequence, steps: steps.max(1), microbatches, rows }
    }

    /// Microbatches that count, of all steps: those whose rows are windows that no row before them was.
    pub fn counted(&self) -> u64 {
        let all = self.steps.saturating_mul(self.microbatches);
        all.min(self.windows / self.rows).max(1)
    }

    /// Windows that are read.
    pub fn read(&self) -> u64 {
        self.counted().saturating_mul(self.rows).min(self.windows)
    }

    fn window(&self, Row { step, microbatch, row, .. }: Row) -> u64 {
        let place = (step * self.microbatches + u64::from(microbatch.0)) * self.rows + row;
        let read = self.read();
        // Windows that are left out lie between those that are read.
        (u128::from(place % read) * u128::from(self.windows) / u128::from(read)) as u64
    }
}

/// Keys of epochs, apart from other numbers of a seed.
const EPOCHS: u64 = 0x6570_6f63_6873;
/// Rounds of a permutation. Four make it look random to whoever does not know the key (Luby, Rackoff: How to Construct
/// Pseudorandom Permutations from Pseudorandom Functions, 1988).
const ROUNDS: u64 = 4;

/// The image of a number under a permutation of `0..count` with a key: a Feistel network over the next power of 4,
/// walked until it comes back into the range (Black, Rogaway: Ciphers with Arbitrary Finite Domains, 2002).
fn permuted(number: u64, count: u64, key: u64) -> u64 {
    let half = (64 - count.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut image = number;
    loop {
        let (mut left, mut right) = (image >> half, image & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (mix(mix(key, round), right) & mask));
        }
        image = left << half | right;
        if image < count {
            return image;
        }
    }
}

impl Windows {
    /// Rows whose predictions have one mean, of which one is given: those of the step, or where windows are read in
    /// order all that are counted. `microbatches` are those of a step.
    pub(super) fn rows_with(&self, Row { step, rows, .. }: Row, microbatches: u64) -> impl Iterator<Item = Row> {
        let (first, count) = match self {
            Self::InOrder(in_order) => (0, in_order.counted()),
            Self::Random { .. } | Self::Shuffled { .. } => (step * microbatches, microbatches),
        };
        (first..first + count).flat_map(move |place| {
            let microbatch = MicrobatchId(u32::try_from(place % microbatches).unwrap_or(u32::MAX));
            (0..rows).map(move |row| Row { step: place / microbatches, microbatch, row, rows })
        })
    }

    /// The first token, or the example, of a row, among these of a file.
    pub(super) fn start(&self, row: Row, part: &Range<u64>, length: Length) -> u64 {
        let (count, Length { step: each, behind }) = (part.end - part.start, length);
        let start = match self {
            Self::Random { seed } => {
                let seed = mix(mix(*seed, row.step), u64::from(row.microbatch.0));
                mix(seed, row.row) % (count.saturating_sub(each + behind) + 1)
            }
            Self::InOrder(in_order) => in_order.window(row) * each,
            Self::Shuffled { seed, microbatches } => {
                let windows = length.windows(count);
                let Row { step, microbatch, row, rows } = row;
                let place = (step * microbatches + u64::from(microbatch.0)) * rows + row;
                let epoch = mix(mix(*seed, EPOCHS), place / windows);
                permuted(place % windows, windows, epoch) * each
            }
        };
        part.start + start
    }
}

#[cfg(test)]
mod tests {
    use super::{InOrder, Length, MicrobatchId, Row, Steps, Windows, permuted};
    use std::collections::BTreeSet;

    fn windows(in_order: &InOrder) -> Vec<u64> {
        let rows = (0..in_order.counted()).flat_map(|microbatch| (0..in_order.rows).map(move |row| (microbatch, row)));
        let row = |(microbatch, row): (u64, u64)| Row {
            step: microbatch / in_order.microbatches,
            microbatch: MicrobatchId((microbatch % in_order.microbatches) as u32),
            row,
            rows: in_order.rows,
        };
        rows.map(|place| in_order.window(row(place))).collect()
    }

    #[test]
    fn a_permutation_has_every_image_once() {
        for count in (1..70).chain([255, 256, 257, 1000, 4097]) {
            let images: BTreeSet<u64> = (0..count).map(|number| permuted(number, count, 7 * count)).collect();
            assert_eq!(images, (0..count).collect(), "{count}");
        }
        let order = |key| (0..100).map(|number| permuted(number, 100, key)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
        // Neighbours are torn apart.
        assert!(order(1).windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count() < 10);
    }

    #[test]
    fn every_window_comes_once_in_an_epoch_however_a_step_is_divided() {
        // 103 windows of 10 tokens, and a rest.
        let tokens = 5..1_043;
        let order = |microbatches: u64, rows: u64, places: u64| -> Vec<u64> {
            let windows = Windows::Shuffled { seed: 3, microbatches };
            let row = |place: u64| Row {
                step: place / rows / microbatches,
                microbatch: MicrobatchId((place / rows % microbatches) as u32),
                row: place % rows,
                rows,
            };
            (0..places).map(|place| windows.start(row(place), &tokens, Length::of_tokens(10))).collect()
        };
        let epochs = order(1, 1, 206);
        for epoch in epochs.chunks(103) {
            let starts: BTreeSet<u64> = epoch.iter().copied().collect();
            assert_eq!(starts, (0..103).map(|window| 5 + 10 * window).collect());
        }
        assert_ne!(epochs[..103], epochs[103..], "each epoch has an order of its own");
        for (microbatches, rows) in [(8, 1), (4, 2), (2, 4), (1, 8), (3, 5)] {
            assert_eq!(order(microbatches, rows, 206), epochs, "{microbatches} microbatches of {rows} rows");
        }
    }

    #[test]
    fn all_windows_come_once_and_in_order() {
        // 1,001 tokens are 100 windows of 10: 25 microbatches of 4 rows, in 4 steps of 8.
        let all = InOrder::new(1_001, (Length::of_tokens(10), 4), 8, Steps::All);
        assert_eq!((all.windows, all.steps, all.counted(), all.read()), (100, 4, 25, 100));
        assert_eq!(windows(&all), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_rest_that_fills_no_microbatch_is_left_out() {
        let all = InOrder::new(1_031, (Length::of_tokens(10), 4), 8, Steps::All);
        assert_eq!((all.windows, all.counted(), all.read()), (103, 25, 100));
        let read = windows(&all);
        assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), 100);
        assert!(read.is_sorted());
        assert_eq!(InOrder::new(25, (Length::of_tokens(10), 4), 8, Steps::All).counted(), 1);
        assert_eq!(InOrder::new(25, (Length::of_tokens(10), 4), 8, Steps::All).read(), 2);
    }

    #[test]
    fn few_steps_are_spread_over_the_file() {
        let some = InOrder::new(1_001, (Length::of_tokens(10), 2), 5, Steps::AtMost(1));
        assert_eq!((some.steps, some.counted(), some.read()), (1, 5, 10));
        assert_eq!(windows(&some), (0..10).map(|window| 10 * window).collect::<Vec<_>>());
    }
}
