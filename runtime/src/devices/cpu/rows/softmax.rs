//! Softmax and cross-entropy, row by row.

use super::gather::check_indices;
use crate::devices::cpu::lanes::{LANES, add, fma, kernel, largest, load, max, mul, splat, store, sub, sum};
use crate::devices::cpu::number::Number;
use pipe_distributed::Fault;
use pulp::{Arch, Simd};
use std::ops::Range;

/// e^(x - largest) into `out`; returns the largest and the sum.
#[inline(always)]
fn exponentials<S: Simd, T: Number>(s: S, x: &[T], out: &mut [T]) -> (T, T) {
    let mut top = splat(s, T::LOWEST);
    for at in (0..x.len()).step_by(LANES) {
        top = max(s, load(s, x, at, T::LOWEST), top);
    }
    let top = largest(s, top);
    let shift = splat(s, top);
    let mut total = splat(s, T::ZERO);
    for at in (0..x.len()).step_by(LANES) {
        // Lanes past the end weigh e^-87 or less: nothing beside the 1 of the largest.
        let e = T::exp(s, sub(s, load(s, x, at, T::LOWEST), shift));
        store(s, out, at, e);
        total = add(s, total, e);
    }
    (top, sum(s, total))
}

#[inline(always)]
fn scale<S: Simd, T: Number>(s: S, x: &mut [T], factor: T) {
    let factor = splat(s, factor);
    for at in (0..x.len()).step_by(LANES) {
        let scaled = mul(s, load(s, x, at, T::ZERO), factor);
        store(s, x, at, scaled);
    }
}

kernel! {
    /// Softmax of rows; with `causal`, row i of that many rows m touches columns 0..=i only, or 0..=i + width - m
    /// where the width is larger, and the others become 0.
    fn softmax<'a, T>(s; x: &'a [T], width: usize, causal: Option<u64>, out: &'a mut [T]) {
        for (row, (x, out)) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
            let seen = causal.map_or(width, |rows| (row % rows as usize + 1 + width.saturating_sub(rows as usize)).min(width));
            let (seen_out, hidden_out) = out.split_at_mut(seen);
            let (_, total) = exponentials(s, &x[..seen], seen_out);
            scale(s, seen_out, T::ONE / total);
            hidden_out.fill(T::ZERO);
        }
    }
}

kernel! {
    /// The same of the columns that each row sees; the others become 0.
    fn softmax_of<'a, T>(s; x: &'a [T], seen: &'a [Range<usize>], out: &'a mut [T]) {
        let width = x.len() / seen.len().max(1);
        for ((x, seen), out) in x.chunks_exact(width).zip(seen).zip(out.chunks_exact_mut(width)) {
            out[..seen.start].fill(T::ZERO);
            out[seen.end..].fill(T::ZERO);
            let (x, out) = (&x[seen.clone()], &mut out[seen.clone()]);
            let (_, total) = exponentials(s, x, out);
            scale(s, out, T::ONE / total);
        }
    }
}

kernel! {
    /// y * (dy - sum(y * dy)).
    fn softmax_grad<'a, T>(s; y: &'a [T], dy: &'a [T], width: usize, out: &'a mut [T]) {
        for ((y, dy), out) in y.chunks_exact(width).zip(dy.chunks_exact(width)).zip(out.chunks_exact_mut(width)) {
            let mut total = splat(s, T::ZERO);
            for at in (0..width).step_by(LANES) {
                total = fma(s, load(s, y, at, T::ZERO), load(s, dy, at, T::ZERO), total);
            }
            let total = sum(s, total);
            for ((out, y), dy) in out.iter_mut().zip(y).zip(dy) {
                *out = *y * (*dy - total);
            }
        }
    }
}

kernel! {
    /// The sum over rows of -log softmax(x)[target] times a weight, if there are any.
    fn negative_log_likelihood<'a, T>(s; x: &'a [T], targets: &'a [i32], weights: &'a [T], out: &'a mut f64) {
        let width = x.len() / targets.len().max(1);
        for (row, (x, target)) in x.chunks_exact(width).zip(targets).enumerate() {
            let mut top = splat(s, T::LOWEST);
            for at in (0..width).step_by(LANES) {
                top = max(s, load(s, x, at, T::LOWEST), top);
            }
            let top = largest(s, top);
            let mut total = splat(s, T::ZERO);
            for at in (0..width).step_by(LANES) {
                total = add(s, total, T::exp(s, sub(s, load(s, x, at, T::LOWEST), splat(s, top))));
            }
            let loss = sum(s, total).to_f64().ln() + top.to_f64() - x[*target as usize].to_f64();
            *out += weights.get(row).map_or(loss, |weight| loss * weight.to_f64());
        }
    }
}

kernel! {
    /// (softmax(x) - [column == target]) * factor, times a weight, if there are any.
    fn cross_entropy_rows<'a, T>(s; x: &'a [T], targets: &'a [i32], weights: &'a [T], factor: T, out: &'a mut [T]) {
        let width = x.len() / targets.len().max(1);
        let rows = x.chunks_exact(width).zip(targets).zip(out.chunks_exact_mut(width));
        for (row, ((x, target), out)) in rows.enumerate() {
            let factor = weights.get(row).map_or(factor, |weight| factor * *weight);
            let (_, total) = exponentials(s, x, out);
            scale(s, out, factor / total);
            out[*target as usize] -= factor;
        }
    }
}

/// Mean over all rows of -log softmax(logits)[target], times its weight if there are weights.
pub(in crate::devices::cpu) fn cross_entropy<T: Number>(
    arch: Arch,
    logits: &[T],
    (targets, weights): (&[i32], &[T]),
    out: &mut T,
) -> Result<(), Fault> {
    check_targets(logits, targets)?;
    let mut total = 0.0;
    negative_log_likelihood(arch, logits, targets, weights, &mut total);
    *out = T::of(total / targets.len() as f64);
    Ok(())
}

/// Its derivative by the logits.
pub(in crate::devices::cpu) fn cross_entropy_grad<T: Number>(
    arch: Arch,
    logits: &[T],
    (targets, weights): (&[i32], &[T]),
    dloss: T,
    out: &mut [T],
) -> Result<(), Fault> {
    check_targets(logits, targets)?;
    cross_entropy_rows(arch, logits, targets, weights, dloss / T::of(targets.len() as f64), out);
    Ok(())
}

fn check_targets<T>(logits: &[T], targets: &[i32]) -> Result<(), Fault> {
    check_indices(targets, logits.len() / targets.len().max(1))
}
