// Mean (0 with `rms`) and 1 / sqrt(variance + epsilon) of each row. The variance is that of the differences from the mean: two passes, the second from the cache.
extern "C" __global__ void __launch_bounds__(512, 2)
norm_statistics_REAL_STORED_xLANES(const STORED* x, REAL* out, u64 rows, u64 width, REAL epsilon, u32 rms) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    REAL total = 0;
#pragma unroll 4
    for (u64 column = rms ? width : 4 * threadIdx.x; column < width; column += 4 * blockDim.x) {
        REAL own[4];
        load_four<LANES>(own, x, column, width, (REAL)0);
        total += own[0] + own[1] + (own[2] + own[3]);
    }
    REAL mean = rms ? 0 : team_sum_REAL(total) / (REAL)(f64)width;
    REAL squares = 0;
#pragma unroll 4
    for (u64 column = 4 * threadIdx.x; column < width; column += 4 * blockDim.x) {
        REAL own[4];
        load_four<LANES>(own, x, column, width, mean);
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) {
            REAL d = own[lane] - mean;
            squares += d * d;
        }
    }
    REAL variance = team_sum_REAL(squares) / (REAL)(f64)width;
    if (threadIdx.x == 0) {
        out[2 * row] = mean;
        out[2 * row + 1] = 1 / sqrt_REAL(variance + epsilon);
    }
}
