// Lion (arXiv 2302.06675, Algorithm 2) in one pass: p = keep p - rate sign(b1 m + c1 g); m = b2 m + c2 g,
// where c = 1 - b, and `keep` is 1 where weights do not decay.
// The old parameters may be the new ones. Every operation is rounded for itself: the bits are those of the CPU.
// Gradients are scaled so that the norm of all, whose squares are given, is `most` or less.
extern "C" __global__ void __launch_bounds__(256)
lion_REAL(const REAL* old, REAL* p, const REAL* g, REAL* m, const StepNumbers* step, const f64* squares, f64 most, u64 count, u32 decays, REAL b1, REAL c1, REAL b2, REAL c2) {
    REAL keep = decays ? (REAL)step->keep : (REAL)1, rate = (REAL)step->rate;
    REAL scale = (REAL)clip_scale(squares, most);
    u64 stride = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += stride) {
        REAL own = mul_REAL(scale, g[at]);
        REAL direction = add_REAL(mul_REAL(b1, m[at]), mul_REAL(c1, own));
        REAL towards = direction > (REAL)0 ? rate : (REAL)0, away = direction < (REAL)0 ? rate : (REAL)0;
        m[at] = add_REAL(mul_REAL(b2, m[at]), mul_REAL(c2, own));
        p[at] = add_REAL(mul_REAL(keep, old[at]), sub_REAL(away, towards));
    }
}
