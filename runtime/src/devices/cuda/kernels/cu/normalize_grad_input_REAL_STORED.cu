// With n = (x - mean) * rstd and g = dy * gain: rstd * (g - mean(g) - n * mean(g * n)).
extern "C" __global__ void __launch_bounds__(512, 2)
normalize_grad_input_REAL_STORED(In_STORED x, const REAL* statistics, const REAL* gain, In_STORED dy, REAL* out, u64 rows, u64 width) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    dy += row * width;
    out += row * width;
    REAL mean = statistics[2 * row], rstd = statistics[2 * row + 1];
    REAL sum_g = 0, sum_gn = 0;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
        REAL g = dy[column] * gain[column];
        sum_g += g;
        sum_gn += g * ((x[column] - mean) * rstd);
    }
    REAL mean_g = team_sum_REAL(sum_g) / (REAL)(f64)width;
    REAL mean_gn = team_sum_REAL(sum_gn) / (REAL)(f64)width;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
        REAL n = (x[column] - mean) * rstd;
        out[column] = rstd * (dy[column] * gain[column] - mean_g - n * mean_gn);
    }
}
