// Moves elements between two layouts that are dense along different axes: rows in the source, columns in the target. Tiles of 32 x 32 pass through
// shared memory, so that neighbouring threads read neighbours and write neighbours. A tile has three outer axes beside its two.
extern "C" __global__ void __launch_bounds__(256)
copy_tiles_REAL(const REAL* from, REAL* to, u64 rows, u64 columns, u64 from_row, u64 from_column, u64 to_row, u64 to_column, u64 size1, u64 size2,
                u64 from0, u64 from1, u64 from2, u64 to0, u64 to1, u64 to2) {
    // The odd width lets a column of the tile lie in 32 banks.
    __shared__ REAL tile[32][33];
    u64 row_tiles = (rows + 31) / 32, column_tiles = (columns + 31) / 32, rest = blockIdx.x;
    u64 first_column = rest % column_tiles * 32;
    rest /= column_tiles;
    u64 first_row = rest % row_tiles * 32;
    rest /= row_tiles;
    u64 at2 = rest % size2, at1 = rest / size2 % size1, at0 = rest / size2 / size1;
    from += at0 * from0 + at1 * from1 + at2 * from2;
    to += at0 * to0 + at1 * to1 + at2 * to2;
#pragma unroll
    for (u32 y = 0; y < 32; y += 8) {
        u64 row = first_row + threadIdx.x, column = first_column + y + threadIdx.y;
        if (row < rows && column < columns) tile[y + threadIdx.y][threadIdx.x] = from[row * from_row + column * from_column];
    }
    __syncthreads();
#pragma unroll
    for (u32 y = 0; y < 32; y += 8) {
        u64 row = first_row + y + threadIdx.y, column = first_column + threadIdx.x;
        if (row < rows && column < columns) to[row * to_row + column * to_column] = tile[threadIdx.x][y + threadIdx.y];
    }
}
