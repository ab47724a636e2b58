//! Functions in double precision, to a relative error below 1e-15, by the coefficients of the Cephes library (Moshier).

use super::super::lanes::Lanes;
use super::{add_scaled, clamp, polynomial, quarters, special_exps, special_logs};
use crate::devices::cpu::exp::{EXP_P, EXP_Q, LN_2, ROUNDER};
use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, Value, types};

/// Beyond these, e^x is 0 (below the normal numbers) or infinite.
const EXP_RANGE: (f64, f64) = (-708.396_418_532_264_1, 709.782_712_893_384);

pub(super) fn exp(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    let clamped = clamp(b, lanes, x, EXP_RANGE.0, EXP_RANGE.1);
    let rounder = lanes.number(b, ROUNDER);
    let shifted = add_scaled(b, lanes, rounder, clamped, std::f64::consts::LOG2_E);
    let n = b.ins().fsub(shifted, rounder);
    let r = add_scaled(b, lanes, clamped, n, -LN_2.0);
    let r = add_scaled(b, lanes, r, n, -LN_2.1);
    let square = b.ins().fmul(r, r);
    let p = polynomial(b, lanes, square, &EXP_P);
    let p = b.ins().fmul(p, r);
    let q = polynomial(b, lanes, square, &EXP_Q);
    let rest = b.ins().fsub(q, p);
    let half = b.ins().fdiv(p, rest);
    let one = lanes.number(b, 1.0);
    let e = add_scaled(b, lanes, one, half, 2.0);
    // e * 2^n: n is added to the exponent.
    let (e, n) = (lanes.bits(b, e), lanes.bits(b, shifted));
    let places = b.ins().iconst(types::I32, 52);
    let n = b.ins().ishl(n, places);
    let sum = b.ins().iadd(e, n);
    let result = lanes.float_of_bits(b, sum);
    special_exps(b, lanes, x, result, EXP_RANGE)
}

/// Below this, a quotient of polynomials; above, 1 - 2 / (e^2x + 1).
const TANH_SMALL: f64 = 0.625;
const TANH_P: [f64; 3] = [-9.643_991_794_250_523E-1, -9.928_772_310_019_185E1, -1.614_687_684_417_084_5E3];
const TANH_Q: [f64; 4] = [1.0, 1.128_116_784_916_329_3E2, 2.235_488_390_601_004_5E3, 4.844_063_053_251_255E3];

pub(super) fn tanh(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    let size = b.ins().fabs(x);
    let square = b.ins().fmul(x, x);
    let p = polynomial(b, lanes, square, &TANH_P);
    let q = polynomial(b, lanes, square, &TANH_Q);
    let quotient = b.ins().fdiv(p, q);
    let slope = b.ins().fmul(quotient, square);
    let small = lanes.multiply_add(b, slope, x, x);
    let twice = b.ins().fadd(size, size);
    let e = exp(b, lanes, twice);
    let (zero, one, two) = (lanes.number(b, 0.0), lanes.number(b, 1.0), lanes.number(b, 2.0));
    let e = b.ins().fadd(e, one);
    let rest = b.ins().fdiv(two, e);
    let large = b.ins().fsub(one, rest);
    let negative = b.ins().fneg(large);
    let large = lanes.select(b, (x, FloatCC::LessThan, zero), negative, large);
    let limit = lanes.number(b, TANH_SMALL);
    lanes.select(b, (size, FloatCC::LessThan, limit), small, large)
}

const LOG_P: [f64; 6] = [
    1.018_756_638_045_809_3E-4,
    4.974_949_949_767_47E-1,
    4.705_791_198_788_817,
    1.449_892_253_416_109_3E1,
    1.793_686_785_078_198_3E1,
    7.708_387_337_558_854,
];
const LOG_Q: [f64; 6] = [
    1.0,
    1.128_735_871_891_674_6E1,
    4.522_791_458_375_322_5E1,
    8.298_752_669_127_767E1,
    7.115_447_506_185_639E1,
    2.312_516_201_267_653_3E1,
];

