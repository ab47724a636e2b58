// With n = (x - mean) * rstd and g = dy * gain: rstd * (g - mean(g) - n * mean(g * n)), plus `other` if `joined`. With `rms`, mean(g) is 0.
extern "C" __global__ void __launch_bounds__(512, 2)
normalize_grad_input_REAL_STORED_RESULT_xLANES(const STORED* x, const REAL* statistics, const REAL* gain, const STORED* dy, const STORED* other, RESULT* out, u64 rows,
                                               u64 width, u32 joined, u32 rms) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    dy += row * width;
    other += row * width;
    out += row * width;
    REAL mean = statistics[2 * row], rstd = statistics[2 * row + 1];
    REAL sum_g = 0, sum_gn = 0;
#pragma unroll 2
    for (u64 column = 4 * threadIdx.x; column < width; column += 4 * blockDim.x) {
        REAL n[4], g[4], scale[4];
        load_four<LANES>(n, x, column, width, mean);
        load_four<LANES>(g, dy, column, width, (REAL)0);
        load_four<LANES>(scale, gain, column, width, (REAL)0);
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) {
            REAL own = g[lane] * scale[lane];
            sum_g += own;
            sum_gn += own * ((n[lane] - mean) * rstd);
        }
    }
    REAL mean_g = rms ? 0 : team_sum_REAL(sum_g) / (REAL)(f64)width;
    REAL mean_gn = team_sum_REAL(sum_gn) / (REAL)(f64)width;
#pragma unroll 2
    for (u64 column = 4 * threadIdx.x; column < width; column += 4 * blockDim.x) {
        REAL n[4], g[4], scale[4];
        load_four<LANES>(n, x, column, width, mean);
        load_four<LANES>(g, dy, column, width, (REAL)0);
        load_four<LANES>(scale, gain, column, width, (REAL)0);
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) g[lane] = rstd * (g[lane] * scale[lane] - mean_g - (n[lane] - mean) * rstd * mean_gn);
        if (joined) {
            load_four<LANES>(n, other, column, width, (REAL)0);
#pragma unroll
            for (u32 lane = 0; lane < 4; lane++) g[lane] = add_REAL(g[lane], n[lane]);
        }
        store_four<LANES>(out, column, width, g);
    }
}
