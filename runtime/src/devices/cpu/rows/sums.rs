//! Sums over one dimension.

use crate::devices::cpu::lanes::{LANES, add, kernel, load, splat, store, sum};
use crate::devices::cpu::number::Number;

/// Columns that are summed at once: four blocks stay in registers while the rows pass.
const COLUMNS: usize = 4 * LANES;

kernel! {
    /// `out[i, j] (+)= sum over r of x[i, r, j]`, in the order of r.
    fn columns<'a, T>(s; x: &'a [T], reduced: usize, inner: usize, accumulate: bool, out: &'a mut [T]) {
        for (x, out) in x.chunks_exact(reduced * inner).zip(out.chunks_exact_mut(inner)) {
            for (strip, out) in out.chunks_mut(COLUMNS).enumerate() {
                let width = out.len();
                let mut totals = [splat(s, T::ZERO); COLUMNS / LANES];
                for row in x.chunks_exact(inner) {
                    let row = &row[strip * COLUMNS..][..width];
                    for (block, at) in (0..width).step_by(LANES).enumerate() {
                        totals[block] = add(s, totals[block], load(s, row, at, T::ZERO));
                    }
                }
                for (block, at) in (0..width).step_by(LANES).enumerate() {
                    let before = if accumulate { load(s, out, at, T::ZERO) } else { splat(s, T::ZERO) };
                    store(s, out, at, add(s, before, totals[block]));
                }
            }
        }
    }
}

kernel! {
    /// `out[i] (+)= sum over r of x[i, r]`: 16 partial sums, then their sum.
    fn rows<'a, T>(s; x: &'a [T], reduced: usize, accumulate: bool, out: &'a mut [T]) {
        for (x, out) in x.chunks_exact(reduced).zip(out.iter_mut()) {
            let mut totals = splat(s, T::ZERO);
            for at in (0..reduced).step_by(LANES) {
                totals = add(s, totals, load(s, x, at, T::ZERO));
            }
            *out = if accumulate { *out } else { T::ZERO } + sum(s, totals);
        }
    }
}
