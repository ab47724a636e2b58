// out[i] (+)= sum over r of x[i, r].
extern "C" __global__ void __launch_bounds__(512, 2)
sum_rows_REAL_STORED(const STORED* x, REAL* out, u64 rows, u64 width, u32 accumulate) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    REAL total = 0;
#pragma unroll 8
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) total += widened(x[column]);
    total = team_sum_REAL(total);
    if (threadIdx.x == 0) out[row] = accumulate ? out[row] + total : total;
}
