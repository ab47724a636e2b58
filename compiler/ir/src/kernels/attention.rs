//! The kernel of attention: scores come and go, in strips of a few rows or in tiles that never reach memory.

use super::{Location, Matrix};
use crate::graph::DType;
use crate::units::Bytes;

/// Attention of every matrix of a batch, or its derivatives: scores of `rows` queries and `columns`
/// keys, of which no more than [`STRIP_ROWS`] rows exist at a time.
#[derive(Clone, PartialEq, Debug)]
pub struct Attention {
    /// Type of all sums, and of scores.
    pub dtype: DType,
    /// Type of the elements of queries, keys, values and the gradient of the result: the same, or
    /// bfloat16 for sums in single precision.
    pub factors: DType,
    /// Type of the elements of the result: that of the sums, or bfloat16 where the factors are, to
    /// which sums are rounded.
    pub result: DType,
    /// Whether row i sees columns 0..=i + columns - rows only; then there are at least as many columns.
    pub causal: bool,
    /// Of these, how many a row sees at most: the last ones.
    pub window: Option<u64>,
    /// For each row the first column that it sees, but always the last that it would see without. One to a row.
    pub starts: Option<Matrix>,
    /// Sizes of the batch dimensions, outermost first.
    pub batch: Vec<u64>,
    /// Queries.
    pub rows: u64,
    /// Keys, and values.
    pub columns: u64,
    /// Elements of a query, of a key and of a value.
    pub width: u64,
    /// One to a row.
    pub queries: Matrix,
    /// One to a row.
    pub keys: Matrix,
    /// One to a row.
    pub values: Matrix,
    /// The result; or its derivative by queries, where derivatives are wanted.
    pub out: Matrix,
    /// What else there is where derivatives are wanted.
    pub derivatives: Option<Box<Derivatives>>,
    /// Whether the result is added to what is there; never derivatives, and never to bfloat16.
    pub accumulate: bool,
    /// The first of [`Attention::room_bytes`].
    pub room: Location,
}

/// What derivatives are made from, and where those go that have a row for each key.
#[derive(Clone, PartialEq, Debug)]
pub struct Derivatives {
    /// The gradient of the result.
    pub dy: Matrix,
    /// The derivative by keys.
    pub by_keys: Matrix,
    /// The derivative by values.
    pub by_values: Matrix,
}

/// Rows of a strip of scores.
pub const STRIP_ROWS: u64 = 64;

/// How many scores of a matrix are seen, where no row has a start of its own.
pub fn seen(rows: u64, columns: u64, causal: bool, window: Option<u64>) -> u64 {
    // 1 + 2 + .. + n
    let up_to = |n: u64| n.saturating_mul(n.saturating_add(1)) / 2;
    let after = if causal { up_to(rows.saturating_sub(1)) } else { 0 };
    let before = window.map_or(0, |window| {
        up_to(columns.saturating_sub(window)).saturating_sub(up_to(columns.saturating_sub(rows).saturating_sub(window)))
    });
    rows.saturating_mul(columns).saturating_sub(after).saturating_sub(before)
}

impl Attention {
    /// Strips of scores that exist at a time.
    pub const fn strips(&self) -> u64 {
        if self.derivatives.is_some() { 3 } else { 2 }
    }

    /// Bytes of a strip.
    pub fn strip_bytes(&self) -> Bytes {
        Bytes(self.rows.min(STRIP_ROWS) * self.columns * self.dtype.bytes().0)
    }

    /// Bytes beside the tensors: for [`Attention::strips`], or for two numbers of each query, with
    /// which tiles of derivatives are made in any order.
    pub fn room_bytes(&self) -> Bytes {
        let strips = self.strips() * self.strip_bytes().0;
        let queries = self.batch.iter().product::<u64>() * self.rows;
        let statistics = if self.derivatives.is_some() { 2 * queries * self.dtype.bytes().0 } else { 0 };
        Bytes(strips.max(statistics))
    }

    /// Scores that are seen, over the batch; with starts, as many as without.
    pub fn seen(&self) -> u64 {
        self.batch.iter().product::<u64>() * seen(self.rows, self.columns, self.causal, self.window)
    }

    /// Floating-point operations, 2 per multiply-add, for the scores that are seen.
    pub fn flops(&self) -> u64 {
        let products = if self.derivatives.is_some() { 5 } else { 2 };
        2 * self.seen() * self.width * products
    }
}
