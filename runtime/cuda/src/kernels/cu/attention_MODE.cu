// What kernels of attention by tensor cores share. A block has 64 rows of its own, of queries or of keys, each of its four warps 16 of them, as fragments of a left
// factor that stay in registers. It walks the others in tiles of shared memory, whose words (of MODE, DEPTH columns each) serve both as rows and as columns of a right
// factor. Scores and weights never leave the registers of their warp. Sums are in single precision, and so is all that is not a product.

// Others, in rows of WIDE columns; after each row there is room for four words, so that eight rows of four words each lie in 32 different banks.
template <u32 TALL, u32 WIDE>
struct Tile_MODE {
    __align__(16) u32 words[TALL][WIDE / DEPTH + 4];
};

// So many columns of a row from this one on, of which some are there; the others are 0. With `by_vectors` they lie together, and all are there or none.
template <u32 COUNT, class Stored>
__device__ __forceinline__ Neighbours<Stored, COUNT> columns_MODE(const Stored* at, u64 column_stride, u32 n_columns, u32 by_vectors) {
    Neighbours<Stored, COUNT> columns = {};
    if (by_vectors) {
        if (n_columns > 0) columns = *(const Neighbours<Stored, COUNT>*)at;
    } else {
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) columns.at[i] = i < n_columns ? at[i * column_stride] : 0;
    }
    return columns;
}

// How many columns there are from this one on.
__device__ __forceinline__ u32 columns_from_MODE(u32 column, u32 width) { return column < width ? width - column : 0; }

// Neighbours as words of a tile.
template <class Stored, u32 COUNT>
__device__ __forceinline__ void store_words_MODE(u32* to, const Neighbours<Stored, COUNT>& columns) {
    Neighbours<u32, COUNT / DEPTH> words;
#pragma unroll
    for (u32 word = 0; word < COUNT / DEPTH; word++) {
        Stored unit[DEPTH];
#pragma unroll
        for (u32 d = 0; d < DEPTH; d++) unit[d] = columns.at[word * DEPTH + d];
        words.at[word] = word_MODE(unit);
    }
    *(Neighbours<u32, COUNT / DEPTH>*)to = words;
}

// A thread's part of a walk along the rows of a matrix, tile by tile: 16 bytes in each of some rows of a tile.
template <class Stored, u32 TALL, u32 WIDE>
struct Walk_MODE {
    static const u32 COUNT = 16 / sizeof(Stored), ROW_STEP = 128 * COUNT / WIDE;
    // The first of them in the next tile, and how many rows there are from that tile on.
    const Stored* at;
    u64 row_stride, column_stride, left;

    __device__ __forceinline__ static u32 row() { return threadIdx.x / (WIDE / COUNT); }
    __device__ __forceinline__ static u32 column() { return threadIdx.x % (WIDE / COUNT) * COUNT; }

    __device__ __forceinline__ Walk_MODE(const Rows<Stored>& rows, u64 start) : row_stride(rows.row), column_stride(rows.column), left(rows.count - start) {
        at = rows.at + (start + row()) * row_stride + column() * column_stride;
    }

    // Fills a tile with the next rows, and with zeros beyond the matrix. All threads may read it after arrive_MODE.
    __device__ __forceinline__ void fetch(Tile_MODE<TALL, WIDE>& tile, u32 width, u32 by_vectors) {
        u32 n_columns = columns_from_MODE(column(), width), n_rows = left < TALL ? (u32)left : TALL;
        if (by_vectors) {
#pragma unroll
            for (u32 step = 0; step < TALL; step += ROW_STEP) {
                u32* to = &tile.words[row() + step][column() / DEPTH];
                const Stored* from = at + step * row_stride;
                u32 n_there = row() + step < n_rows ? n_columns : 0;
                if (sizeof(Stored) == 2) {
                    copy_async<16>(to, from, n_there > 0);
                } else {
                    store_words_MODE(to, columns_MODE<COUNT>(from, 1, n_there, 1));
                }
            }
        } else {
#pragma unroll 1
            for (u32 step = 0; step < TALL; step += ROW_STEP) {
                u32 n_there = row() + step < n_rows ? n_columns : 0;
                store_words_MODE(&tile.words[row() + step][column() / DEPTH], columns_MODE<COUNT>(at + step * row_stride, column_stride, n_there, 0));
            }
        }
        at += TALL * row_stride;
        left -= TALL;
    }
};

