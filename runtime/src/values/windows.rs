//! Windows: which tokens of a file each row of a microbatch is. Always a pure function of step, microbatch and row.

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
    /// Windows of a text, and so many steps, or as many as it takes to read all of them.
    pub(super) fn new(tokens: u64, (sequence, rows): (u64, u64), microbatches: u64, steps: Option<u64>) -> Self {
        let (sequence, rows, microbatches) = (sequence.max(1), rows.max(1), microbatches.max(1));
        let windows = (tokens.saturating_sub(1) / sequence).max(1);
        let whole = (windows / rows).max(1).div_ceil(microbatches);
        Self { windows, sequence, steps: steps.unwrap_or(whole).max(1), microbatches, rows }
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

impl Windows {
    /// The first token of a row, among these tokens of a file. A window has one token more than positions.
    pub(super) fn start(&self, row: Row, tokens: &Range<u64>, window: u64) -> u64 {
        let count = tokens.end - tokens.start;
        let start = match self {
            Self::Random { seed } => {
                let seed = mix(mix(*seed, row.step), u64::from(row.microbatch.0));
                mix(seed, row.row) % (count.saturating_sub(window) + 1)
            }
            Self::InOrder(in_order) => in_order.window(row) * (window - 1),
        };
        tokens.start + start
    }
}

#[cfg(test)]
mod tests {
    use super::{InOrder, MicrobatchId, Row};
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
    fn all_windows_come_once_and_in_order() {
        // 1,001 tokens are 100 windows of 10: 25 microbatches of 4 rows, in 4 steps of 8.
        let all = InOrder::new(1_001, (10, 4), 8, None);
        assert_eq!((all.windows, all.steps, all.counted(), all.read()), (100, 4, 25, 100));
        assert_eq!(windows(&all), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_rest_that_fills_no_microbatch_is_left_out() {
        let all = InOrder::new(1_031, (10, 4), 8, None);
        assert_eq!((all.windows, all.counted(), all.read()), (103, 25, 100));
        let read = windows(&all);
        assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), 100);
        assert!(read.is_sorted());
        assert_eq!(InOrder::new(25, (10, 4), 8, None).counted(), 1);
        assert_eq!(InOrder::new(25, (10, 4), 8, None).read(), 2);
    }

    #[test]
    fn few_steps_are_spread_over_the_file() {
        let some = InOrder::new(1_001, (10, 2), 5, Some(1));
        assert_eq!((some.steps, some.counted(), some.read()), (1, 5, 10));
        assert_eq!(windows(&some), (0..10).map(|window| 10 * window).collect::<Vec<_>>());
    }
}
