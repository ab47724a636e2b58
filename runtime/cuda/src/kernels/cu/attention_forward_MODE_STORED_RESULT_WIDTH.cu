// softmax(q kᵀ) v by tensor cores, for up to WIDTH columns: as attention_forward_REAL.
extern "C" __global__ void __launch_bounds__(128, BLOCKS)
attention_forward_MODE_STORED_RESULT_WIDTH(FACTORS(const STORED), MATRIX(RESULT, y), SIZES, u32 by_vectors, u32 accumulate) {
    __shared__ Tile_MODE<OTHERS, WIDTH> key_tile[2], value_tile[2];
    // The last queries see the most keys: they begin.
    u64 n_tiles = (m + 63) / 64;
    Task task(n_tiles);
    u64 first = (n_tiles - 1 - task.tile) * 64, own = first + threadIdx.x / 32 * 16;
    u32 half = 0;
    Sight sight = SIGHT;
    // Keys that some queries of the block see, that some of the warp do, and that all of these do.
    u64 seen = sight.keys_before(first + 64), some = own < m ? sight.keys_before(own + 16) : 0, all = sight.keys_before(own + 1);
    for (u64 batch = task.batch; batch < batches; batch += task.step) {
        sight.starts = STARTS;
        // The first keys that some queries of the block see, that some of the warp see, and from which all of the warp see.
        u64 begin = sight.first_key_of_any(first, 64), some_begin = sight.first_key_of_any(own, 16), all_begin = sight.first_key_of_all(own, 16);
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n);
        Walk_MODE<STORED, OTHERS, WIDTH> next_keys(keys, begin), next_values(values, begin);
        next_keys.fetch(key_tile[half], width, by_vectors);
        next_values.fetch(value_tile[half], width, by_vectors);
        u32 of_queries[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_queries, queries, own, width, by_vectors);
        f32 top[2] = {LOWEST, LOWEST}, total[2] = {}, sums[WIDTH / 8][4] = {};
        for (u64 start = begin; start < seen; start += OTHERS, half = 1 - half) {
            arrive_MODE();
            if (start + OTHERS < seen) {
                next_keys.fetch(key_tile[1 - half], width, by_vectors);
                next_values.fetch(value_tile[1 - half], width, by_vectors);
            }
            if (start >= some || start + OTHERS <= some_begin) continue;
            f32 weights[OTHERS / 8][4];
            score_MODE(weights, of_queries, key_tile[half]);
            if (start + OTHERS > all || start < all_begin) hide_keys_MODE(weights, sight, own, start);
#pragma unroll
            for (u32 part = 0; part < 2; part++) {
                f32 factor = weigh_MODE(weights, part, top[part]);
                total[part] *= factor;
#pragma unroll
                for (u32 j = 0; j < OTHERS / 8; j++) total[part] += weights[j][2 * part] + weights[j][2 * part + 1];
#pragma unroll
                for (u32 j = 0; j < WIDTH / 8; j++) {
                    sums[j][2 * part] *= factor;
                    sums[j][2 * part + 1] *= factor;
                }
            }
            add_weighted_MODE(sums, weights, value_tile[half], 0);
        }
        f32 factors[2] = {1 / sum_of_row_MODE(total[0]), 1 / sum_of_row_MODE(total[1])};
        write_MODE(sums, factors, y + OFFSET(y), y_row, y_column, own, m, 0, width, by_vectors, accumulate);
    }
}
