//! Lanes: blocks of 16 numbers, whatever the registers of the machine.
//!
//! One AVX-512 register, two of AVX2, four of NEON or SSE. Sums fold the 16 lanes by one fixed tree, so that all machines
//! with fused multiply-add give the same bits. The tail of a row is a block whose missing lanes hold a neutral number.

use pulp::Simd;

/// Numbers per block.
pub(super) const LANES: usize = 16;

/// Makes `pub(super) fn name(arch, args..)` whose body is compiled once per instruction set and picked at run time; `s` is
/// the token of the instruction set.
macro_rules! kernel {
    ($(#[$doc:meta])* fn $name:ident<$life:lifetime>($s:ident; $($arg:ident : $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        pub(super) fn $name<$life>(arch: pulp::Arch, $($arg: $ty),*) {
            struct Op<$life> { $($arg: $ty),* }
            impl<$life> pulp::WithSimd for Op<$life> {
                type Output = ();
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, $s: S) {
                    let Op { $($arg),* } = self;
                    $body
                }
            }
            arch.dispatch(Op { $($arg),* })
        }
    };
}
pub(super) use kernel;

/// A block; only the first `16 / S::F32_LANES` registers are used.
#[derive(Clone, Copy)]
pub(super) struct Block<S: Simd>([S::f32s; LANES]);

#[inline(always)]
pub(super) fn splat<S: Simd>(s: S, x: f32) -> Block<S> {
    Block([s.splat_f32s(x); LANES])
}

#[inline(always)]
fn load_whole<S: Simd>(s: S, x: &[f32]) -> Block<S> {
    let mut block = splat(s, 0.0);
    let (registers, _) = S::as_simd_f32s(&x[..LANES]);
    for (own, register) in block.0.iter_mut().zip(registers) {
        *own = *register;
    }
    block
}

#[inline(always)]
fn store_whole<S: Simd>(x: &mut [f32], block: Block<S>) {
    let (registers, _) = S::as_mut_simd_f32s(&mut x[..LANES]);
    for (register, own) in registers.iter_mut().zip(&block.0) {
        *register = *own;
    }
}

/// The block that starts at element `at`; lanes past the end hold `fill`.
#[inline(always)]
pub(super) fn load<S: Simd>(s: S, x: &[f32], at: usize, fill: f32) -> Block<S> {
    let rest = &x[at..];
    if rest.len() >= LANES {
        return load_whole(s, rest);
    }
    let mut block = [fill; LANES];
    block[..rest.len()].copy_from_slice(rest);
    load_whole(s, &block)
}

/// Stores the lanes of a block that lie inside the slice.
#[inline(always)]
pub(super) fn store<S: Simd>(_: S, x: &mut [f32], at: usize, block: Block<S>) {
    let rest = &mut x[at..];
    if rest.len() >= LANES {
        return store_whole(rest, block);
    }
    let mut whole = [0.0; LANES];
    store_whole(&mut whole, block);
    rest.copy_from_slice(&whole[..rest.len()]);
}

macro_rules! lanewise {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),+) = $op:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name<S: Simd>(s: S, $($arg: Block<S>),+) -> Block<S> {
            let mut block = splat(s, 0.0);
            for i in 0..LANES / S::F32_LANES {
                block.0[i] = s.$op($($arg.0[i]),+);
            }
            block
        }
    )*};
}

lanewise! {
    add(a, b) = add_f32s;
    sub(a, b) = sub_f32s;
    mul(a, b) = mul_f32s;
    max(a, b) = max_f32s;
    min(a, b) = min_f32s;
    /// a * b + c
    fma(a, b, c) = mul_add_e_f32s;
}

/// Folds the lanes by a fixed tree.
#[inline(always)]
fn fold<S: Simd>(block: Block<S>, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    store_whole(&mut lanes, block);
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] = f(lanes[i], lanes[i + n]);
        }
        n /= 2;
    }
    lanes[0]
}

#[inline(always)]
pub(super) fn sum<S: Simd>(block: Block<S>) -> f32 {
    fold(block, |a, b| a + b)
}

#[inline(always)]
pub(super) fn largest<S: Simd>(block: Block<S>) -> f32 {
    fold(block, |a, b| if a > b { a } else { b })
}

/// e^x to a relative error of about 1e-7, from Cephes' polynomial; x is taken to lie in -87.3..=88.
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: Block<S>) -> Block<S> {
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
