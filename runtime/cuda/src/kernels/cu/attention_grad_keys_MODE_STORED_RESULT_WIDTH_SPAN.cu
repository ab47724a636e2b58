// As attention_grad_keys_REAL, by tensor cores, for up to WIDTH columns: each block has 128 keys and SPAN columns of both results.
extern "C" __global__ void __launch_bounds__(256, 1)
attention_grad_keys_MODE_STORED_RESULT_WIDTH_SPAN(FACTORS(const STORED), MATRIX(const STORED, dy), const f32* statistics, MATRIX(RESULT, dk),
        MATRIX(RESULT, dv), SIZES, u32 by_fours) {
    __shared__ Tile_MODE<OTHERS, WIDTH> query_tile[2], gradient_tile[2];
    __shared__ f32 logarithms[2][OTHERS], means[2][OTHERS];
    // The first keys are seen by the most queries.
    u64 n_tiles = (n + 127) / 128, first = blockIdx.x % n_tiles * 128, own = first + threadIdx.x / 32 * 16;
    u32 half = 0, lane = threadIdx.x % 32, first_column = blockIdx.x / n_tiles * SPAN;
    Sight sight = {m, n, causal};
    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        u32 of_keys[WIDTH / DEPTH / 8][4], of_values[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_keys, keys, own, width, by_fours);
        load_own_MODE(of_values, values, own, width, by_fours);
        f32 by_key[SPAN / 8][4] = {}, by_value[SPAN / 8][4] = {};
        Pair_MODE<STORED, OTHERS, WIDTH> next;
        next.load(queries, gradients, sight.first_query(first), width, by_fours);
        for (u64 start = sight.first_query(first); start < m; start += OTHERS, half = 1 - half) {
            if (threadIdx.x < OTHERS) {
                u64 row = start + threadIdx.x;
                logarithms[half][threadIdx.x] = row < m ? statistics[2 * batch * m + row] : 0;
                means[half][threadIdx.x] = row < m ? statistics[(2 * batch + 1) * m + row] : 0;
            }
            next.turn(query_tile[half], gradient_tile[half], queries, gradients, start, m, width, by_fours);
            if (!sight.is_any_seen(start, OTHERS, own)) continue;
            f32 weights[OTHERS / 8][4], by_weight[OTHERS / 8][4];
            score_MODE(weights, of_keys, query_tile[half]);
            score_MODE(by_weight, of_values, gradient_tile[half]);
            // Queries before these do not see a key, nor do those that are not there.
            u32 hidden[2] = {sight.hidden(own + lane / 4, start, OTHERS), sight.hidden(own + lane / 4 + 8, start, OTHERS)};
            u32 n_queries = m - start < OTHERS ? (u32)(m - start) : OTHERS;
#pragma unroll
            for (u32 j = 0; j < OTHERS / 8; j++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32 query = j * 8 + lane % 4 * 2 + i % 2;
                    bool is_seen = query >= hidden[i / 2] && query < n_queries;
                    weights[j][i] = is_seen ? exp2f(weights[j][i] * LOG2_E - logarithms[half][query]) : 0;
                    by_weight[j][i] = weights[j][i] * (by_weight[j][i] - means[half][query]);
                }
            }
            add_weighted_MODE(by_value, weights, gradient_tile[half], first_column);
            add_weighted_MODE(by_key, by_weight, query_tile[half], first_column);
        }
        f32 factors[2] = {1, 1};
        write_MODE(by_key, factors, dk + OFFSET(dk), dk_row, dk_column, own, n, first_column, width, by_fours, 0);
        write_MODE(by_value, factors, dv + OFFSET(dv), dv_row, dv_column, own, n, first_column, width, by_fours, 0);
    }
}
