// As attention_grad_queries_REAL, by tensor cores, for up to WIDTH columns: each block has 64 queries and SPAN columns of the result.
extern "C" __global__ void __launch_bounds__(128, BLOCKS)
attention_grad_queries_MODE_STORED_RESULT_WIDTH_SPAN(FACTORS(const STORED), MATRIX(const STORED, dy), const f32* statistics, MATRIX(RESULT, dq), SIZES, u32 by_vectors) {
    __shared__ Tile_MODE<OTHERS, WIDTH> key_tile[2], value_tile[2];
    u64 n_tiles = (m + 63) / 64;
    Task task(n_tiles);
    u64 first = (n_tiles - 1 - task.tile) * 64, own = first + threadIdx.x / 32 * 16;
    u32 half = 0, lane = threadIdx.x % 32, first_column = blockIdx.z * SPAN;
    Sight sight = SIGHT;
    // Keys that some queries of the block see, that some of the warp do, and that all of these do.
    u64 seen = sight.keys_before(first + 64), some = own < m ? sight.keys_before(own + 16) : 0, all = sight.keys_before(own + 1);
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        // The first keys that some queries of the block see, that some of the warp see, and from which all of the warp see.
        u64 begin = sight.first_key_of_any(first, 64), some_begin = sight.first_key_of_any(own, 16), all_begin = sight.first_key_of_all(own, 16);
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        Walk_MODE<STORED, OTHERS, WIDTH> next_keys(keys, begin), next_values(values, begin);
        next_keys.fetch(key_tile[half], width, by_vectors);
        next_values.fetch(value_tile[half], width, by_vectors);
        u32 of_queries[WIDTH / DEPTH / 8][4], of_gradients[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_queries, queries, own, width, by_vectors);
        load_own_MODE(of_gradients, gradients, own, width, by_vectors);
        f32 logarithms[2], means[2], sums[SPAN / 8][4] = {};
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            u64 row = own + lane / 4 + part * 8;
            logarithms[part] = row < m ? statistics[2 * batch * m + row] : 0;
            means[part] = row < m ? statistics[(2 * batch + 1) * m + row] : 0;
        }
        for (u64 start = begin; start < seen; start += OTHERS, half = 1 - half) {
            arrive_MODE();
            if (start + OTHERS < seen) {
                next_keys.fetch(key_tile[1 - half], width, by_vectors);
                next_values.fetch(value_tile[1 - half], width, by_vectors);
            }
            if (start >= some || start + OTHERS <= some_begin) continue;
            f32 scores[OTHERS / 8][4], by_weight[OTHERS / 8][4];
            score_MODE(scores, of_queries, key_tile[half]);
            score_MODE(by_weight, of_gradients, value_tile[half]);
            if (start + OTHERS > all || start < all_begin) hide_keys_MODE(scores, sight, own, start);
#pragma unroll
            for (u32 j = 0; j < OTHERS / 8; j++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) scores[j][i] = power_of_two(scores[j][i] * LOG2_E - logarithms[i / 2]) * (by_weight[j][i] - means[i / 2]);
            }
            add_weighted_MODE(sums, scores, key_tile[half], first_column);
        }
        f32 factors[2] = {1, 1};
        write_MODE(sums, factors, dq + OFFSET(dq), dq_row, dq_column, own, m, first_column, width, by_vectors, 0);
    }
}
