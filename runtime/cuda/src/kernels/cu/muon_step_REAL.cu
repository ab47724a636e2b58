// Muon (arXiv 2502.16982), after the orthogonalization: p = keep p - rate factor direction. `keep` is 1 where weights
// do not decay.
// The old parameters may be the new ones. Every operation is rounded for itself: the bits are those of the CPU.
extern "C" __global__ void __launch_bounds__(256)
muon_step_REAL(const REAL* old, REAL* p, const REAL* direction, const StepNumbers* step, u64 count, u32 decays, f64 factor) {
    REAL keep = decays ? (REAL)step->keep : (REAL)1, rate = (REAL)mul_f64(-step->rate, factor);
    u64 stride = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += stride) {
        p[at] = add_REAL(mul_REAL(keep, old[at]), mul_REAL(rate, direction[at]));
    }
}
