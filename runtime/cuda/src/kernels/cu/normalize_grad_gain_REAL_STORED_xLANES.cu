// out[j] (+)= sum over rows of dy * (x - mean) * rstd.
extern "C" __global__ void __launch_bounds__(256, 2)
normalize_grad_gain_REAL_STORED_xLANES(const STORED* x, const REAL* statistics, const STORED* dy, REAL* out, Working* working, u64 rows, u64 width, u32 accumulate) {
    auto term = [=](REAL (&own)[4], u64 row, u64 column) {
        REAL mean = statistics[2 * row], rstd = statistics[2 * row + 1], n[4];
        load_four<LANES>(n, x + row * width, column, width, mean);
        load_four<LANES>(own, dy + row * width, column, width, (REAL)0);
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) own[lane] *= (n[lane] - mean) * rstd;
    };
    add_columns_REAL(term, out, working, rows, width, blockIdx.x, accumulate);
}
