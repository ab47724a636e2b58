// As attention_grad_queries_REAL, by tensor cores, for up to WIDTH columns: each block has 128 queries and SPAN columns of the result.
extern "C" __global__ void __launch_bounds__(256, 1)
attention_grad_queries_MODE_STORED_RESULT_WIDTH_SPAN(FACTORS(const STORED), MATRIX(const STORED, dy), const f32* statistics, MATRIX(RESULT, dq), SIZES, u32 by_fours) {
    __shared__ Tile_MODE<OTHERS, WIDTH> key_tile[2], value_tile[2];
    u64 n_tiles = (m + 127) / 128, first = (n_tiles - 1 - blockIdx.x % n_tiles) * 128, own = first + threadIdx.x / 32 * 16;
    u32 half = 0, lane = threadIdx.x % 32, first_column = blockIdx.x / n_tiles * SPAN;
    Sight sight = {m, n, causal};
    u64 seen = sight.keys_before(first + 128);
    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        u32 of_queries[WIDTH / DEPTH / 8][4], of_gradients[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_queries, queries, own, width, by_fours);
        load_own_MODE(of_gradients, gradients, own, width, by_fours);
        f32 logarithms[2], means[2], sums[SPAN / 8][4] = {};
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            u64 row = own + lane / 4 + part * 8;
            logarithms[part] = row < m ? statistics[2 * batch * m + row] : 0;
            means[part] = row < m ? statistics[(2 * batch + 1) * m + row] : 0;
        }
        Pair_MODE<STORED, OTHERS, WIDTH> next;
        next.load(keys, values, 0, width, by_fours);
        for (u64 start = 0; start < seen; start += OTHERS, half = 1 - half) {
            next.turn(key_tile[half], value_tile[half], keys, values, start, seen, width, by_fours);
            if (!sight.is_any_seen(own, 16, start)) continue;
            f32 scores[OTHERS / 8][4], by_weight[OTHERS / 8][4];
            score_MODE(scores, of_queries, key_tile[half]);
            score_MODE(by_weight, of_gradients, value_tile[half]);
            hide_MODE(scores, sight, own, start);
#pragma unroll
            for (u32 j = 0; j < OTHERS / 8; j++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) scores[j][i] = exp2f(scores[j][i] * LOG2_E - logarithms[i / 2]) * (by_weight[j][i] - means[i / 2]);
            }
            add_weighted_MODE(sums, scores, key_tile[half], first_column);
        }
        f32 factors[2] = {1, 1};
        write_MODE(sums, factors, dq + OFFSET(dq), dq_row, dq_column, own, m, first_column, width, by_fours, 0);
    }
}
