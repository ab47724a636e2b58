//! Functions as polynomials in place: no calls in loops. All machines with fused multiply-add give the same bits.

mod double;
mod single;

use super::lanes::Lanes;
use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, Value};
use pipe_ir::graph::{Binary, HASH_START, HASH_STEPS, HASH_UNIT, Unary};

pub(super) fn binary(b: &mut FunctionBuilder, lanes: Lanes, binary: Binary, x: Value, y: Value) -> Value {
    match binary {
        Binary::Add => b.ins().fadd(x, y),
        Binary::Sub => b.ins().fsub(x, y),
        Binary::Mul => b.ins().fmul(x, y),
        Binary::Div => b.ins().fdiv(x, y),
        Binary::Mask => {
            let zero = lanes.number(b, 0.0);
            lanes.select(b, (y, FloatCC::GreaterThan, zero), x, zero)
        }
        Binary::Hash => hash(b, lanes, x, y),
    }
}

/// As [`pipe_ir::graph::hash`], in every lane.
fn hash(b: &mut FunctionBuilder, lanes: Lanes, x: Value, y: Value) -> Value {
    let (x, y) = (lanes.bits_of_singles(b, x), lanes.bits_of_singles(b, y));
    let start = lanes.word(b, HASH_START);
    let first = b.ins().iadd(x, start);
    let first = mixed(b, lanes, first);
    let both = b.ins().bxor(first, y);
    let both = mixed(b, lanes, both);
    let upper = b.ins().ushr_imm_u(both, 8);
    let number = lanes.number_of_word(b, upper);
    let unit = lanes.number(b, HASH_UNIT);
    b.ins().fmul(number, unit)
}

fn mixed(b: &mut FunctionBuilder, lanes: Lanes, mut bits: Value) -> Value {
    for (shift, factor) in HASH_STEPS {
        let shifted = b.ins().ushr_imm_u(bits, i64::from(shift));
        bits = b.ins().bxor(bits, shifted);
        if factor != 1 {
            let factor = lanes.word(b, factor);
            bits = b.ins().imul(bits, factor);
        }
    }
    bits
}

pub(super) fn unary(b: &mut FunctionBuilder, lanes: Lanes, unary: Unary, x: Value) -> Value {
    let zero = lanes.number(b, 0.0);
    let one = lanes.number(b, 1.0);
    match unary {
        Unary::Neg => b.ins().fneg(x),
        Unary::Exp if lanes.is_double() => double::exp(b, lanes, x),
        Unary::Log if lanes.is_double() => double::log(b, lanes, x),
        Unary::Tanh if lanes.is_double() => double::tanh(b, lanes, x),
        Unary::Sin if lanes.is_double() => double::sine(b, lanes, x, false),
        Unary::Cos if lanes.is_double() => double::sine(b, lanes, x, true),
        Unary::Sin => single::sine(b, lanes, x, false),
        Unary::Cos => single::sine(b, lanes, x, true),
        Unary::Exp => single::exp(b, lanes, x),
        Unary::Log => single::log(b, lanes, x),
        Unary::Tanh => single::tanh(b, lanes, x),
        Unary::Detach => x,
        Unary::Sqrt => b.ins().sqrt(x),
        Unary::Reciprocal => b.ins().fdiv(one, x),
        Unary::Relu => lanes.select(b, (x, FloatCC::LessThan, zero), zero, x),
        Unary::Step => lanes.select(b, (x, FloatCC::GreaterThan, zero), one, zero),
    }
}

/// c0 * x^n + c1 * x^(n - 1) + ..
fn polynomial(b: &mut FunctionBuilder, lanes: Lanes, x: Value, coefficients: &[impl Into<f64> + Copy]) -> Value {
    let mut sum = lanes.number(b, coefficients[0]);
    for coefficient in &coefficients[1..] {
        let coefficient = lanes.number(b, *coefficient);
        sum = lanes.multiply_add(b, sum, x, coefficient);
    }
    sum
}

