// Sums of squares in double precision: block b leaves its own in number b + 1 of `sums`. A thread adds up its elements in their order, a block those of its
// threads along a fixed tree.
extern "C" __global__ void __launch_bounds__(256) squares_REAL(f64* sums, const REAL* g, u64 count) {
    f64 sum = 0;
    u64 stride = (u64)gridDim.x * 256;
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += stride) {
        f64 own = (f64)g[at];
        sum = add_f64(sum, mul_f64(own, own));
    }
    sum = team_sum_f64(sum);
    if (threadIdx.x == 0) sums[blockIdx.x + 1] = sum;
}
