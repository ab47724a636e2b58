// Indices come from data, so each is looked at before it is used.

// An index that names nothing, as the compiler writes it.
#define NOWHERE ((i32)0x80000000)

__device__ __forceinline__ bool names_a_row(i32 index, u64 rows) { return index >= 0 && (u64)index < rows; }

// Notes an index that names no row of a table, if it is the first such of its launch and nothing was noted before: `error` then holds the rows
// of the table in its high half, and the index. Launches of a device run one after the other, so it is the same index in every run.
__device__ void note_index(u64* error, const i32* indices, u64 position, u64 rows) {
    for (u64 before = 0; before < position; before++) {
        if (indices[before] != NOWHERE && !names_a_row(indices[before], rows)) return;
    }
    u64 most = 0xFFFFFFFF;
    u64 noted = (rows < most ? rows : most) << 32 | (u32)indices[position];
    atomicCAS(error, (u64)0, noted);
}
