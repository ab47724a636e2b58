// Elements of each row, by their columns.
extern "C" __global__ void __launch_bounds__(512, 2)
take_along_REAL_STORED(const STORED* x, const i32* columns, REAL* out, u64* error, u64 rows, u64 width, u64 k) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    for (u64 place = row * k + threadIdx.x; place < row * k + k; place += blockDim.x) {
        i32 column = columns[place];
        if (names_a_row(column, width)) {
            out[place] = widened(x[row * width + (u64)column]);
        } else if (column == NOWHERE) {
            out[place] = 0;
        } else {
            note_index(error, columns, place, width);
        }
    }
}
