// For each route, its rows of x, transposed, times its rows of dy: a block has 64 x 64 elements of one matrix.
extern "C" __global__ void __launch_bounds__(256, 2)
routed_gemm_grad_REAL_STORED(const STORED* x, const STORED* dy, REAL* out, const u32* room, u64 n_matrices, u64 inner, u64 width, u32 accumulate) {
    __shared__ Tiles_routed_REAL tiles;
    const u32* starts = room;
    const u32* order = room + n_matrices + 1;
    for (u64 route = blockIdx.z; route < n_matrices; route += gridDim.z) {
        u64 end = starts[route + 1], first_row = (u64)blockIdx.x * 64, first_column = (u64)blockIdx.y * 64;
        u32 own_row = threadIdx.x / 16 * 4, own_column = threadIdx.x % 16 * 4;
        REAL sums[4][4] = {};
        for (u64 done = starts[route]; done < end; done += 16) {
            for (u32 unit = threadIdx.x; unit < 64 * 16; unit += 256) {
                u64 row = done + unit / 64, i = first_row + unit % 64, j = first_column + unit % 64;
                tiles.left[unit / 64][unit % 64] = row < end && i < inner ? widened(x[(u64)order[row] * inner + i]) : 0;
                tiles.right[unit / 64][unit % 64] = row < end && j < width ? widened(dy[(u64)order[row] * width + j]) : 0;
            }
            add_tiles_REAL(sums, tiles);
        }
        REAL* matrix = out + route * inner * width;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u64 row = first_row + own_row + i;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                u64 column = first_column + own_column + j;
                if (row < inner && column < width) store_one(&matrix[row * width + column], sums[i][j], accumulate);
            }
        }
    }
}