// Waits until all threads have fetched their parts of the tiles, and have read the tiles before.
__device__ __forceinline__ void arrive_MODE() {
    wait_for_copies();
    __syncthreads();
}

// This lane's words of a row, of which so many columns are there from its first one on; the others are 0.
template <u32 STEPS, class Stored>
__device__ __forceinline__ void load_words_MODE(u32 (&own)[STEPS][4], u32 half, const Stored* at, u64 column_stride, u32 left, u32 by_vectors) {
#pragma unroll
    for (u32 word = 0; word < STEPS * 2; word++) {
        u32 n_columns = word * 4 * DEPTH < left ? left - word * 4 * DEPTH : 0;
        own[word / 2][word % 2 * 2 + half] = word_MODE(columns_MODE<DEPTH>(at, column_stride, n_columns, by_vectors).at);
        at += 4 * DEPTH * column_stride;
    }
}

// Own rows of a warp from `first` on, as fragments.
template <u32 STEPS, class Stored>
__device__ __forceinline__ void load_own_MODE(u32 (&own)[STEPS][4], const Rows<Stored>& rows, u64 first, u32 width, u32 by_vectors) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u64 row = first + threadIdx.x % 32 / 4 + half * 8;
        u32 column = threadIdx.x % 4 * DEPTH, left = row < rows.count ? columns_from_MODE(column, width) : 0;
        const Stored* at = rows.at + row * rows.row + column * rows.column;
        if (by_vectors) {
            load_words_MODE(own, half, at, 1, left, 1);
        } else {
            load_words_MODE(own, half, at, rows.column, left, 0);
        }
    }
}

// sums = the products of own rows with those of a tile: eight others in each of sums, as fragments of a result.
template <u32 TALL, u32 WIDE>
__device__ __forceinline__ void score_MODE(f32 (&sums)[TALL / 8][4], const u32 (&own)[WIDE / DEPTH / 8][4], const Tile_MODE<TALL, WIDE>& tile) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 j = 0; j < TALL / 8; j++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) sums[j][i] = 0;
    }
#pragma unroll
    for (u32 step = 0; step < WIDE / DEPTH / 8; step++) {
#pragma unroll
        for (u32 j = 0; j < TALL / 8; j += 2) {
            u32 b[2][2];
            load_rows(b, &tile.words[j * 8 + lane / 16 * 8 + lane % 8][step * 8 + lane / 8 % 2 * 4]);
            mma_MODE(sums[j], own[step], b[0]);
            mma_MODE(sums[j + 1], own[step], b[1]);
        }
    }
}

// sums += weights of a tile's rows times COUNT * 8 of their columns from `first_column` on.
template <u32 TALL, u32 WIDE, u32 COUNT>
__device__ __forceinline__ void add_weighted_MODE(f32 (&sums)[COUNT][4], const f32 (&weights)[TALL / 8][4], const Tile_MODE<TALL, WIDE>& tile, u32 first_column) {
#pragma unroll
    for (u32 step = 0; step < TALL / DEPTH / 8; step++) {
        u32 a[4];
        left_of_MODE(a, &weights[step * DEPTH]);
#pragma unroll
        for (u32 j = 0; j < COUNT; j += 2) {
            u32 b[2][2];
            right_of_MODE(b, &tile.words[step * DEPTH * 8][(first_column + j * 8) / DEPTH], WIDE / DEPTH + 4);
            mma_MODE(sums[j], a, b[0]);
            mma_MODE(sums[j + 1], a, b[1]);
        }
    }
}

// The sum over the lanes that have the same rows, the same bits in all of them.
__device__ __forceinline__ f32 sum_of_row_MODE(f32 x) {
    x += __shfl_xor_sync(~0u, x, 2);
    return x + __shfl_xor_sync(~0u, x, 1);
}

__device__ __forceinline__ f32 top_of_row_MODE(f32 x) {
    f32 other = __shfl_xor_sync(~0u, x, 2);
    x = fmaxf(x, other);
    other = __shfl_xor_sync(~0u, x, 1);
    return fmaxf(x, other);
}

