// softmax(q kᵀ) v by tensor cores, for up to WIDTH columns: as attention_forward_REAL, with 128 queries in a block.
extern "C" __global__ void __launch_bounds__(256, 1)
attention_forward_MODE_STORED_RESULT_WIDTH(FACTORS(const STORED), MATRIX(RESULT, y), SIZES, u32 by_fours, u32 accumulate) {
    __shared__ Tile_MODE<OTHERS, WIDTH> key_tile[2], value_tile[2];
    // The last queries see the most keys: they begin.
    u64 first = (gridDim.x - 1 - blockIdx.x) * (u64)128, own = first + threadIdx.x / 32 * 16;
    u32 half = 0;
    Sight sight = {m, n, causal};
    u64 seen = sight.keys_before(first + 128);
    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n);
        u32 of_queries[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_queries, queries, own, width, by_fours);
        f32 top[2] = {LOWEST, LOWEST}, total[2] = {}, sums[WIDTH / 8][4] = {};
        Pair_MODE<STORED, OTHERS, WIDTH> next;
        next.load(keys, values, 0, width, by_fours);
        for (u64 start = 0; start < seen; start += OTHERS, half = 1 - half) {
            next.turn(key_tile[half], value_tile[half], keys, values, start, seen, width, by_fours);
            if (!sight.is_any_seen(own, 16, start)) continue;
            f32 weights[OTHERS / 8][4];
            score_MODE(weights, of_queries, key_tile[half]);
            hide_MODE(weights, sight, own, start);
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
        write_MODE(sums, factors, y + OFFSET(y), y_row, y_column, own, m, 0, width, by_fours, accumulate);
    }
}
