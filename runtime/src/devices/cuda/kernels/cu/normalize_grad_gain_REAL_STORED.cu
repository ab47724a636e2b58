// out[j] (+)= sum over rows of dy * (x - mean) * rstd. A block has some columns; each of its rows of threads sums every blockDim.y-th row.
extern "C" __global__ void __launch_bounds__(512, 2)
normalize_grad_gain_REAL_STORED(In_STORED x, const REAL* statistics, In_STORED dy, REAL* out, u64 rows, u64 width, u32 accumulate) {
    u64 column = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    REAL total = 0;
    if (column < width) {
#pragma unroll 4
        for (u64 row = threadIdx.y; row < rows; row += blockDim.y) {
            REAL mean = statistics[2 * row], rstd = statistics[2 * row + 1];
            total += dy[row * width + column] * ((x[row * width + column] - mean) * rstd);
        }
    }
    total = folded_REAL(total);
    if (threadIdx.y == 0 && column < width) out[column] = accumulate ? out[column] + total : total;
}
