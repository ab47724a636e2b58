//! Layer normalisation: statistics, result and derivatives, row by row.

use crate::devices::cpu::lanes::{LANES, add, fma, kernel, load, mul, splat, store, sub, sum};
use crate::devices::cpu::number::Number;

kernel! {
    /// Mean, which with `rms` counts as 0, and 1 / sqrt(variance + epsilon) of every row.
    fn statistics<'a, T>(s; x: &'a [T], width: usize, epsilon: T, rms: bool, out: &'a mut [T]) {
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(2)) {
            let mut total = splat(s, T::ZERO);
            for at in (0..if rms { 0 } else { width }).step_by(LANES) {
                total = add(s, total, load(s, x, at, T::ZERO));
            }
            let mean = sum(s, total) / T::of(width as f64);
            let m = splat(s, mean);
            let mut squares = splat(s, T::ZERO);
            for at in (0..width).step_by(LANES) {
                let d = sub(s, load(s, x, at, mean), m);
                squares = fma(s, d, d, squares);
            }
            out[0] = mean;
            out[1] = T::ONE / (sum(s, squares) / T::of(width as f64) + epsilon).sqrt();
        }
    }
}

kernel! {
    /// (x - mean) * rstd * gain + bias.
    fn normalize<'a, T>(_s; x: &'a [T], statistics: &'a [T], gain: &'a [T], bias: &'a [T], out: &'a mut [T]) {
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(out.chunks_exact_mut(width));
        for ((x, statistics), out) in rows {
            let (mean, rstd) = (statistics[0], statistics[1]);
            for (((out, x), gain), bias) in out.iter_mut().zip(x).zip(gain).zip(bias) {
                *out = (*x - mean) * rstd * *gain + *bias;
            }
        }
    }
}

kernel! {
    /// (x - mean) * rstd * gain.
    fn scale<'a, T>(_s; x: &'a [T], statistics: &'a [T], gain: &'a [T], out: &'a mut [T]) {
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(out.chunks_exact_mut(width));
        for ((x, statistics), out) in rows {
            let (mean, rstd) = (statistics[0], statistics[1]);
            for ((out, x), gain) in out.iter_mut().zip(x).zip(gain) {
                *out = (*x - mean) * rstd * *gain;
            }
        }
    }
}

kernel! {
    /// With n = (x - mean) * rstd and g = dy * gain: rstd * (g - mean(g) - n * mean(g * n)); with `rms`, mean(g)
    /// counts as 0.
    fn grad_input<'a, T>(
        s; x: &'a [T], statistics: &'a [T], gain: &'a [T], dy: &'a [T], rms: bool, out: &'a mut [T]
    ) {
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(dy.chunks_exact(width));
        for (((x, statistics), dy), out) in rows.zip(out.chunks_exact_mut(width)) {
            let (mean, rstd) = (splat(s, statistics[0]), splat(s, statistics[1]));
            let (mut sum_g, mut sum_gn) = (splat(s, T::ZERO), splat(s, T::ZERO));
            for at in (0..width).step_by(LANES) {
                let n = mul(s, sub(s, load(s, x, at, T::ZERO), mean), rstd);
                let g = mul(s, load(s, dy, at, T::ZERO), load(s, gain, at, T::ZERO));
                sum_g = add(s, sum_g, g);
                sum_gn = fma(s, g, n, sum_gn);
            }
            let a = splat(s, if rms { T::ZERO } else { -sum(s, sum_g) / T::of(width as f64) });
            let b = splat(s, -sum(s, sum_gn) / T::of(width as f64));
            for at in (0..width).step_by(LANES) {
                let n = mul(s, sub(s, load(s, x, at, T::ZERO), mean), rstd);
                let centred = fma(s, load(s, dy, at, T::ZERO), load(s, gain, at, T::ZERO), fma(s, n, b, a));
                store(s, out, at, mul(s, centred, rstd));
            }
        }
    }
}

kernel! {
    /// Adds dy * (x - mean) * rstd of all rows, in their order.
    fn grad_gain<'a, T>(s; x: &'a [T], statistics: &'a [T], dy: &'a [T], out: &'a mut [T]) {
        let width = out.len();
        for ((x, statistics), dy) in x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(dy.chunks_exact(width)) {
            let (mean, rstd) = (splat(s, statistics[0]), splat(s, statistics[1]));
            for at in (0..width).step_by(LANES) {
                let n = mul(s, sub(s, load(s, x, at, T::ZERO), mean), rstd);
                let total = fma(s, load(s, dy, at, T::ZERO), n, load(s, out, at, T::ZERO));
                store(s, out, at, total);
            }
        }
    }
}
