//! Functions as polynomials in place: no calls in loops. All machines with fused multiply-add give the same bits.

mod double;
mod single;

use super::lanes::Lanes;
use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, Value};
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
        Unary::Exp if lanes.is_double() => double::exp(b, lanes, x),
        Unary::Log if lanes.is_double() => double::log(b, lanes, x),
        Unary::Tanh if lanes.is_double() => double::tanh(b, lanes, x),
        Unary::Exp => single::exp(b, lanes, x),
        Unary::Log => single::log(b, lanes, x),
        Unary::Tanh => single::tanh(b, lanes, x),
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
