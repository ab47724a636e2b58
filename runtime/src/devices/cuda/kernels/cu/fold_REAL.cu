// The sum over the threads of a block with one threadIdx.x, in those with threadIdx.y == 0: a fixed tree over the first `blockDim.y`, a power of two.
__device__ REAL folded_REAL(REAL x) {
    __shared__ REAL parts[512];
    u32 own = threadIdx.y * blockDim.x + threadIdx.x;
    parts[own] = x;
    for (u32 half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) parts[own] += parts[own + half * blockDim.x];
    }
    return parts[own];
}
