// Adds numbers 1 to `count` of `sums` to number 0, along a fixed tree. One block.
extern "C" __global__ void __launch_bounds__(256) add_sums(f64* sums, u32 count) {
    f64 sum = team_sum_f64(threadIdx.x < count ? sums[threadIdx.x + 1] : 0.0);
    if (threadIdx.x == 0) sums[0] = add_f64(sums[0], sum);
}
