// Whether an element comes before another one; a column of ~0 stands for none.
__device__ __forceinline__ bool comes_before_REAL(REAL x, u32 column, REAL other, u32 other_column) {
    if (other_column == ~0u || column == ~0u) return column != ~0u;
    if (x == other || x != x && other != other) return column < other_column;
    return x > other || other != other;
}
