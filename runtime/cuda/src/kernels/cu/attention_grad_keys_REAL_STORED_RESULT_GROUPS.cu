// Derivatives of attention by keys and values: with weights p and gradients of scores ds (as for queries) those of values are pᵀ dy, those of keys dsᵀ q.
// Each block has 64 keys, with their values, and GROUPS * 64 columns of both results.
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
attention_grad_keys_REAL_STORED_RESULT_GROUPS(FACTORS(const STORED), MATRIX(const STORED, dy), const REAL* statistics, MATRIX(RESULT, dk), MATRIX(RESULT, dv), SIZES) {
    __shared__ Tiles_REAL tiles;
    // The first keys are seen by the most queries.
    Task task((n + 63) / 64);
    u64 first = task.tile * 64, first_column = blockIdx.z * (GROUPS * 64);
    u32 own = threadIdx.x / 16 * 4, other = threadIdx.x % 16 * (OTHERS / 16), half = 0;
    Sight sight = SIGHT;
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        REAL by_key[GROUPS][4][4] = {}, by_value[GROUPS][4][4] = {};
        for (u64 start = sight.first_query(first); start < sight.queries_before(first + 63); start += OTHERS) {
            REAL weights[4][OTHERS / 16] = {}, by_weight[4][OTHERS / 16] = {};
            add_scores_REAL(weights, keys, first, queries, start, width, tiles, half);
            add_scores_REAL(by_weight, values, first, gradients, start, width, tiles, half);
#pragma unroll
            for (u32 j = 0; j < OTHERS / 16; j++) {
                u64 row = start + other + j;
                u32 n_seen = sight.seen(row, first + own, 4), n_unseen = sight.unseen(row, first + own, 4);
                REAL logarithm = row < m ? statistics[2 * batch * m + row] : 0, mean = row < m ? statistics[(2 * batch + 1) * m + row] : 0;
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    weights[i][j] = i >= n_unseen && i < n_seen ? exp_REAL(weights[i][j] - logarithm) : 0;
                    by_weight[i][j] = weights[i][j] * (by_weight[i][j] - mean);
                }
            }
            put_weights_REAL(weights, tiles);
            add_weighted_REAL(by_value, gradients, start, first_column, width, tiles, half);
            // All have read the weights of values before they are replaced.
            __syncthreads();
            put_weights_REAL(by_weight, tiles);
            add_weighted_REAL(by_key, queries, start, first_column, width, tiles, half);
        }
        REAL factors[4] = {1, 1, 1, 1};
        write_REAL(by_key, factors, dk + OFFSET(dk), dk_row, dk_column, first, n, first_column, width, 0);
        write_REAL(by_value, factors, dv + OFFSET(dv), dv_row, dv_column, first, n, first_column, width, 0);
    }
}
