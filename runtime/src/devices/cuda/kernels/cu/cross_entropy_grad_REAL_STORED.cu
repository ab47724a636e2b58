// (softmax(x) - [column == target]) * dloss / rows. A block has a row at a time.
extern "C" __global__ void __launch_bounds__(512, 2)
cross_entropy_grad_REAL_STORED(In_STORED x, const i32* targets, const REAL* dloss, REAL* out, u64* error, u64 rows, u64 width) {
    REAL factor = *dloss / (REAL)(f64)rows;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        i32 target = targets[row];
        if (!names_a_row(target, width)) {
            if (threadIdx.x == 0) note_index(error, targets, row, width);
            continue;
        }
        In_STORED logits = x + row * width;
        REAL* result = out + row * width;
        Peak_REAL peak = team_peak_REAL(logits, width);
        REAL scale = factor / peak.total;
#pragma unroll 4
        for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
            REAL y = exp_REAL(logits[column] - peak.top) * scale;
            result[column] = column == (u64)target ? y - factor : y;
        }
    }
}
