// Adds each row of dy to the row of the table that its index names, in the order of the indices: the bits of a loop over them.
//
// The first index that names a row of the table is its leader. The leader's blocks add all rows of dy that belong there, each block to 1024 columns; the
// blocks of other indices end at once. A block looks through 256 indices at a time and lists those that name its row.
extern "C" __global__ void __launch_bounds__(256)
scatter_add_REAL_STORED(const i32* indices, const STORED* dy, REAL* out, u64* error, u64 rows, u64 width, u64 table_rows) {
    __shared__ u32 of_warp[8];
    __shared__ u32 listed[256];
    u64 leader = blockIdx.x;
    i32 index = indices[leader];
    if (!names_a_row(index, table_rows)) {
        if (threadIdx.x == 0 && blockIdx.y == 0 && index != NOWHERE) note_index(error, indices, leader, table_rows);
        return;
    }
    int is_named = 0;
    for (u64 before = threadIdx.x; before < leader; before += 256) is_named |= indices[before] == index;
    if (__syncthreads_or(is_named)) return;

    u64 first = (u64)blockIdx.y * 1024 + threadIdx.x;
    out += (u64)index * width;
    REAL sums[4];
#pragma unroll
    for (u32 j = 0; j < 4; j++) sums[j] = first + j * 256 < width ? out[first + j * 256] : 0;
    for (u64 from = leader; from < rows; from += 256) {
        u64 own = from + threadIdx.x;
        bool is_own = own < rows && indices[own] == index;
        u32 lanes = __ballot_sync(~0u, is_own);
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (lane == 0) of_warp[warp] = __popc(lanes);
        __syncthreads();
        u32 before = __popc(lanes & ((1u << lane) - 1)), n_listed = 0;
        for (u32 other = 0; other < 8; other++) {
            if (other < warp) before += of_warp[other];
            n_listed += of_warp[other];
        }
        if (is_own) listed[before] = threadIdx.x;
        __syncthreads();
#pragma unroll 4
        for (u32 at = 0; at < n_listed; at++) {
            const STORED* row = dy + (from + listed[at]) * width;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                if (first + j * 256 < width) sums[j] += widened(row[first + j * 256]);
            }
        }
        // The list is read; the next one may be written.
        __syncthreads();
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        if (first + j * 256 < width) out[first + j * 256] = sums[j];
    }
}
