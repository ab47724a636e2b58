// A strip of a factor: ROWS of its rows (columns, of the right factor), of which a block needs 16 units at a time; a unit is DEPTH neighbours along k.
// Each of 256 threads takes ROWS / 16 units. Neighbouring threads take what is dense in memory: units of a row if ALONG_K, else rows.
template <class Stored, u32 ROWS, u32 DEPTH, bool ALONG_K>
struct Strip {
    static const u32 UNITS = ROWS / 16;
    static const u32 ROW_STEP = ALONG_K ? 16 : 0;
    static const u32 UNIT_STEP = ALONG_K ? 0 : 256 / ROWS;

    const Stored* at;
    u64 k_stride;
    // Elements from one unit of this thread to its next.
    u64 step;
    // Rows of the factor from the first of the strip on.
    u32 n_rows;

    __device__ __forceinline__ static u32 row(u32 unit) { return (ALONG_K ? threadIdx.x / 16 : threadIdx.x % ROWS) + unit * ROW_STEP; }
    __device__ __forceinline__ static u32 column(u32 unit) { return (ALONG_K ? threadIdx.x % 16 : threadIdx.x / ROWS) + unit * UNIT_STEP; }

    __device__ __forceinline__ Strip(const Stored* factor, u64 row_stride, u64 k_stride, u64 first, u64 rows) : k_stride(k_stride) {
        at = factor + (first + row(0)) * row_stride + column(0) * DEPTH * k_stride;
        step = ROW_STEP * row_stride + UNIT_STEP * DEPTH * k_stride;
        n_rows = rows - first < ROWS ? (u32)(rows - first) : ROWS;
    }

    // This thread's units; 0 beyond the last row, and beyond `left` elements along k. Goes on to the next 16.
    __device__ __forceinline__ void load(Stored (&x)[UNITS][DEPTH], u64 left) {
        u32 deep = left < 16 * DEPTH ? (u32)left : 16 * DEPTH;
#pragma unroll
        for (u32 unit = 0; unit < UNITS; unit++) {
#pragma unroll
            for (u32 d = 0; d < DEPTH; d++) {
                bool is_inside = row(unit) < n_rows && column(unit) * DEPTH + d < deep;
                x[unit][d] = is_inside ? at[unit * step + d * k_stride] : 0;
            }
        }
        at += 16 * DEPTH * k_stride;
    }
};
