// Sums over the rows of every column, in an order that no timing changes. Blocks have 8 warps and a strip of 128 columns, four neighbours for each thread.
// There are as many parts of the rows as the grid is high, so that few columns fill a device as well. A part's sums are left in the working memory, and the
// block of a strip that ends last adds them up in the order of the parts.
//
// `term(x, row, column)` gives the four numbers of a row from a column on.
template <class Term>
__device__ void add_columns_REAL(Term term, REAL* out, Working* working, u64 rows, u64 columns, u64 strip, bool accumulate) {
    __shared__ bool is_last;
    u64 each = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each, end = first + each < rows ? first + each : rows;
    u64 group = strip * 128 + 4 * threadIdx.x;
    REAL sums[4] = {};
    if (group < columns) {
#pragma unroll 8
        for (u64 row = first + threadIdx.y; row < end; row += 8) {
            REAL x[4];
            term(x, row, group);
#pragma unroll
            for (u32 lane = 0; lane < 4; lane++) sums[lane] += x[lane];
        }
    }
    REAL total = folded_REAL(sums);
    u32 own = threadIdx.y * 32 + threadIdx.x;
    if (gridDim.y > 1) {
        REAL* parts = (REAL*)working->parts + (u64)blockIdx.x * gridDim.y * 128;
        if (own < 128) parts[blockIdx.y * 128 + own] = total;
        __threadfence();
        __syncthreads();
        if (own == 0) is_last = atomicAdd(&working->n_parts[blockIdx.x], 1) == gridDim.y - 1;
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        total = 0;
        if (own < 128) {
            const volatile REAL* part = parts + own;
#pragma unroll 8
            for (u32 at = 0; at < gridDim.y; at++) total += part[at * 128];
        }
        if (own == 0) working->n_parts[blockIdx.x] = 0;
    }
    u64 column = strip * 128 + own;
    if (own < 128 && column < columns) out[column] = accumulate ? out[column] + total : total;
}
