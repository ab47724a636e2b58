//! Sums over one dimension.

use super::lanes::{LANES, add, kernel, load, splat, store, sum};

/// Columns that are summed at once: four blocks stay in registers while the rows pass.
const COLUMNS: usize = 4 * LANES;

kernel! {
    /// `out[i, j] (+)= sum over r of x[i, r, j]`, in the order of r.
    fn columns<'a>(s; x: &'a [f32], reduced: usize, inner: usize, accumulate: bool, out: &'a mut [f32]) {
        for (x, out) in x.chunks_exact(reduced * inner).zip(out.chunks_exact_mut(inner)) {
            for (strip, out) in out.chunks_mut(COLUMNS).enumerate() {
                let width = out.len();
                let mut totals = [splat(s, 0.0); COLUMNS / LANES];
                for row in x.chunks_exact(inner) {
                    let row = &row[strip * COLUMNS..][..width];
                    for (block, at) in (0..width).step_by(LANES).enumerate() {
                        totals[block] = add(s, totals[block], load(s, row, at, 0.0));
                    }
                }
                for (block, at) in (0..width).step_by(LANES).enumerate() {
                    let before = if accumulate { load(s, out, at, 0.0) } else { splat(s, 0.0) };
                    store(s, out, at, add(s, before, totals[block]));
                }
            }
        }
    }
}

kernel! {
    /// `out[i] (+)= sum over r of x[i, r]`: 16 partial sums, then their sum.
    fn rows<'a>(s; x: &'a [f32], reduced: usize, accumulate: bool, out: &'a mut [f32]) {
        for (x, out) in x.chunks_exact(reduced).zip(out.iter_mut()) {
            let mut totals = splat(s, 0.0);
            for at in (0..reduced).step_by(LANES) {
                totals = add(s, totals, load(s, x, at, 0.0));
            }
            *out = if accumulate { *out } else { 0.0 } + sum(totals);
        }
    }
}
