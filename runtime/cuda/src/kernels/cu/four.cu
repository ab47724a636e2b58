// Rows in groups of four neighbours: who has which column does not depend on WIDE, so neither do the bits of a sum. WIDE is 4 where every group of every
// row lies where vectors may be, and has all its columns; else 1, and columns are taken one by one.

// The group that begins with a column, as it is computed with; `none` beyond the width.
template <u32 WIDE, class Real, class Stored>
__device__ __forceinline__ void load_four(Real (&x)[4], const Stored* row, u64 column, u64 width, Real none) {
    if (WIDE == 4) {
        Neighbours<Stored, 4> group = *(const Neighbours<Stored, 4>*)(row + column);
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) x[lane] = widened(group.at[lane]);
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) x[lane] = column + lane < width ? widened(row[column + lane]) : none;
    }
}

// Rounds where what is stored has fewer digits.
template <u32 WIDE, class Real, class Stored>
__device__ __forceinline__ void store_four(Stored* row, u64 column, u64 width, const Real (&x)[4]) {
    if (WIDE == 4) {
        Neighbours<Stored, 4> group;
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) put(group.at[lane], x[lane]);
        *(Neighbours<Stored, 4>*)(row + column) = group;
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; lane++) {
            if (column + lane < width) put(row[column + lane], x[lane]);
        }
    }
}
