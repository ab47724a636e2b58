// As attention_grad_keys_REAL, by tensor cores, for up to WIDTH columns: each block has 64 keys and SPAN columns of both results.
extern "C" __global__ void __launch_bounds__(128, BLOCKS)
attention_grad_keys_MODE_STORED_RESULT_WIDTH_SPAN(FACTORS(const STORED), MATRIX(const STORED, dy), const f32* statistics, MATRIX(RESULT, dk),
        MATRIX(RESULT, dv), SIZES, u32 by_vectors) {
    __shared__ Tile_MODE<OTHERS, WIDTH> query_tile[2], gradient_tile[2];
    __shared__ f32 logarithms[2][OTHERS], means[2][OTHERS];
    // The first keys are seen by the most queries.
    Task task((n + 63) / 64);
    u64 first = task.tile * 64, own = first + threadIdx.x / 32 * 16;
    u32 half = 0, lane = threadIdx.x % 32, first_column = blockIdx.z * SPAN;
    Sight sight = SIGHT;
    // The first queries that see some keys of the block, some of the warp, and all of these.
    u64 begin = sight.first_query(first), some = sight.first_query(own), all = sight.first_query(own + 15);
    // The queries behind the last ones that do.
    u64 end = sight.queries_before(first + 63), some_end = sight.queries_before(own + 15), all_end = sight.queries_before(own);
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        // Copies the statistics of the queries of a tile.
        auto fetch_statistics = [&](u64 start, u32 half) {
            u64 row = start + threadIdx.x;
            if (threadIdx.x >= OTHERS) return;
            copy_async<4>(&logarithms[half][threadIdx.x], statistics + 2 * batch * m + row, row < m);
            copy_async<4>(&means[half][threadIdx.x], statistics + (2 * batch + 1) * m + row, row < m);
        };
        Walk_MODE<STORED, OTHERS, WIDTH> next_queries(queries, begin), next_gradients(gradients, begin);
        next_queries.fetch(query_tile[half], width, by_vectors);
        next_gradients.fetch(gradient_tile[half], width, by_vectors);
        fetch_statistics(begin, half);
        u32 of_keys[WIDTH / DEPTH / 8][4], of_values[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_keys, keys, own, width, by_vectors);
        load_own_MODE(of_values, values, own, width, by_vectors);
        f32 by_key[SPAN / 8][4] = {}, by_value[SPAN / 8][4] = {};
        for (u64 start = begin; start < end; start += OTHERS, half = 1 - half) {
            arrive_MODE();
            if (start + OTHERS < end) {
                next_queries.fetch(query_tile[1 - half], width, by_vectors);
                next_gradients.fetch(gradient_tile[1 - half], width, by_vectors);
                fetch_statistics(start + OTHERS, 1 - half);
            }
            if (start + OTHERS <= some || start >= some_end) continue;
            f32 weights[OTHERS / 8][4], by_weight[OTHERS / 8][4];
            score_MODE(weights, of_keys, query_tile[half]);
            score_MODE(by_weight, of_values, gradient_tile[half]);
            if (start < all || start + OTHERS > all_end || has_starts) hide_queries_MODE(weights, sight, own, start);
#pragma unroll
            for (u32 j = 0; j < OTHERS / 8; j++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32 query = j * 8 + lane % 4 * 2 + i % 2;
                    weights[j][i] = power_of_two(weights[j][i] * LOG2_E - logarithms[half][query]);
                    by_weight[j][i] = weights[j][i] * (by_weight[j][i] - means[half][query]);
                }
            }
            add_weighted_MODE(by_value, weights, gradient_tile[half], first_column);
            add_weighted_MODE(by_key, by_weight, query_tile[half], first_column);
        }
        // No query sees these keys: what was fetched for nothing has arrived before it is fetched again.
        if (end <= begin) arrive_MODE();
        f32 factors[2] = {1, 1};
        write_MODE(by_key, factors, dk + OFFSET(dk), dk_row, dk_column, own, n, first_column, width, by_vectors, 0);
        write_MODE(by_value, factors, dv + OFFSET(dv), dv_row, dv_column, own, n, first_column, width, by_vectors, 0);
    }
}