/// x + factor * y
fn add_scaled(b: &mut FunctionBuilder, lanes: Lanes, x: Value, y: Value, factor: impl Into<f64>) -> Value {
    let factor = lanes.number(b, factor);
    lanes.multiply_add(b, y, factor, x)
}

/// x between two bounds; NaN stays.
fn clamp(b: &mut FunctionBuilder, lanes: Lanes, x: Value, low: impl Into<f64>, high: impl Into<f64>) -> Value {
    let (low, high) = (lanes.number(b, low), lanes.number(b, high));
    let x = lanes.select(b, (x, FloatCC::LessThan, low), low, x);
    lanes.select(b, (high, FloatCC::LessThan, x), high, x)
}

/// 0 and infinity beyond the range of e^x, and NaN for NaN.
fn special_exps(
    b: &mut FunctionBuilder,
    lanes: Lanes,
    x: Value,
    result: Value,
    (low, high): (impl Into<f64>, impl Into<f64>),
) -> Value {
    let (low, high) = (lanes.number(b, low), lanes.number(b, high));
    let (zero, infinity) = (lanes.number(b, 0.0), lanes.number(b, f64::INFINITY));
    let result = lanes.select(b, (x, FloatCC::LessThan, low), zero, result);
    let result = lanes.select(b, (x, FloatCC::GreaterThan, high), infinity, result);
    lanes.select(b, (x, FloatCC::Equal, x), result, x)
}

/// log 0 = -inf, log inf = inf, and NaN for what has no logarithm.
fn special_logs(b: &mut FunctionBuilder, lanes: Lanes, x: Value, result: Value) -> Value {
    let (zero, infinity) = (lanes.number(b, 0.0), lanes.number(b, f64::INFINITY));
    let (minus_infinity, nan) = (lanes.number(b, f64::NEG_INFINITY), lanes.number(b, f64::NAN));
    let result = lanes.select(b, (x, FloatCC::Equal, zero), minus_infinity, result);
    let result = lanes.select(b, (x, FloatCC::Equal, infinity), infinity, result);
    lanes.select(b, (x, FloatCC::GreaterThanOrEqual, zero), result, nan)
}

/// The sine of x, or its cosine: x less the nearest multiple of a quarter turn is small, and the number
/// of quarters says which of two polynomials it is, and its sign (Cody and Waite). `rounder` is
/// 1.5 * 2^p for p digits of fraction: a number that is added to it becomes whole, and is in its low bits.
fn quarters<const PARTS: usize>(
    b: &mut FunctionBuilder,
    lanes: Lanes,
    (x, is_cosine): (Value, bool),
    (rounder, quarter): (impl Into<f64> + Copy, [impl Into<f64> + Copy; PARTS]),
    polynomials: impl FnOnce(&mut FunctionBuilder, Value) -> (Value, Value),
) -> Value {
    let rounder = lanes.number(b, rounder);
    let shifted = add_scaled(b, lanes, rounder, x, std::f64::consts::FRAC_2_PI);
    let n = b.ins().fsub(shifted, rounder);
    let mut rest = x;
    for part in quarter {
        let part: f64 = part.into();
        rest = add_scaled(b, lanes, rest, n, -part);
    }
    let (sine, cosine) = polynomials(b, rest);
    let quarters = lanes.bits(b, shifted);
    let quarters = if is_cosine {
        let one = lanes.integer(b, 1);
        b.ins().iadd(quarters, one)
    } else {
        quarters
    };
    // Odd quarters have the other polynomial, and the second half of a turn the other sign.
    let odd = lanes.bit(b, quarters, 0);
    let turned = lanes.bit(b, quarters, 1);
    let zero = lanes.number(b, 0.0);
    let size = lanes.select(b, (odd, FloatCC::GreaterThan, zero), cosine, sine);
    let negative = b.ins().fneg(size);
    let result = lanes.select(b, (turned, FloatCC::GreaterThan, zero), negative, size);
    // Infinities have no sine.
    let difference = b.ins().fsub(x, x);
    b.ins().fadd(result, difference)
}
