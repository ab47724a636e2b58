// The mean over rows of -log softmax(x)[target], from one pass over the logits. With `weighted`, each row counts as much
// as its weight.
//
// Each block adds up the losses of its rows in double precision and leaves the sum in the device's working memory; the block that ends last adds up those
// sums in their order. Which block that is makes no difference, so all runs give the same bits, without atomic additions of numbers.
extern "C" __global__ void __launch_bounds__(512, 2)
cross_entropy_REAL_STORED_xLANES(const STORED* x, const i32* targets, const REAL* weights, REAL* out, Working* working, u64* error, u64 rows, u64 width, u32 weighted) {
    __shared__ bool is_last;
    f64 loss = 0;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        i32 target = targets[row];
        if (names_a_row(target, width)) {
            Peak_REAL peak = team_peak_REAL<LANES>(x + row * width, width);
            if (threadIdx.x == 0) {
                f64 own = log_f64((f64)peak.total) + (f64)peak.top - (f64)widened(x[row * width + target]);
                loss += weighted ? own * (f64)weights[row] : own;
            }
        } else if (threadIdx.x == 0) {
            note_index(error, targets, row, width);
        }
    }
    if (threadIdx.x == 0) {
        working->sums[blockIdx.x] = loss;
        __threadfence();
        is_last = atomicAdd(&working->n_ended, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const volatile f64* sums = working->sums;
    f64 total = 0;
    for (u32 block = threadIdx.x; block < gridDim.x; block += blockDim.x) total += sums[block];
    total = team_sum_f64(total);
    if (threadIdx.x == 0) {
        *out = (REAL)(total / (f64)rows);
        working->n_ended = 0;
    }
}
