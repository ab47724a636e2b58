// Mean and 1 / sqrt(variance + epsilon) of each row. The variance is that of the differences from the mean: two passes, the second from the cache.
extern "C" __global__ void __launch_bounds__(512, 2) norm_statistics_REAL_STORED(In_STORED x, REAL* out, u64 rows, u64 width, REAL epsilon) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    REAL total = 0;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) total += x[column];
    REAL mean = team_sum_REAL(total) / (REAL)(f64)width;
    REAL squares = 0;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
        REAL d = x[column] - mean;
        squares += d * d;
    }
    REAL variance = team_sum_REAL(squares) / (REAL)(f64)width;
    if (threadIdx.x == 0) {
        out[2 * row] = mean;
        out[2 * row + 1] = 1 / sqrt_REAL(variance + epsilon);
    }
}
