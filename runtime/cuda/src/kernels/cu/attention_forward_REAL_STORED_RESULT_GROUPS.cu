// softmax(q kᵀ) v, tile by tile of keys: no score is kept. Whenever the largest score of a row grows, what was summed up is rescaled (arXiv 2205.14135, Algorithm 1).
// Each block has 64 queries and GROUPS * 64 columns of the result.
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
attention_forward_REAL_STORED_RESULT_GROUPS(FACTORS(const STORED), MATRIX(RESULT, y), SIZES, u32 accumulate) {
    __shared__ Tiles_REAL tiles;
    // The last queries see the most keys: they begin.
    u64 n_tiles = (m + 63) / 64;
    Task task(n_tiles);
    u64 first = (n_tiles - 1 - task.tile) * 64, first_column = blockIdx.z * (GROUPS * 64);
    u32 own = threadIdx.x / 16 * 4, other = threadIdx.x % 16 * (OTHERS / 16), half = 0;
    Sight sight = SIGHT;
    u64 seen = sight.keys_before(first + 64);
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n);
        REAL top[4] = {LOWEST, LOWEST, LOWEST, LOWEST}, total[4] = {}, sums[GROUPS][4][4] = {};
        for (u64 start = sight.first_key_of_any(first, 64); start < seen; start += OTHERS) {
            REAL weights[4][OTHERS / 16] = {};
            add_scores_REAL(weights, queries, first, keys, start, width, tiles, half);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 n_seen = sight.seen(first + own + i, start + other, OTHERS / 16), n_unseen = sight.unseen(first + own + i, start + other, OTHERS / 16);
#pragma unroll
                for (u32 j = 0; j < OTHERS / 16; j++) weights[i][j] = j >= n_unseen && j < n_seen ? weights[i][j] : LOWEST;
                REAL factor = weigh_REAL(weights[i], top[i]);
                total[i] *= factor;
#pragma unroll
                for (u32 j = 0; j < OTHERS / 16; j++) total[i] += weights[i][j];
#pragma unroll
                for (u32 group = 0; group < GROUPS; group++) {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) sums[group][i][j] *= factor;
                }
            }
            put_weights_REAL(weights, tiles);
            add_weighted_REAL(sums, values, start, first_column, width, tiles, half);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) total[i] = 1 / sum_of_row_REAL(total[i]);
        write_REAL(sums, total, y + OFFSET(y), y_row, y_column, first, m, first_column, width, accumulate);
    }
}
