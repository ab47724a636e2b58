//! Functions as polynomials in place: no calls in loops. All machines with fused multiply-add give the same bits.
//!
//! Coefficients of `exp` and `log` are those of the Cephes library (Moshier), those of `tanh` of Eigen's rational
//! approximation. Relative errors stay below 1e-6.

use super::lanes::Lanes;
use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, Value, types};
use pipe_ir::graph::{Binary, Unary};

pub(super) fn binary(b: &mut FunctionBuilder, binary: Binary, x: Value, y: Value) -> Value {
    match binary {
        Binary::Add => b.ins().fadd(x, y),
        Binary::Sub => b.ins().fsub(x, y),
        Binary::Mul => b.ins().fmul(x, y),
        Binary::Div => b.ins().fdiv(x, y),
    }
}

pub(super) fn unary(b: &mut FunctionBuilder, lanes: Lanes, unary: Unary, x: Value) -> Value {
    let zero = lanes.number(b, 0.0);
    let one = lanes.number(b, 1.0);
    match unary {
        Unary::Neg => b.ins().fneg(x),
        Unary::Exp => exp(b, lanes, x),
        Unary::Log => log(b, lanes, x),
        Unary::Tanh => tanh(b, lanes, x),
        Unary::Sqrt => b.ins().sqrt(x),
        Unary::Reciprocal => b.ins().fdiv(one, x),
        Unary::Relu => lanes.select(b, (x, FloatCC::LessThan, zero), zero, x),
        Unary::Step => lanes.select(b, (x, FloatCC::GreaterThan, zero), one, zero),
    }
}

/// c0 * x^n + c1 * x^(n - 1) + ..
fn polynomial(b: &mut FunctionBuilder, lanes: Lanes, x: Value, coefficients: &[f32]) -> Value {
    let mut sum = lanes.number(b, coefficients[0]);
    for coefficient in &coefficients[1..] {
        let coefficient = lanes.number(b, *coefficient);
        sum = lanes.multiply_add(b, sum, x, coefficient);
    }
    sum
}

/// x + factor * y
fn add_scaled(b: &mut FunctionBuilder, lanes: Lanes, x: Value, y: Value, factor: f32) -> Value {
    let factor = lanes.number(b, factor);
    lanes.multiply_add(b, y, factor, x)
}

/// x between two bounds; NaN stays.
fn clamp(b: &mut FunctionBuilder, lanes: Lanes, x: Value, low: f32, high: f32) -> Value {
    let (low, high) = (lanes.number(b, low), lanes.number(b, high));
    let x = lanes.select(b, (x, FloatCC::LessThan, low), low, x);
    lanes.select(b, (high, FloatCC::LessThan, x), high, x)
}

/// Beyond these, e^x is 0 (below the normal numbers) or infinite.
const EXP_RANGE: (f32, f32) = (-87.336_54, 88.722_83);

fn exp(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    let clamped = clamp(b, lanes, x, EXP_RANGE.0, EXP_RANGE.1);
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    let magic = lanes.number(b, 12_582_912.0);
    let shifted = add_scaled(b, lanes, magic, clamped, std::f32::consts::LOG2_E);
    let n = b.ins().fsub(shifted, magic);
    let r = add_scaled(b, lanes, clamped, n, -0.693_359_4);
    let r = add_scaled(b, lanes, r, n, 2.121_944_4e-4);
    let coefficients = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
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
    let (low, high) = (lanes.number(b, EXP_RANGE.0), lanes.number(b, EXP_RANGE.1));
    let (zero, infinity) = (lanes.number(b, 0.0), lanes.number(b, f32::INFINITY));
    let result = lanes.select(b, (x, FloatCC::LessThan, low), zero, result);
    let result = lanes.select(b, (x, FloatCC::GreaterThan, high), infinity, result);
    lanes.select(b, (x, FloatCC::Equal, x), result, x)
}

fn tanh(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
    let x = clamp(b, lanes, x, -7.998_811_7, 7.998_811_7);
    let square = b.ins().fmul(x, x);
    let numerator =
        [-2.760_768_5e-16, 2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_4e-5, 6.372_619_3e-4, 4.893_524_6e-3];
    let denominator = [1.198_258_4e-6, 1.185_347_1e-4, 2.268_434_7e-3, 4.893_525e-3];
    let p = polynomial(b, lanes, square, &numerator);
    let p = b.ins().fmul(p, x);
    let q = polynomial(b, lanes, square, &denominator);
    b.ins().fdiv(p, q)
}

fn log(b: &mut FunctionBuilder, lanes: Lanes, x: Value) -> Value {
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
        7.037_683_6e-2,
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
    let p = add_scaled(b, lanes, p, e, -2.121_944_4e-4);
    let p = add_scaled(b, lanes, p, square, -0.5);
    let p = b.ins().fadd(m, p);
    let result = add_scaled(b, lanes, p, e, 0.693_359_4);
    special_logs(b, lanes, x, result)
}

/// log 0 = -inf, log inf = inf, and NaN for what has no logarithm.
fn special_logs(b: &mut FunctionBuilder, lanes: Lanes, x: Value, result: Value) -> Value {
    let (zero, infinity) = (lanes.number(b, 0.0), lanes.number(b, f32::INFINITY));
    let (minus_infinity, nan) = (lanes.number(b, f32::NEG_INFINITY), lanes.number(b, f32::NAN));
    let result = lanes.select(b, (x, FloatCC::Equal, zero), minus_infinity, result);
    let result = lanes.select(b, (x, FloatCC::Equal, infinity), infinity, result);
    lanes.select(b, (x, FloatCC::GreaterThanOrEqual, zero), result, nan)
}
