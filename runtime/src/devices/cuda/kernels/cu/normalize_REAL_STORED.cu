// (x - mean) * rstd * gain + bias.
extern "C" __global__ void __launch_bounds__(512, 2)
normalize_REAL_STORED(In_STORED x, const REAL* statistics, const REAL* gain, const REAL* bias, REAL* out, u64 rows, u64 width) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    out += row * width;
    REAL mean = statistics[2 * row], rstd = statistics[2 * row + 1];
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
        out[column] = (x[column] - mean) * rstd * gain[column] + bias[column];
    }
}
