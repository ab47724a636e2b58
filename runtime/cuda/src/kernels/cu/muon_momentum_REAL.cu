// Muon (arXiv 2502.16982), before the orthogonalization: m = kept m + fresh g; direction = kept m + fresh g
// (Nesterov), where fresh = 1 - kept.
// Every operation is rounded for itself: the bits are those of the CPU.
// Gradients are scaled so that the norm of all, whose squares are given, is `most` or less.
extern "C" __global__ void __launch_bounds__(256)
muon_momentum_REAL(const REAL* g, REAL* m, REAL* direction, const f64* squares, f64 most, u64 count, REAL kept, REAL fresh) {
    REAL scale = (REAL)clip_scale(squares, most);
    u64 stride = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += stride) {
        REAL own = mul_REAL(scale, g[at]);
        REAL momentum = add_REAL(mul_REAL(kept, m[at]), mul_REAL(fresh, own));
        m[at] = momentum;
        direction[at] = add_REAL(mul_REAL(kept, momentum), mul_REAL(fresh, own));
    }
}
