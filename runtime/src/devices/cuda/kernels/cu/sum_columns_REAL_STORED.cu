// out[i, j] (+)= sum over r of x[i, r, j]. A block has some columns j of one i; each of its rows of threads sums every blockDim.y-th r.
extern "C" __global__ void __launch_bounds__(512, 2)
sum_columns_REAL_STORED(In_STORED x, REAL* out, u64 reduced, u64 inner, u64 n_strips, u32 accumulate) {
    u64 outer = blockIdx.x / n_strips;
    u64 column = blockIdx.x % n_strips * blockDim.x + threadIdx.x;
    x += outer * reduced * inner;
    out += outer * inner;
    REAL total = 0;
    if (column < inner) {
#pragma unroll 8
        for (u64 r = threadIdx.y; r < reduced; r += blockDim.y) total += x[r * inner + column];
    }
    total = folded_REAL(total);
    if (threadIdx.y == 0 && column < inner) out[column] = accumulate ? out[column] + total : total;
}
