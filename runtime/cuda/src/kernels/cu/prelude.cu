// Kernels of pipec. One translation unit without headers; REAL in a kernel's file stands for f32 or f64 (or for a word, in copies).

typedef float f32;
typedef double f64;
typedef int i32;
typedef unsigned u32;
typedef unsigned short bf16;
typedef unsigned long long u64;

// Functions at full precision: no fast variants.
__device__ __forceinline__ f32 exp_f32(f32 x) { return expf(x); }
__device__ __forceinline__ f64 exp_f64(f64 x) { return exp(x); }
__device__ __forceinline__ f32 log_f32(f32 x) { return logf(x); }
__device__ __forceinline__ f64 log_f64(f64 x) { return log(x); }
__device__ __forceinline__ f32 tanh_f32(f32 x) { return tanhf(x); }
__device__ __forceinline__ f64 tanh_f64(f64 x) { return tanh(x); }
__device__ __forceinline__ f32 sin_f32(f32 x) { return sinf(x); }
__device__ __forceinline__ f64 sin_f64(f64 x) { return sin(x); }
__device__ __forceinline__ f32 cos_f32(f32 x) { return cosf(x); }
__device__ __forceinline__ f64 cos_f64(f64 x) { return cos(x); }
__device__ __forceinline__ f32 sqrt_f32(f32 x) { return sqrtf(x); }
__device__ __forceinline__ f64 sqrt_f64(f64 x) { return sqrt(x); }

// Sums and products that are rounded each for themselves, as on the processor: an element's bits do not depend on what it was fused with.
__device__ __forceinline__ f32 add_f32(f32 a, f32 b) { return __fadd_rn(a, b); }
__device__ __forceinline__ f64 add_f64(f64 a, f64 b) { return __dadd_rn(a, b); }
__device__ __forceinline__ f32 sub_f32(f32 a, f32 b) { return __fsub_rn(a, b); }
__device__ __forceinline__ f64 sub_f64(f64 a, f64 b) { return __dsub_rn(a, b); }
__device__ __forceinline__ f32 mul_f32(f32 a, f32 b) { return __fmul_rn(a, b); }
__device__ __forceinline__ f64 mul_f64(f64 a, f64 b) { return __dmul_rn(a, b); }

// A number from 0 to below 1 that follows from the bits of two: `hash` in the crate `pipe-ir`.
__device__ __forceinline__ u32 mixed_bits(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}
__device__ __forceinline__ u32 hash_bits(f32 a, f32 b) {
    return mixed_bits(mixed_bits(__float_as_uint(a) + 0x9e3779b9u) ^ __float_as_uint(b)) >> 8;
}
__device__ __forceinline__ f32 hash_f32(f32 a, f32 b) { return (f32)hash_bits(a, b) * 5.9604644775390625e-8f; }
__device__ __forceinline__ f64 hash_f64(f64 a, f64 b) { return (f64)hash_bits((f32)a, (f32)b) * 5.9604644775390625e-8; }

// bf16 is the upper half of an f32, and is stored so. Rounded is the nearest one, the even one of two; what is no number stays none.
__device__ __forceinline__ f32 widened_bf16(bf16 half) { return __uint_as_float((u32)half << 16); }
__device__ __forceinline__ bf16 upper_half(f32 x) { return (bf16)(__float_as_uint(x) >> 16); }
__device__ __forceinline__ f32 rounded_bf16(f32 x) {
    u32 bits = __float_as_uint(x);
    return __uint_as_float((x == x ? bits + 0x7fffu + (bits >> 16 & 1u) : bits | 0x00400000u) & 0xffff0000u);
}

// Numbers as they are computed with, however they are stored, and as they are stored.
__device__ __forceinline__ f32 widened(f32 x) { return x; }
__device__ __forceinline__ f64 widened(f64 x) { return x; }
__device__ __forceinline__ f32 widened(bf16 half) { return widened_bf16(half); }
__device__ __forceinline__ void put(f32& to, f32 x) { to = x; }
__device__ __forceinline__ void put(f64& to, f64 x) { to = x; }
__device__ __forceinline__ void put(bf16& to, f32 x) { to = upper_half(rounded_bf16(x)); }

// Below all other numbers, in either precision. (-1 / 0 would be divided in every kernel.)
#define LOWEST __uint_as_float(0xff800000u)

// Neighbours that are loaded and stored at once.
template <class Stored, u32 COUNT>
struct __align__(COUNT * sizeof(Stored) < 16 ? COUNT * sizeof(Stored) : 16) Neighbours {
    Stored at[COUNT];
};
struct __align__(16) Four_f32 {
    f32 at[4];
};
struct __align__(8) Two_f32 {
    f32 at[2];
};
struct __align__(16) Four_f64 {
    f64 at[4];
};
