// Zeros, to which each element is added in its column, in order: a thread has some columns, and looks at all elements.
extern "C" __global__ void __launch_bounds__(512, 2)
add_along_REAL_RESULT(const i32* columns, const REAL* dy, RESULT* out, u64* error, u64 rows, u64 width, u64 k) {
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    columns += row * k;
    dy += row * k;
    if (threadIdx.x == 0) {
        for (u64 place = 0; place < k; place++) {
            if (columns[place] != NOWHERE && !names_a_row(columns[place], width)) note_index(error, columns - row * k, row * k + place, width);
        }
    }
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) {
        REAL sum = 0;
        for (u64 place = 0; place < k; place++) {
            if (columns[place] == (i32)column) sum = add_REAL(sum, dy[place]);
        }
        put(out[row * width + column], sum);
    }
}
