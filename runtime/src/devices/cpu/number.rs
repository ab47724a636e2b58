//! Numbers that kernels compute with, in single or double precision. Every kernel is written once,
//! and compiled for both.

use super::lanes::Block;
use crate::devices::cpu::exp;
use bytemuck::Pod;
use pulp::Simd;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// An element of a tensor, alone or as a lane of a register.
pub(crate) trait Number:
    Pod
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// Below all others.
    const LOWEST: Self;

    /// The nearest number of this type.
    fn of(number: f64) -> Self;
    /// The same number in double precision.
    fn to_f64(self) -> f64;
    /// Square root.
    fn sqrt(self) -> Self;

    /// As many numbers as the machine computes with at once.
    type Register<S: Simd>: Copy;

    /// How many those are.
    fn count<S: Simd>() -> usize;
    /// The same number in all lanes.
    fn splat<S: Simd>(s: S, number: Self) -> Self::Register<S>;
    /// Whole registers at the start of a slice.
    fn registers<S: Simd>(numbers: &[Self]) -> &[Self::Register<S>];
    /// Whole registers at the start of a slice, to be written.
    fn registers_mut<S: Simd>(numbers: &mut [Self]) -> &mut [Self::Register<S>];
    /// a + b
    fn add<S: Simd>(s: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// a - b
    fn sub<S: Simd>(s: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// a * b
    fn mul<S: Simd>(s: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// The larger one.
    fn max<S: Simd>(s: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// The smaller one.
    fn min<S: Simd>(s: S, a: Self::Register<S>, b: Self::Register<S>) -> Self::Register<S>;
    /// a * b + c
    fn fma<S: Simd>(s: S, a: Self::Register<S>, b: Self::Register<S>, c: Self::Register<S>) -> Self::Register<S>;

    /// e^x, for x that is at most 0 or not far above.
    fn exp<S: Simd>(s: S, x: Block<S, Self>) -> Block<S, Self>;
}

/// Evaluates an expression with the numbers of a type of tensor. Indices are words of the same size.
macro_rules! with_numbers {
    ($dtype:expr, $number:ident => $body:expr) => {
        match $dtype {
            pipe_ir::graph::DType::F32 | pipe_ir::graph::DType::I32 => {
                type $number = f32;
                $body
            }
            pipe_ir::graph::DType::F64 => {
                type $number = f64;
                $body
            }
            pipe_ir::graph::DType::BF16 => unreachable!("the verifier lets nothing compute with bfloat16"),
        }
    };
}
pub(crate) use with_numbers;

/// Implements [`Number`] by the operations that `pulp` has for a type.
macro_rules! number {
    ($float:ident, $register:ident, $lanes:ident, $exp:path, $splat:ident, $as:ident, $as_mut:ident,
     $add:ident, $sub:ident, $mul:ident, $max:ident, $min:ident, $fma:ident) => {
        impl Number for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = Self::NEG_INFINITY;

            #[inline(always)]
            fn of(number: f64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                Self::sqrt(self)
            }

            type Register<S: Simd> = S::$register;

            #[inline(always)]
            fn count<S: Simd>() -> usize {
                S::$lanes
            }

            #[inline(always)]
            fn splat<S: Simd>(s: S, number: Self) -> S::$register {
                s.$splat(number)
            }

            #[inline(always)]
            fn registers<S: Simd>(numbers: &[Self]) -> &[S::$register] {
                S::$as(numbers).0
            }

            #[inline(always)]
            fn registers_mut<S: Simd>(numbers: &mut [Self]) -> &mut [S::$register] {
                S::$as_mut(numbers).0
            }

            number!(@ $register, add = $add, sub = $sub, mul = $mul, max = $max, min = $min);

            #[inline(always)]
            fn fma<S: Simd>(s: S, a: S::$register, b: S::$register, c: S::$register) -> S::$register {
                s.$fma(a, b, c)
            }

            #[inline(always)]
            fn exp<S: Simd>(s: S, x: Block<S, Self>) -> Block<S, Self> {
                $exp(s, x)
            }
        }
    };
    (@ $register:ident, $($name:ident = $op:ident),*) => {$(
        #[inline(always)]
        fn $name<S: Simd>(s: S, a: S::$register, b: S::$register) -> S::$register {
            s.$op(a, b)
        }
    )*};
}

number!(
    f32,
    f32s,
    F32_LANES,
    exp::exp_single,
    splat_f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    add_f32s,
    sub_f32s,
    mul_f32s,
    max_f32s,
    min_f32s,
    mul_add_e_f32s
);
number!(
    f64,
    f64s,
    F64_LANES,
    exp::exp_double,
    splat_f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    add_f64s,
    sub_f64s,
    mul_f64s,
    max_f64s,
    min_f64s,
    mul_add_e_f64s
);
