// The largest of some numbers, and the sum of e^(x - largest) over them, in one pass: what was summed is rescaled whenever the largest grows.
// Milakov, Gimelshein: Online normalizer calculation for softmax, arXiv 1805.02867, Algorithm 3.
struct Peak_REAL {
    REAL top;
    REAL total;
};

__device__ __forceinline__ Peak_REAL joined_REAL(Peak_REAL a, Peak_REAL b) {
    REAL top = a.top > b.top ? a.top : b.top;
    REAL of_a = a.top == top ? 1 : exp_REAL(a.top - top);
    REAL of_b = b.top == top ? 1 : exp_REAL(b.top - top);
    Peak_REAL peak = {top, a.total * of_a + b.total * of_b};
    return peak;
}

__device__ Peak_REAL warp_peak_REAL(Peak_REAL own) {
    for (u32 mask = 16; mask > 0; mask /= 2) {
        Peak_REAL other = {__shfl_xor_sync(~0u, own.top, mask), __shfl_xor_sync(~0u, own.total, mask)};
        // Both lanes of a pair join in one order, so that both have the same bits.
        own = threadIdx.x & mask ? joined_REAL(other, own) : joined_REAL(own, other);
    }
    return own;
}

// The peak of a row, the same bits in all threads of its team. Each thread takes two groups of four columns at a time.
template <u32 WIDE, class Stored>
__device__ Peak_REAL team_peak_REAL(const Stored* row, u64 width) {
    __shared__ Peak_REAL of_warp[32];
    Peak_REAL own = {LOWEST, 0};
    for (u64 column = 4 * threadIdx.x; column < width; column += 8 * blockDim.x) {
        REAL x[2][4] = {{LOWEST, LOWEST, LOWEST, LOWEST}, {LOWEST, LOWEST, LOWEST, LOWEST}};
        u64 second = column + 4 * blockDim.x;
        load_four<WIDE>(x[0], row, column, width, (REAL)LOWEST);
        if (second < width) load_four<WIDE>(x[1], row, second, width, (REAL)LOWEST);
        REAL top = own.top;
#pragma unroll
        for (u32 j = 0; j < 8; j++) top = x[j / 4][j % 4] > top ? x[j / 4][j % 4] : top;
        REAL total = own.top == top ? own.total : own.total * exp_REAL(own.top - top);
#pragma unroll
        for (u32 j = 0; j < 8; j++) total += weight_REAL(x[j / 4][j % 4], top);
        own.top = top;
        own.total = total;
    }
    own = warp_peak_REAL(own);
    if (blockDim.x == 32) return own;
    // The last peak may still be read.
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    Peak_REAL none = {LOWEST, 0};
    return warp_peak_REAL(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : none);
}
