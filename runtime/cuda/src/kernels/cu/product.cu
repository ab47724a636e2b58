// What all matrix products share: which tile of the result is a block's, and where the matrices of a batch lie.

// The tile of a block: groups of eight rows of tiles, column by column, so that blocks that run at once share factors in the cache.
__device__ __forceinline__ void tile_of_block(u64 row_tiles, u64 column_tiles, u64& row, u64& column) {
    u64 in_group = 8 * column_tiles, first = blockIdx.x / in_group * 8;
    u64 height = row_tiles - first < 8 ? row_tiles - first : 8;
    row = first + blockIdx.x % in_group % height;
    column = blockIdx.x % in_group / height;
}

// Elements from the first matrix of a batch to this one; the batch has three axes, the last two of these sizes.
__device__ __forceinline__ u64 batch_offset(u64 batch, u64 size1, u64 size2, u64 stride0, u64 stride1, u64 stride2) {
    return batch / size2 / size1 * stride0 + batch / size2 % size1 * stride1 + batch % size2 * stride2;
}

// A sum of a product where it belongs. Nothing is added to what is stored as bf16.
__device__ __forceinline__ void store_one(f32* to, f32 x, u32 accumulate) { *to = accumulate ? *to + x : x; }
__device__ __forceinline__ void store_one(f64* to, f64 x, u32 accumulate) { *to = accumulate ? *to + x : x; }
__device__ __forceinline__ void store_one(bf16* to, f32 x, u32) { put(*to, x); }
