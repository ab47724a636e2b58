// The sums of a strip of 128 columns over the eight warps of a block, each of whose threads has four neighbours: thread i has that of column i, if i < 128.
__device__ REAL folded_REAL(const REAL (&own)[4]) {
    __shared__ REAL of_warps[8][128];
#pragma unroll
    for (u32 lane = 0; lane < 4; lane++) of_warps[threadIdx.y][4 * threadIdx.x + lane] = own[lane];
    __syncthreads();
    u32 column = threadIdx.y * 32 + threadIdx.x;
    REAL total = 0;
    if (column < 128) {
        for (u32 warp = 0; warp < 8; warp++) total += of_warps[warp][column];
    }
    return total;
}
