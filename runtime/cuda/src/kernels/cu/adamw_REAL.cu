// AdamW (arXiv 1711.05101, Algorithm 2) in one pass: m = b1 m + c1 g; v = b2 v + c2 g g; p = keep p + rate m / (root sqrt(v) + epsilon), where c = 1 - b, `rate`
// is minus the learning rate over 1 - b1^t, and `root` corrects v. `keep` is 1 where weights do not decay.
// The old parameters may be the new ones.
// Every operation is rounded for itself: the bits are those of the CPU.
// Gradients are scaled so that the norm of all, whose squares are given, is `most` or less.
extern "C" __global__ void __launch_bounds__(256)
adamw_REAL(const REAL* old, REAL* p, const REAL* g, REAL* m, REAL* v, const StepNumbers* step, const f64* squares, f64 most, u64 count, u32 decays, REAL b1, REAL c1, REAL b2, REAL c2, REAL epsilon) {
    REAL keep = decays ? (REAL)step->keep : (REAL)1, rate = (REAL)step->corrected_rate, root = (REAL)step->root;
    REAL scale = (REAL)clip_scale(squares, most);
    u64 stride = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += stride) {
        REAL own = mul_REAL(scale, g[at]);
        REAL first = add_REAL(mul_REAL(b1, m[at]), mul_REAL(c1, own));
        REAL second = add_REAL(mul_REAL(b2, v[at]), mul_REAL(c2, mul_REAL(own, own)));
        m[at] = first;
        v[at] = second;
        p[at] = add_REAL(mul_REAL(keep, old[at]), mul_REAL(rate, first) / add_REAL(mul_REAL(root, sqrt_REAL(second)), epsilon));
    }
}
