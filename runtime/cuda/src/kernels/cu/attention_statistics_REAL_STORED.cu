// For the weights p = softmax(q kᵀ) and their gradients dp = dy vᵀ, two numbers of each query, without keeping either: the logarithm of the sum of e^score, with which
// its weights are e^(score - number), and the sum of p * dp. A matrix of `statistics` has the first ones of all its queries, then the second ones.
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
attention_statistics_REAL_STORED(FACTORS(const STORED), MATRIX(const STORED, dy), REAL* statistics, SIZES) {
    __shared__ Tiles_REAL tiles;
    u64 n_tiles = (m + 63) / 64;
    Task task(n_tiles);
    u64 first = (n_tiles - 1 - task.tile) * 64;
    u32 own = threadIdx.x / 16 * 4, other = threadIdx.x % 16 * (OTHERS / 16), half = 0;
    Sight sight = SIGHT;
    u64 seen = sight.keys_before(first + 64);
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        REAL top[4] = {LOWEST, LOWEST, LOWEST, LOWEST}, total[4] = {}, mean[4] = {};
        for (u64 start = sight.first_key_of_any(first, 64); start < seen; start += OTHERS) {
            REAL weights[4][OTHERS / 16] = {}, by_weight[4][OTHERS / 16] = {};
            add_scores_REAL(weights, queries, first, keys, start, width, tiles, half);
            add_scores_REAL(by_weight, gradients, first, values, start, width, tiles, half);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 n_seen = sight.seen(first + own + i, start + other, OTHERS / 16), n_unseen = sight.unseen(first + own + i, start + other, OTHERS / 16);
#pragma unroll
                for (u32 j = 0; j < OTHERS / 16; j++) weights[i][j] = j >= n_unseen && j < n_seen ? weights[i][j] : LOWEST;
                REAL factor = weigh_REAL(weights[i], top[i]);
                total[i] *= factor;
                mean[i] *= factor;
#pragma unroll
                for (u32 j = 0; j < OTHERS / 16; j++) {
                    total[i] += weights[i][j];
                    mean[i] += weights[i][j] * by_weight[i][j];
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            REAL sum = sum_of_row_REAL(total[i]), weighted = sum_of_row_REAL(mean[i]);
            u64 row = first + own + i;
            if (threadIdx.x % 16 != 0 || row >= m) continue;
            statistics[2 * batch * m + row] = top[i] + log_REAL(sum);
            statistics[(2 * batch + 1) * m + row] = weighted / sum;
        }
    }
}