// Scores of keys that a query does not see are below all others: COUNT * 8 keys from `start` on, for the queries of a warp from `first` on.
template <u32 COUNT>
__device__ __forceinline__ void hide_keys_MODE(f32 (&scores)[COUNT][4], const Sight& sight, u64 first, u64 start) {
    u32 row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    u32 n_seen[2] = {sight.seen(first + row, start, COUNT * 8), sight.seen(first + row + 8, start, COUNT * 8)};
    u32 n_unseen[2] = {sight.unseen(first + row, start, COUNT * 8), sight.unseen(first + row + 8, start, COUNT * 8)};
#pragma unroll
    for (u32 j = 0; j < COUNT; j++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 key = j * 8 + column + i % 2;
            scores[j][i] = key >= n_unseen[i / 2] && key < n_seen[i / 2] ? scores[j][i] : LOWEST;
        }
    }
}

// The same for keys of a warp from `first` on, and COUNT * 8 queries from `start` on, of which some may not be there.
template <u32 COUNT>
__device__ __forceinline__ void hide_queries_MODE(f32 (&scores)[COUNT][4], const Sight& sight, u64 first, u64 start) {
    u32 row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    u32 n_hidden[2] = {sight.hidden(first + row, start, COUNT * 8), sight.hidden(first + row + 8, start, COUNT * 8)};
    u32 n_queries = sight.queries - start < COUNT * 8 ? (u32)(sight.queries - start) : COUNT * 8;
#pragma unroll
    for (u32 j = 0; j < COUNT; j++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 query = j * 8 + column + i % 2;
            bool is_seen = query >= n_hidden[i / 2] && query < n_queries && (!sight.is_cut() || sight.first_key(start + query) <= first + row + i / 2 * 8);
            scores[j][i] = is_seen ? scores[j][i] : LOWEST;
        }
    }
}

#define LOG2_E 1.44269504f

// Scores of a row become weights 2^(log2(e) (score - largest so far)): those of one half of the fragments. Returns what to multiply what was summed up for the row with,
// since the largest has grown.
template <u32 COUNT>
__device__ __forceinline__ f32 weigh_MODE(f32 (&scores)[COUNT][4], u32 part, f32& top) {
    f32 before = top;
#pragma unroll
    for (u32 j = 0; j < COUNT; j++) {
#pragma unroll
        for (u32 i = 2 * part; i < 2 * part + 2; i++) top = fmaxf(top, scores[j][i]);
    }
    top = top_of_row_MODE(top);
    // Of a row that has seen nothing yet, nothing weighs anything.
    f32 scaled = top > LOWEST ? top * LOG2_E : 0;
#pragma unroll
    for (u32 j = 0; j < COUNT; j++) {
#pragma unroll
        for (u32 i = 2 * part; i < 2 * part + 2; i++) scores[j][i] = power_of_two(scores[j][i] * LOG2_E - scaled);
    }
    return before == top ? 1 : power_of_two((before - top) * LOG2_E);
}

// Writes rows of a warp from `first` on, COUNT * 8 of their columns, those of each half times a factor.
template <u32 COUNT, class Result>
__device__ __forceinline__ void write_MODE(const f32 (&sums)[COUNT][4], const f32 (&factors)[2], Result* out, u64 row_stride, u64 column_stride, u64 first, u64 rows,
                                           u32 first_column, u32 width, u32 by_vectors, u32 accumulate) {
#pragma unroll
    for (u32 part = 0; part < 2; part++) {
        u64 row = first + threadIdx.x % 32 / 4 + part * 8;
        if (row >= rows) continue;
        u32 column = first_column + threadIdx.x % 4 * 2;
        Result* to = out + row * row_stride + column * column_stride;
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            f32 x = mul_f32(sums[j][2 * part], factors[part]), y = mul_f32(sums[j][2 * part + 1], factors[part]);
            u32 left = columns_from_MODE(column + j * 8, width);
            if (by_vectors) {
                if (left > 0) store_two(to + j * 8, x, y, accumulate);
            } else {
                if (left > 0) store_one(to, x, accumulate);
                if (left > 1) store_one(to + column_stride, y, accumulate);
                to += 8 * column_stride;
            }
        }
    }
}
