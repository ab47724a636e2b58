//! Layer normalisation: statistics, result and derivatives, row by row.

use super::lanes::{LANES, add, fma, kernel, load, mul, splat, store, sub, sum};

kernel! {
    /// Mean and 1 / sqrt(variance + epsilon) of every row.
    fn statistics<'a>(s; x: &'a [f32], width: usize, epsilon: f32, out: &'a mut [f32]) {
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(2)) {
            let mut total = splat(s, 0.0);
            for at in (0..width).step_by(LANES) {
                total = add(s, total, load(s, x, at, 0.0));
            }
            let mean = sum(total) / width as f32;
            let m = splat(s, mean);
            let mut squares = splat(s, 0.0);
            for at in (0..width).step_by(LANES) {
                let d = sub(s, load(s, x, at, mean), m);
                squares = fma(s, d, d, squares);
            }
            out[0] = mean;
            out[1] = 1.0 / (sum(squares) / width as f32 + epsilon).sqrt();
        }
    }
}

kernel! {
    /// (x - mean) * rstd * gain + bias.
    fn normalize<'a>(_s; x: &'a [f32], statistics: &'a [f32], gain: &'a [f32], bias: &'a [f32], out: &'a mut [f32]) {
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(out.chunks_exact_mut(width));
        for ((x, statistics), out) in rows {
            let (mean, rstd) = (statistics[0], statistics[1]);
            for (((out, x), gain), bias) in out.iter_mut().zip(x).zip(gain).zip(bias) {
                *out = (x - mean) * rstd * gain + bias;
            }
        }
    }
}

kernel! {
    /// With n = (x - mean) * rstd and g = dy * gain: rstd * (g - mean(g) - n * mean(g * n)).
    fn grad_input<'a>(s; x: &'a [f32], statistics: &'a [f32], gain: &'a [f32], dy: &'a [f32], out: &'a mut [f32]) {
        let width = gain.len();
        let rows = x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(dy.chunks_exact(width));
        for (((x, statistics), dy), out) in rows.zip(out.chunks_exact_mut(width)) {
            let (mean, rstd) = (splat(s, statistics[0]), splat(s, statistics[1]));
            let (mut sum_g, mut sum_gn) = (splat(s, 0.0), splat(s, 0.0));
            for at in (0..width).step_by(LANES) {
                let n = mul(s, sub(s, load(s, x, at, 0.0), mean), rstd);
                let g = mul(s, load(s, dy, at, 0.0), load(s, gain, at, 0.0));
                sum_g = add(s, sum_g, g);
                sum_gn = fma(s, g, n, sum_gn);
            }
            let a = splat(s, -sum(sum_g) / width as f32);
            let b = splat(s, -sum(sum_gn) / width as f32);
            for at in (0..width).step_by(LANES) {
                let n = mul(s, sub(s, load(s, x, at, 0.0), mean), rstd);
                let centred = fma(s, load(s, dy, at, 0.0), load(s, gain, at, 0.0), fma(s, n, b, a));
                store(s, out, at, mul(s, centred, rstd));
            }
        }
    }
}

kernel! {
    /// Adds dy * (x - mean) * rstd of all rows, in their order.
    fn grad_gain<'a>(s; x: &'a [f32], statistics: &'a [f32], dy: &'a [f32], out: &'a mut [f32]) {
        let width = out.len();
        for ((x, statistics), dy) in x.chunks_exact(width).zip(statistics.chunks_exact(2)).zip(dy.chunks_exact(width)) {
            let (mean, rstd) = (splat(s, statistics[0]), splat(s, statistics[1]));
            for at in (0..width).step_by(LANES) {
                let n = mul(s, sub(s, load(s, x, at, 0.0), mean), rstd);
                let total = fma(s, load(s, dy, at, 0.0), n, load(s, out, at, 0.0));
                store(s, out, at, total);
            }
        }
    }
}
