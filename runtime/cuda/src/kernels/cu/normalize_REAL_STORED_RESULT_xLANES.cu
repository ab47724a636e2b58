// (x - mean) * rstd * gain, and `bias` added if there is one.
extern "C" __global__ void __launch_bounds__(512, 2)
normalize_REAL_STORED_RESULT_xLANES(const STORED* x, const REAL* statistics, const REAL* gain, const REAL* bias, RESULT* out, u64 rows, u64 width, u32 biased) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    out += row * width;
    REAL mean = statistics[2 * row], rstd = statistics[2 * row + 1];
#pragma unroll 4
    for (u64 column = 4 * threadIdx.x; column < width; column += 4 * blockDim.x) {
        REAL own[4], scale[4], shift[4];
        load_four<LANES>(own, x, column, width, (REAL)0);
        load_four<LANES>(scale, gain, column, width, (REAL)0);
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) own[lane] = (own[lane] - mean) * rstd * scale[lane];
        if (biased) {
            load_four<LANES>(shift, bias, column, width, (REAL)0);
#pragma unroll
            for (u32 lane = 0; lane < 4; lane++) own[lane] += shift[lane];
        }
        store_four<LANES>(out, column, width, own);
    }
}
