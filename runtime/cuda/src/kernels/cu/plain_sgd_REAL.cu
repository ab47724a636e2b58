// p -= rate * (g + weight_decay * p). The old parameters may be the new ones. The bits are
// those of the CPU.
// Gradients are scaled so that the norm of all, whose squares are given, is `most` or less.
extern "C" __global__ void __launch_bounds__(256)
plain_sgd_REAL(const REAL* old, REAL* p, const REAL* g, const StepNumbers* step, const f64* squares, f64 most, u64 count, REAL weight_decay) {
    REAL rate = (REAL)step->rate;
    REAL scale = (REAL)clip_scale(squares, most);
    u64 stride = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += stride) {
        p[at] = sub_REAL(old[at], mul_REAL(rate, add_REAL(mul_REAL(scale, g[at]), mul_REAL(weight_decay, old[at]))));
    }
}
