//! Softmax and cross-entropy, row by row.

use super::lanes::{LANES, add, exp, fma, kernel, largest, load, max, mul, splat, store, sub, sum};
use crate::fault::Fault;
use pulp::{Arch, Simd};

/// e^(x - largest) into `out`; returns the largest and the sum.
#[inline(always)]
fn exponentials<S: Simd>(s: S, x: &[f32], out: &mut [f32]) -> (f32, f32) {
    let mut top = splat(s, f32::NEG_INFINITY);
    for at in (0..x.len()).step_by(LANES) {
        top = max(s, load(s, x, at, f32::NEG_INFINITY), top);
    }
    let top = largest(top);
    let shift = splat(s, top);
    let mut total = splat(s, 0.0);
    for at in (0..x.len()).step_by(LANES) {
        // Lanes past the end weigh e^-87: nothing beside the 1 of the largest.
        let e = exp(s, sub(s, load(s, x, at, f32::NEG_INFINITY), shift));
        store(s, out, at, e);
        total = add(s, total, e);
    }
    (top, sum(total))
}

#[inline(always)]
fn scale<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    let factor = splat(s, factor);
    for at in (0..x.len()).step_by(LANES) {
        let scaled = mul(s, load(s, x, at, 0.0), factor);
        store(s, x, at, scaled);
    }
}

kernel! {
    /// Softmax of rows; with `causal`, row i of that many rows m touches columns 0..=i only, or 0..=i + width - m
    /// where the width is larger, and the others become 0.
    fn softmax<'a>(s; x: &'a [f32], width: usize, causal: Option<u64>, out: &'a mut [f32]) {
        for (row, (x, out)) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
            let seen = causal.map_or(width, |rows| (row % rows as usize + 1 + width.saturating_sub(rows as usize)).min(width));
            let (seen_out, hidden_out) = out.split_at_mut(seen);
            let (_, total) = exponentials(s, &x[..seen], seen_out);
            scale(s, seen_out, 1.0 / total);
            hidden_out.fill(0.0);
        }
    }
}

kernel! {
    /// y * (dy - sum(y * dy)).
    fn softmax_grad<'a>(s; y: &'a [f32], dy: &'a [f32], width: usize, out: &'a mut [f32]) {
        for ((y, dy), out) in y.chunks_exact(width).zip(dy.chunks_exact(width)).zip(out.chunks_exact_mut(width)) {
            let mut total = splat(s, 0.0);
            for at in (0..width).step_by(LANES) {
                total = fma(s, load(s, y, at, 0.0), load(s, dy, at, 0.0), total);
            }
            let total = sum(total);
            for ((out, y), dy) in out.iter_mut().zip(y).zip(dy) {
                *out = y * (dy - total);
            }
        }
    }
}

kernel! {
    /// The sum over rows of -log softmax(x)[target].
    fn negative_log_likelihood<'a>(s; x: &'a [f32], targets: &'a [i32], out: &'a mut f64) {
        let width = x.len() / targets.len().max(1);
        for (x, target) in x.chunks_exact(width).zip(targets) {
            let mut top = splat(s, f32::NEG_INFINITY);
            for at in (0..width).step_by(LANES) {
                top = max(s, load(s, x, at, f32::NEG_INFINITY), top);
            }
            let top = largest(top);
            let mut total = splat(s, 0.0);
            for at in (0..width).step_by(LANES) {
                total = add(s, total, exp(s, sub(s, load(s, x, at, f32::NEG_INFINITY), splat(s, top))));
            }
            *out += f64::from(sum(total)).ln() + f64::from(top) - f64::from(x[*target as usize]);
        }
    }
}

kernel! {
    /// (softmax(x) - [column == target]) * factor.
    fn cross_entropy_rows<'a>(s; x: &'a [f32], targets: &'a [i32], factor: f32, out: &'a mut [f32]) {
        let width = x.len() / targets.len().max(1);
        for ((x, target), out) in x.chunks_exact(width).zip(targets).zip(out.chunks_exact_mut(width)) {
            let (_, total) = exponentials(s, x, out);
            scale(s, out, factor / total);
            out[*target as usize] -= factor;
        }
    }
}

/// Mean over all rows of -log softmax(logits)[target].
pub(super) fn cross_entropy(arch: Arch, logits: &[f32], targets: &[i32], out: &mut f32) -> Result<(), Fault> {
    check_targets(logits, targets)?;
    let mut total = 0.0;
    negative_log_likelihood(arch, logits, targets, &mut total);
    *out = (total / targets.len() as f64) as f32;
    Ok(())
}

/// Its derivative by the logits.
pub(super) fn cross_entropy_grad(
    arch: Arch,
    logits: &[f32],
    targets: &[i32],
    dloss: f32,
    out: &mut [f32],
) -> Result<(), Fault> {
    check_targets(logits, targets)?;
    cross_entropy_rows(arch, logits, targets, dloss / targets.len() as f32, out);
    Ok(())
}

fn check_targets(logits: &[f32], targets: &[i32]) -> Result<(), Fault> {
    super::table::check_indices(targets, logits.len() / targets.len().max(1))
}
