// Row i of the result is the row of the table that index i names.
extern "C" __global__ void __launch_bounds__(512, 2)
gather_REAL(const REAL* table, const i32* indices, REAL* out, u64* error, u64 rows, u64 width, u64 table_rows) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    i32 index = indices[row];
    if (index == NOWHERE) {
        for (u64 column = threadIdx.x; column < width; column += blockDim.x) out[row * width + column] = 0;
        return;
    }
    if (!names_a_row(index, table_rows)) {
        if (threadIdx.x == 0) note_index(error, indices, row, table_rows);
        return;
    }
    table += (u64)index * width;
    out += row * width;
#pragma unroll 4
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) out[column] = table[column];
}