pub(super) fn log(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    // Numbers below the normal ones are scaled by 2^54 first.
    let (smallest, scale) = (lanes.number(b, f64::MIN_POSITIVE), lanes.number(b, 18_014_398_509_481_984.0));
    let (bias, scaled_bias) = (lanes.number(b, 1022.0), lanes.number(b, 1076.0));
    let large = b.ins().fmul(x, scale);
    let bias = lanes.select(b, (x, FloatCC::LessThan, smallest), scaled_bias, bias);
    let normal = lanes.select(b, (x, FloatCC::LessThan, smallest), large, x);
    // normal = m * 2^e with m in 0.5..1
    let bits = lanes.bits(b, normal);
    let e = exponent(b, lanes, bits);
    let e = b.ins().fsub(e, bias);
    let (mantissa, half_bits) = (lanes.integer(b, 0x000f_ffff_ffff_ffff), lanes.integer(b, 0x3fe0_0000_0000_0000));
    let m = b.ins().band(bits, mantissa);
    let m = b.ins().bor(m, half_bits);
    let m = lanes.float_of_bits(b, m);
    // m in sqrt(1/2)..sqrt(2), then minus 1
    let (root, one) = (lanes.number(b, std::f64::consts::FRAC_1_SQRT_2), lanes.number(b, 1.0));
    let (e_less, m_twice) = (b.ins().fsub(e, one), b.ins().fadd(m, m));
    let e = lanes.select(b, (m, FloatCC::LessThan, root), e_less, e);
    let m = lanes.select(b, (m, FloatCC::LessThan, root), m_twice, m);
    let m = b.ins().fsub(m, one);
    let (p, q) = (polynomial(b, lanes, m, &LOG_P), polynomial(b, lanes, m, &LOG_Q));
    let quotient = b.ins().fdiv(p, q);
    let square = b.ins().fmul(m, m);
    let p = b.ins().fmul(quotient, square);
    let p = b.ins().fmul(p, m);
    let p = add_scaled(b, lanes, p, e, -2.121_944_400_546_905_7e-4);
    let p = add_scaled(b, lanes, p, square, -0.5);
    let p = b.ins().fadd(m, p);
    let result = add_scaled(b, lanes, p, e, 0.693_359_375);
    special_logs(b, lanes, x, result)
}

/// The bits of the exponent as a number: they become the last ones of 2^52, which is then taken away.
fn exponent(b: &mut FunctionBuilder, lanes: Lanes, bits: Value) -> Value {
    let places = b.ins().iconst(types::I32, 52);
    let exponent = b.ins().ushr(bits, places);
    let (large_bits, large) = (lanes.integer(b, 0x4330_0000_0000_0000), lanes.number(b, 4_503_599_627_370_496.0));
    let sum = b.ins().bor(exponent, large_bits);
    let sum = lanes.float_of_bits(b, sum);
    b.ins().fsub(sum, large)
}

/// A quarter of a turn in parts, each with few digits, so that its products with small whole numbers are exact.
const QUARTER: [f64; 3] = [1.570_796_251_296_997, 7.549_789_415_861_596e-8, 5.390_302_858_158_12e-15];
const SIN: [f64; 6] = [
    1.589_623_015_765_465_7e-10,
    -2.505_074_776_285_780_7e-8,
    2.755_731_362_138_572e-6,
    -1.984_126_982_958_954e-4,
    8.333_333_333_322_118E-3,
    -1.666_666_666_666_663E-1,
];
const COS: [f64; 6] = [
    -1.135_853_652_138_768_3e-11,
    2.087_570_084_197_473e-9,
    -2.755_731_417_929_674e-7,
    2.480_158_728_885_171_7e-5,
    -1.388_888_888_887_305_6e-3,
    4.166_666_666_666_66E-2,
];

/// Sine or cosine: to an absolute error of 1e-15 for x up to a million; beyond, its error grows with x.
pub(super) fn sine(b: &mut FunctionBuilder, lanes: Lanes, x: Value, is_cosine: bool) -> Value {
    quarters(b, lanes, (x, is_cosine), (ROUNDER, QUARTER), |b, r| {
        let square = b.ins().fmul(r, r);
        let p = polynomial(b, lanes, square, &SIN);
        let p = b.ins().fmul(p, square);
        let sine = lanes.multiply_add(b, p, r, r);
        let q = polynomial(b, lanes, square, &COS);
        let q = b.ins().fmul(q, square);
        let one = lanes.number(b, 1.0);
        let near = add_scaled(b, lanes, one, square, -0.5);
        (sine, lanes.multiply_add(b, q, square, near))
    })
}
