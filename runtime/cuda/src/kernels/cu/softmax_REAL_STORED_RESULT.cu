// e^(x - largest) / sum of each row. In a matrix of `rows_of_mask` rows, if it is not 0, row i sees columns 0..=i only, or 0..=i + width - rows where the
// width is larger; the others become 0.
extern "C" __global__ void __launch_bounds__(512, 2)
softmax_REAL_STORED_RESULT(const STORED* x, RESULT* out, u64 rows, u64 width, u64 rows_of_mask) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    u64 seen = width;
    if (rows_of_mask > 0) {
        seen = row % rows_of_mask + 1 + (width > rows_of_mask ? width - rows_of_mask : 0);
        seen = seen < width ? seen : width;
    }
    x += row * width;
    out += row * width;
    Peak_REAL peak = team_peak_REAL<1>(x, seen);
    REAL factor = 1 / peak.total;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
        put(out[column], column < seen ? exp_REAL(widened(x[column]) - peak.top) * factor : 0);
    }
}
