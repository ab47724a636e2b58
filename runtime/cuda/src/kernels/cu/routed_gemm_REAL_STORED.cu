// Each row times the matrix of its route: a block has 64 rows of one route, and 64 columns of the result.
// Blocks along x are more than there are groups of 64 rows; the last ones find nothing to do.
extern "C" __global__ void __launch_bounds__(256, 2)
routed_gemm_REAL_STORED(const STORED* x, const STORED* matrices, REAL* out, const u32* room, u64 n_matrices, u64 inner, u64 width, u32 transpose) {
    __shared__ Tiles_routed_REAL tiles;
    const u32* starts = room;
    const u32* order = room + n_matrices + 1;
    // The route of this block, and which 64 of its rows.
    u64 route = 0, group = blockIdx.x;
    for (; route < n_matrices; route++) {
        u64 groups = (starts[route + 1] - starts[route] + 63) / 64;
        if (group < groups) break;
        group -= groups;
    }
    if (route == n_matrices) return;
    u64 first = starts[route] + group * 64, end = starts[route + 1], first_column = (u64)blockIdx.y * 64;
    const STORED* matrix = matrices + route * inner * width;
    u32 own_row = threadIdx.x / 16 * 4, own_column = threadIdx.x % 16 * 4;
    REAL sums[4][4] = {};
    for (u64 done = 0; done < inner; done += 16) {
        for (u32 unit = threadIdx.x; unit < 64 * 16; unit += 256) {
            u64 row = first + unit / 16, k = done + unit % 16;
            tiles.left[unit % 16][unit / 16] = row < end && k < inner ? widened(x[(u64)order[row] * inner + k]) : 0;
        }
        for (u32 unit = threadIdx.x; unit < 64 * 16; unit += 256) {
            u32 depth = transpose ? unit % 16 : unit / 64, place = transpose ? unit / 16 : unit % 64;
            u64 column = first_column + place, k = done + depth;
            bool is_inside = column < width && k < inner;
            tiles.right[depth][place] = is_inside ? widened(matrix[transpose ? column * inner + k : k * width + column]) : 0;
        }
        add_tiles_REAL(sums, tiles);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u64 row = first + own_row + i;
        if (row >= end) continue;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u64 column = first_column + own_column + j;
            if (column < width) out[(u64)order[row] * width + column] = sums[i][j];
        }
    }
}
