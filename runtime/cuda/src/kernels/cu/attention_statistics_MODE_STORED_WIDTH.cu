// As attention_statistics_REAL, by tensor cores; the first number of a query is the logarithm to base 2, with which weights are 2^(log2(e) score - number).
extern "C" __global__ void __launch_bounds__(128, BLOCKS)
attention_statistics_MODE_STORED_WIDTH(FACTORS(const STORED), MATRIX(const STORED, dy), f32* statistics, SIZES, u32 by_vectors) {
    __shared__ Tile_MODE<OTHERS, WIDTH> key_tile[2], value_tile[2];
    u64 n_tiles = (m + 63) / 64;
    Task task(n_tiles);
    u64 first = (n_tiles - 1 - task.tile) * 64, own = first + threadIdx.x / 32 * 16;
    u32 lane = threadIdx.x % 32, half = 0;
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
        f32 top[2] = {LOWEST, LOWEST}, total[2] = {}, mean[2] = {};
        for (u64 start = begin; start < seen; start += OTHERS, half = 1 - half) {
            arrive_MODE();
            if (start + OTHERS < seen) {
                next_keys.fetch(key_tile[1 - half], width, by_vectors);
                next_values.fetch(value_tile[1 - half], width, by_vectors);
            }
            if (start >= some || start + OTHERS <= some_begin) continue;
            f32 weights[OTHERS / 8][4], by_weight[OTHERS / 8][4];
            score_MODE(weights, of_queries, key_tile[half]);
            score_MODE(by_weight, of_gradients, value_tile[half]);
            if (start + OTHERS > all || start < all_begin) hide_keys_MODE(weights, sight, own, start);
#pragma unroll
            for (u32 part = 0; part < 2; part++) {
                f32 factor = weigh_MODE(weights, part, top[part]);
                total[part] *= factor;
                mean[part] *= factor;
#pragma unroll
                for (u32 j = 0; j < OTHERS / 8; j++) {
#pragma unroll
                    for (u32 i = 2 * part; i < 2 * part + 2; i++) {
                        total[part] += weights[j][i];
                        mean[part] += weights[j][i] * by_weight[j][i];
                    }
                }
            }
        }
#pragma unroll
        for (u32 part = 0; part < 2; part++) {
            f32 sum = sum_of_row_MODE(total[part]), weighted = sum_of_row_MODE(mean[part]);
            u64 row = own + lane / 4 + part * 8;
            if (lane % 4 != 0 || row >= m) continue;
            statistics[2 * batch * m + row] = top[part] * LOG2_E + log2f(sum);
            statistics[(2 * batch + 1) * m + row] = weighted / sum;
        }
    }
}
