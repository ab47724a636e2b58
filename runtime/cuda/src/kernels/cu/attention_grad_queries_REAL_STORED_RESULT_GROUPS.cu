// Derivatives of attention by queries: with weights p and their gradients dp = dy vᵀ, those of scores are ds = p (dp - sum(p dp)), and those of queries ds k.
// Each block has 64 queries and GROUPS * 64 columns of the result.
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
attention_grad_queries_REAL_STORED_RESULT_GROUPS(FACTORS(const STORED), MATRIX(const STORED, dy), const REAL* statistics, MATRIX(RESULT, dq), SIZES) {
    __shared__ Tiles_REAL tiles;
    u64 n_tiles = (m + 63) / 64;
    Task task(n_tiles);
    u64 first = (n_tiles - 1 - task.tile) * 64, first_column = blockIdx.z * (GROUPS * 64);
    u32 own = threadIdx.x / 16 * 4, other = threadIdx.x % 16 * (OTHERS / 16), half = 0;
    Sight sight = SIGHT;
    u64 seen = sight.keys_before(first + 64);
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        REAL logarithms[4], means[4], sums[GROUPS][4][4] = {};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u64 row = first + own + i;
            logarithms[i] = row < m ? statistics[2 * batch * m + row] : 0;
            means[i] = row < m ? statistics[(2 * batch + 1) * m + row] : 0;
        }
        for (u64 start = sight.first_key_of_any(first, 64); start < seen; start += OTHERS) {
            REAL scores[4][OTHERS / 16] = {}, by_weight[4][OTHERS / 16] = {};
            add_scores_REAL(scores, queries, first, keys, start, width, tiles, half);
            add_scores_REAL(by_weight, gradients, first, values, start, width, tiles, half);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 n_seen = sight.seen(first + own + i, start + other, OTHERS / 16), n_unseen = sight.unseen(first + own + i, start + other, OTHERS / 16);
#pragma unroll
                for (u32 j = 0; j < OTHERS / 16; j++) {
                    scores[i][j] = j >= n_unseen && j < n_seen ? exp_REAL(scores[i][j] - logarithms[i]) * (by_weight[i][j] - means[i]) : 0;
                }
            }
            put_weights_REAL(scores, tiles);
            add_weighted_REAL(sums, keys, start, first_column, width, tiles, half);
        }
        REAL factors[4] = {1, 1, 1, 1};
        write_REAL(sums, factors, dq + OFFSET(dq), dq_row, dq_column, first, m, first_column, width, 0);
    }
}
