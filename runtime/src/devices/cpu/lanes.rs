//! Lanes: blocks of 16 numbers, whatever the registers of the machine.
//!
//! In single precision one AVX-512 register, two of AVX2, four of NEON or SSE; in double precision
//! twice as many. Sums fold the 16 lanes by one fixed tree, so that all machines with fused
//! multiply-add give the same bits. The tail of a row is a block whose missing lanes hold a neutral
//! number.

use super::number::Number;
use pulp::Simd;

/// Numbers per block.
pub(super) const LANES: usize = 16;

/// The vector instructions that kernels use on this machine.
pub fn instruction_set() -> &'static str {
    struct Registers;
    impl pulp::WithSimd for Registers {
        type Output = usize;
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }
    match (std::env::consts::ARCH, pulp::Arch::new().dispatch(Registers)) {
        ("x86_64" | "x86", 16) => "AVX-512",
        ("x86_64" | "x86", 8) => "AVX2",
        ("aarch64", 4) => "NEON",
        _ => "no vector instructions",
    }
}

/// Makes `fn name(arch, args..)`, for all of this folder, whose body is compiled once per instruction set and
/// type of number, and picked at run time by the instruction set; `s` is the token of that.
macro_rules! kernel {
    ($(#[$doc:meta])* fn $name:ident<$life:lifetime, $number:ident>($s:ident; $($arg:ident : $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        pub(in crate::devices::cpu) fn $name<$life, $number: Number>(arch: pulp::Arch, $($arg: $ty),*) {
            struct Op<$life, $number: Number> { $($arg: $ty),* }
            impl<$life, $number: Number> pulp::WithSimd for Op<$life, $number> {
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

/// A block; only the first `16 / T::count::<S>()` registers are used.
#[derive(Clone, Copy)]
pub(crate) struct Block<S: Simd, T: Number>(pub(super) [T::Register<S>; LANES]);

impl<S: Simd, T: Number> Block<S, T> {
    /// The block of these numbers.
    #[inline(always)]
    pub(super) fn of(s: S, numbers: &[T; LANES]) -> Self {
        load_whole(s, numbers)
    }

    /// Its numbers.
    #[inline(always)]
    pub(super) fn numbers(self, _: S) -> [T; LANES] {
        let mut numbers = [T::ZERO; LANES];
        store_whole(&mut numbers, self);
        numbers
    }
}

#[inline(always)]
pub(super) fn splat<S: Simd, T: Number>(s: S, x: T) -> Block<S, T> {
    Block([T::splat(s, x); LANES])
}

#[inline(always)]
fn load_whole<S: Simd, T: Number>(s: S, x: &[T]) -> Block<S, T> {
    let mut block = splat(s, T::ZERO);
    for (own, register) in block.0.iter_mut().zip(T::registers::<S>(&x[..LANES])) {
        *own = *register;
    }
    block
}

#[inline(always)]
fn store_whole<S: Simd, T: Number>(x: &mut [T], block: Block<S, T>) {
    for (register, own) in T::registers_mut::<S>(&mut x[..LANES]).iter_mut().zip(&block.0) {
        *register = *own;
    }
}

/// The block that starts at element `at`; lanes past the end hold `fill`.
#[inline(always)]
pub(super) fn load<S: Simd, T: Number>(s: S, x: &[T], at: usize, fill: T) -> Block<S, T> {
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
pub(super) fn store<S: Simd, T: Number>(s: S, x: &mut [T], at: usize, block: Block<S, T>) {
    let rest = &mut x[at..];
    if rest.len() >= LANES {
        return store_whole(rest, block);
    }
    rest.copy_from_slice(&block.numbers(s)[..rest.len()]);
}

macro_rules! lanewise {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),+);)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name<S: Simd, T: Number>(s: S, $($arg: Block<S, T>),+) -> Block<S, T> {
            let mut block = splat(s, T::ZERO);
            for i in 0..LANES / T::count::<S>() {
                block.0[i] = <T as Number>::$name(s, $($arg.0[i]),+);
            }
            block
        }
    )*};
}

lanewise! {
    add(a, b);
    sub(a, b);
    mul(a, b);
    max(a, b);
    min(a, b);
    /// a * b + c
    fma(a, b, c);
}

/// a / b
#[inline(always)]
pub(super) fn quotient<S: Simd, T: Number>(s: S, a: Block<S, T>, b: Block<S, T>) -> Block<S, T> {
    let (mut a, b) = (a.numbers(s), b.numbers(s));
    for (a, b) in a.iter_mut().zip(b) {
        *a = *a / b;
    }
    Block::of(s, &a)
}

/// Folds the lanes by a fixed tree.
#[inline(always)]
fn fold<S: Simd, T: Number>(s: S, block: Block<S, T>, f: impl Fn(T, T) -> T) -> T {
    let mut lanes = block.numbers(s);
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
pub(super) fn sum<S: Simd, T: Number>(s: S, block: Block<S, T>) -> T {
    fold(s, block, |a, b| a + b)
}

#[inline(always)]
pub(super) fn largest<S: Simd, T: Number>(s: S, block: Block<S, T>) -> T {
    fold(s, block, |a, b| if a > b { a } else { b })
}
