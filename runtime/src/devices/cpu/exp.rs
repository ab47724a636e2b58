//! The exponential function of blocks, by the polynomials of the Cephes library (Moshier), and its coefficients, which
//! compiled expressions share.

use super::lanes::{Block, LANES, add, fma, max, min, mul, quotient, splat, sub};
use pulp::Simd;

/// Adding 1.5 * 2^52 rounds to an integer, which is then in the low bits.
pub(super) const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// The logarithm of 2 as a number with few bits and the rest.
pub(super) const LN_2: (f64, f64) = (6.931_457_519_531_25E-1, 1.428_606_820_309_417_3E-6);
/// With p and q polynomials of r^2: e^r = 1 + 2 r p / (q - r p), for r within half the logarithm of 2.
pub(super) const EXP_P: [f64; 3] = [1.261_771_930_748_105_8E-4, 3.029_944_077_074_419_5E-2, 1.0];
/// See [`EXP_P`].
pub(super) const EXP_Q: [f64; 4] =
    [3.001_985_051_386_644_6E-6, 2.524_483_403_496_841E-3, 2.272_655_482_081_550_3E-1, 2.0];

/// e^x to a relative error of about 1e-7; x is taken to lie in -87.3..=88.
#[inline(always)]
pub(super) fn exp_single<S: Simd>(s: S, x: Block<S, f32>) -> Block<S, f32> {
    let x = min(s, splat(s, 88.0), max(s, splat(s, -87.3), x));
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    let magic = splat(s, 12_582_912.0);
    let z = fma(s, x, splat(s, std::f32::consts::LOG2_E), magic);
    let n = sub(s, z, magic);
    let r = fma(s, n, splat(s, -0.693_359_4), x);
    let r = fma(s, n, splat(s, 2.121_944_4e-4), r);
    let mut p = splat(s, 1.987_569_1e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = fma(s, p, r, splat(s, coefficient));
    }
    let mut p = add(s, fma(s, p, mul(s, r, r), r), splat(s, 1.0));
    for i in 0..LANES / S::F32_LANES {
        // p * 2^n: n is added to the exponent.
        let exponent = s.wrapping_dyn_shl_u32s(s.transmute_u32s_f32s(z.0[i]), s.splat_u32s(23));
        p.0[i] = s.transmute_f32s_u32s(s.add_u32s(s.transmute_u32s_f32s(p.0[i]), exponent));
    }
    p
}

/// e^x to a relative error of about 2e-16; x is taken to lie in -708..=709.
#[inline(always)]
pub(super) fn exp_double<S: Simd>(s: S, x: Block<S, f64>) -> Block<S, f64> {
    let x = min(s, splat(s, 709.0), max(s, splat(s, -708.0), x));
    let rounder = splat(s, ROUNDER);
    let z = fma(s, x, splat(s, std::f64::consts::LOG2_E), rounder);
    let n = sub(s, z, rounder);
    let r = fma(s, n, splat(s, -LN_2.0), x);
    let r = fma(s, n, splat(s, -LN_2.1), r);
    let square = mul(s, r, r);
    let p = mul(s, polynomial(s, square, &EXP_P), r);
    let q = sub(s, polynomial(s, square, &EXP_Q), p);
    let half = quotient(s, p, q);
    let e = fma(s, half, splat(s, 2.0), splat(s, 1.0));
    // e * 2^n: n is added to the exponent.
    let (mut e, z) = (e.numbers(s), z.numbers(s));
    for (e, z) in e.iter_mut().zip(z) {
        *e = f64::from_bits(e.to_bits().wrapping_add(z.to_bits() << 52));
    }
    Block::of(s, &e)
}

/// c0 * x^n + c1 * x^(n - 1) + ..
#[inline(always)]
fn polynomial<S: Simd>(s: S, x: Block<S, f64>, coefficients: &[f64]) -> Block<S, f64> {
    let mut sum = splat(s, coefficients[0]);
    for coefficient in &coefficients[1..] {
        sum = fma(s, sum, x, splat(s, *coefficient));
    }
    sum
}
