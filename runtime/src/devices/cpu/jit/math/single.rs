//! Functions in single precision, to a relative error below 1e-6. Coefficients of `exp` and `log`
//! are those of the Cephes library (Moshier), those of `tanh` of Eigen's rational approximation.

use super::super::lanes::Lanes;
use super::{add_scaled, clamp, polynomial, quarters, special_exps, special_logs};
use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, Value, types};

/// Beyond these, e^x is 0 (below the normal numbers) or infinite.
const EXP_RANGE: (f32, f32) = (-87.336_54, 88.722_83);

pub(super) fn exp(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    let clamped = clamp(b, lanes, x, EXP_RANGE.0, EXP_RANGE.1);
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    let magic = lanes.number(b, 12_582_912.0);
    let shifted = add_scaled(b, lanes, magic, clamped, std::f32::consts::LOG2_E);
    let n = b.ins().fsub(shifted, magic);
    let r = add_scaled(b, lanes, clamped, n, -0.693_359_4_f32);
    let r = add_scaled(b, lanes, r, n, 2.121_944_4e-4_f32);
    let coefficients = [1.987_569_1e-4_f32, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let p = polynomial(b, lanes, r, &coefficients);
    let square = b.ins().fmul(r, r);
    let p = lanes.multiply_add(b, p, square, r);
    let one = lanes.number(b, 1.0);
    let p = b.ins().fadd(p, one);
    // p * 2^n: n is added to the exponent.
    let (p, n) = (lanes.bits(b, p), lanes.bits(b, shifted));
    let places = b.ins().iconst(types::I32, 23);
    let n = b.ins().ishl(n, places);
    let sum = b.ins().iadd(p, n);
    let result = lanes.float_of_bits(b, sum);
    special_exps(b, lanes, x, result, EXP_RANGE)
}

pub(super) fn tanh(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    let x = clamp(b, lanes, x, -7.998_811_7_f32, 7.998_811_7_f32);
    let square = b.ins().fmul(x, x);
    let numerator = [
        -2.760_768_5e-16_f32,
        2.000_188e-13,
        -8.604_672e-11,
        5.122_297e-8,
        1.485_722_4e-5,
        6.372_619_3e-4,
        4.893_524_6e-3,
    ];
    let denominator = [1.198_258_4e-6_f32, 1.185_347_1e-4, 2.268_434_7e-3, 4.893_525e-3];
    let p = polynomial(b, lanes, square, &numerator);
    let p = b.ins().fmul(p, x);
    let q = polynomial(b, lanes, square, &denominator);
    b.ins().fdiv(p, q)
}

pub(super) fn log(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    // Numbers below the normal ones are scaled by 2^25 first.
    let (smallest, scale) = (lanes.number(b, f32::MIN_POSITIVE), lanes.number(b, 33_554_432.0));
    let (bias, scaled_bias) = (lanes.number(b, 126.0), lanes.number(b, 151.0));
    let large = b.ins().fmul(x, scale);
    let bias = lanes.select(b, (x, FloatCC::LessThan, smallest), scaled_bias, bias);
    let normal = lanes.select(b, (x, FloatCC::LessThan, smallest), large, x);
    // normal = m * 2^e with m in 0.5..1
    let bits = lanes.bits(b, normal);
    let places = b.ins().iconst(types::I32, 23);
    let e = b.ins().ushr(bits, places);
    let e = lanes.float_of_integer(b, e);
    let e = b.ins().fsub(e, bias);
    let (mantissa, half_bits) = (lanes.integer(b, 0x007f_ffff), lanes.integer(b, 0x3f00_0000));
    let m = b.ins().band(bits, mantissa);
    let m = b.ins().bor(m, half_bits);
    let m = lanes.float_of_bits(b, m);
    // m in sqrt(1/2)..sqrt(2), then minus 1
    let (root, one) = (lanes.number(b, std::f32::consts::FRAC_1_SQRT_2), lanes.number(b, 1.0));
    let (e_less, m_twice) = (b.ins().fsub(e, one), b.ins().fadd(m, m));
    let e = lanes.select(b, (m, FloatCC::LessThan, root), e_less, e);
    let m = lanes.select(b, (m, FloatCC::LessThan, root), m_twice, m);
    let m = b.ins().fsub(m, one);
    let coefficients = [
        7.037_683_6e-2_f32,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let p = polynomial(b, lanes, m, &coefficients);
    let square = b.ins().fmul(m, m);
    let p = b.ins().fmul(p, m);
    let p = b.ins().fmul(p, square);
    let p = add_scaled(b, lanes, p, e, -2.121_944_4e-4_f32);
    let p = add_scaled(b, lanes, p, square, -0.5);
    let p = b.ins().fadd(m, p);
    let result = add_scaled(b, lanes, p, e, 0.693_359_4_f32);
    special_logs(b, lanes, x, result)
}

/// A quarter of a turn in parts, each with few digits, so that its products with small whole numbers are exact.
const QUARTER: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];

/// Sine or cosine: to an absolute error of 1e-7 for x up to 10,000; beyond, its error grows with x.
pub(super) fn sine(b: &mut FunctionBuilder, lanes: Lanes, x: Value, is_cosine: bool) -> Value {
    quarters(b, lanes, (x, is_cosine), (12_582_912.0_f32, QUARTER), |b, r| {
        let square = b.ins().fmul(r, r);
        let p = polynomial(b, lanes, square, &[-1.951_529_6e-4_f32, 8.332_161e-3, -1.666_665_5e-1]);
        let p = b.ins().fmul(p, square);
        let sine = lanes.multiply_add(b, p, r, r);
        let q = polynomial(b, lanes, square, &[2.443_315_7e-5_f32, -1.388_731_6e-3, 4.166_664_6e-2]);
        let q = b.ins().fmul(q, square);
        let one = lanes.number(b, 1.0);
        let near = add_scaled(b, lanes, one, square, -0.5);
        (sine, lanes.multiply_add(b, q, square, near))
    })
}
