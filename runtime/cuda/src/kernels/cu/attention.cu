// What all kernels of attention share: how they are given matrices, and which queries see which keys.

// A matrix of each batch index as parameters, and the elements from its first one to that of this batch index.
#define MATRIX(type, x) type *x, u64 x##_row, u64 x##_column, u64 x##_0, u64 x##_1, u64 x##_2
#define OFFSET(x) batch_offset(batch, size1, size2, x##_0, x##_1, x##_2)
// What every kernel is given: its factors, and the sizes of all.
#define FACTORS(type) MATRIX(type, q), MATRIX(type, k), MATRIX(type, v)
// Without a window it is 0. Starts are of every query, if `has_starts`.
#define SIZES u64 m, u64 n, u64 width, u64 batches, u64 size1, u64 size2, u32 causal, u64 window, u32 has_starts, MATRIX(const i32, starts)
// What queries see, of this batch index once its starts are there.
#define SIGHT {m, n, window, causal, 0, starts_row}
#define STARTS (has_starts ? starts + OFFSET(starts) : (const i32*)0)

// The work of a block: one tile, for every `step`-th batch index from `batch` on. Neighbouring blocks have the same
// tile and different batch indices, and the tiles that take longest come first.
struct Task {
    u64 tile, batch, step;

    __device__ __forceinline__ Task(u64 tiles) {
        u32 beside = gridDim.x / (u32)tiles;
        tile = blockIdx.x / beside;
        batch = blockIdx.x % beside + blockIdx.y * (u64)beside;
        step = gridDim.y * (u64)beside;
    }
};

// Rows of one matrix, as they are stored.
template <class Stored>
struct Rows {
    const Stored* at;
    u64 row, column, count;
};
#define ROWS(x, count) {x + OFFSET(x), x##_row, x##_column, count}

// With a mask, query i sees keys 0..=i + keys - queries; there are at least as many keys. A window leaves the last ones
// of these. Starts leave those from the query's own start on, and always the last one.
struct Sight {
    u64 queries, keys, window;
    u32 causal;
    const i32* starts;
    u64 starts_row;

    __device__ __forceinline__ bool is_cut() const { return window != 0 || starts != 0; }

    // The first key that a query sees.
    __device__ __forceinline__ u64 first_key(u64 query) const {
        if (!is_cut() || query >= queries) return 0;
        u64 last = query + keys - queries, first = window != 0 && last >= window ? last + 1 - window : 0;
        if (starts) {
            i32 start = starts[query * starts_row];
            if (start > 0 && (u64)start > first) first = (u64)start;
        }
        return first < last ? first : last;
    }

    // The first key that any of these queries sees, and the first one from which all of them see all keys up to their own.
    __device__ __forceinline__ u64 first_key_of_any(u64 query, u32 count) const {
        if (!starts) return first_key(query);
        u64 first = keys;
        for (u32 i = 0; i < count && query + i < queries; i++) first = first_key(query + i) < first ? first_key(query + i) : first;
        return first;
    }
    __device__ __forceinline__ u64 first_key_of_all(u64 query, u32 count) const {
        u64 last = query + count < queries ? query + count - 1 : queries - 1;
        return starts ? keys : first_key(last);
    }

    // How many keys, from this one on, come before the first one that a query sees; `most` at most.
    __device__ __forceinline__ u32 unseen(u64 query, u64 key, u32 most) const {
        u64 first = first_key(query);
        return first <= key ? 0 : first - key < most ? (u32)(first - key) : most;
    }

    // The query behind the last one that sees a key.
    __device__ __forceinline__ u64 queries_before(u64 key) const {
        if (window == 0) return queries;
        u64 end = key + window + queries;
        return end <= keys ? 0 : end - keys < queries ? end - keys : queries;
    }

    // How many keys some of the queries before this one see.
    __device__ __forceinline__ u64 keys_before(u64 query) const { return causal && query < queries ? query + keys - queries : keys; }

    // Of the keys from this one on, how many a query sees; not more than `most`.
    __device__ __forceinline__ u32 seen(u64 query, u64 key, u32 most) const {
        u64 end = query < queries ? keys_before(query + 1) : 0;
        return end <= key ? 0 : end - key < most ? (u32)(end - key) : most;
    }

    // The first query that sees a key.
    __device__ __forceinline__ u64 first_query(u64 key) const { return causal && key + queries > keys ? key + queries - keys : 0; }

    // Of the queries from this one on, how many do not see a key because it comes after them; not more than `most`.
    __device__ __forceinline__ u32 hidden(u64 key, u64 query, u32 most) const {
        u64 end = first_query(key);
        return end <= query ? 0 : end - query < most ? (u32)(end - query) : most;
    }
};
