// (softmax(x) - [column == target]) * dloss / rows, times the weight of the row with `weighted`. A block has a row at a
// time.
extern "C" __global__ void __launch_bounds__(512, 2)
cross_entropy_grad_REAL_STORED_RESULT_xLANES(const STORED* x, const i32* targets, const REAL* dloss, const REAL* weights, RESULT* out, u64* error, u64 rows, u64 width, u32 weighted) {
    REAL share = *dloss / (REAL)(f64)rows;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        i32 target = targets[row];
        if (!names_a_row(target, width)) {
            if (threadIdx.x == 0) note_index(error, targets, row, width);
            continue;
        }
        const STORED* logits = x + row * width;
        RESULT* result = out + row * width;
        Peak_REAL peak = team_peak_REAL<LANES>(logits, width);
        REAL factor = weighted ? mul_REAL(share, weights[row]) : share;
        REAL scale = factor / peak.total;
#pragma unroll 1
        for (u64 column = 4 * threadIdx.x; column < width; column += 4 * blockDim.x) {
            REAL y[4];
            load_four<LANES>(y, logits, column, width, (REAL)0);
#pragma unroll
            for (u32 lane = 0; lane < 4; lane++) {
                y[lane] = exp_REAL(y[lane] - peak.top) * scale;
                if (column + lane == (u64)target) y[lane] -= factor;
            }
            store_four<LANES>(result, column, width, y);
        }
    }
}
