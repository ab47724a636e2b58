// y * (dy - sum(y * dy)) of each row.
extern "C" __global__ void __launch_bounds__(512, 2)
softmax_grad_REAL_STORED_RESULT(const STORED* y, const STORED* dy, RESULT* out, u64 rows, u64 width) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    y += row * width;
    dy += row * width;
    out += row * width;
    REAL total = 0;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) total += widened(y[column]) * widened(dy[column]);
    total = team_sum_REAL(total);
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) put(out[column], widened(y[column]) * (widened(dy[column]) - total));
}
