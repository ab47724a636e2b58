// The columns of the k largest elements of each row, the largest first. Equal elements keep the order of their columns; NaN is below
// all numbers. A team finds the largest element, then the largest of those after it in this order, and so on.
extern "C" __global__ void __launch_bounds__(512, 2)
top_k_REAL_STORED(const STORED* x, i32* out, u64 rows, u64 width, u64 k) {
    __shared__ REAL numbers[32];
    __shared__ u32 columns[32];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * width;
    REAL last = 0;
    u32 last_column = ~0u;
    for (u64 place = 0; place < k; place++) {
        REAL best = 0;
        u32 best_column = ~0u;
        for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
            REAL own = widened(x[column]);
            bool is_left = place == 0 || comes_before_REAL(last, last_column, own, (u32)column);
            if (is_left && comes_before_REAL(own, (u32)column, best, best_column)) {
                best = own;
                best_column = (u32)column;
            }
        }
        for (u32 mask = 16; mask > 0; mask /= 2) {
            REAL other = __shfl_xor_sync(~0u, best, mask);
            u32 other_column = __shfl_xor_sync(~0u, best_column, mask);
            if (comes_before_REAL(other, other_column, best, best_column)) {
                best = other;
                best_column = other_column;
            }
        }
        if (blockDim.x > 32) {
            __syncthreads();
            if (threadIdx.x % 32 == 0) {
                numbers[threadIdx.x / 32] = best;
                columns[threadIdx.x / 32] = best_column;
            }
            __syncthreads();
            for (u32 warp = 0; warp < blockDim.x / 32; warp++) {
                if (comes_before_REAL(numbers[warp], columns[warp], best, best_column)) {
                    best = numbers[warp];
                    best_column = columns[warp];
                }
            }
        }
        last = best;
        last_column = best_column;
        if (threadIdx.x == 0) out[row * k + place] = (i32)best_column;
    }
}
