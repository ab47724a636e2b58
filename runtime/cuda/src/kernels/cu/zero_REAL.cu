// Zeros.
extern "C" __global__ void __launch_bounds__(256) zero_REAL(REAL* out, u64 count) {
    u64 step = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += step) out[at] = 0;
}
