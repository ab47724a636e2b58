// A team works on a row: the threads of a block with one threadIdx.y. It is one warp, or the whole block.

// The sum over the team, the same bits in all its threads: a fixed tree.
__device__ REAL team_sum_REAL(REAL x) {
    __shared__ REAL of_warp[32];
    for (u32 mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(~0u, x, mask);
    if (blockDim.x == 32) return x;
    // The last sum may still be read.
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0;
    for (u32 mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}
