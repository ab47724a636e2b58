// As attention_statistics_REAL, by tensor cores; the first number of a query is the logarithm to base 2, with which weights are 2^(log2(e) score - number).
extern "C" __global__ void __launch_bounds__(256, 1)
attention_statistics_MODE_STORED_WIDTH(FACTORS(const STORED), MATRIX(const STORED, dy), f32* statistics, SIZES, u32 by_fours) {
    __shared__ Tile_MODE<OTHERS, WIDTH> key_tile[2], value_tile[2];
    u64 first = (gridDim.x - 1 - blockIdx.x) * (u64)128, own = first + threadIdx.x / 32 * 16;
    u32 lane = threadIdx.x % 32, half = 0;
    Sight sight = {m, n, causal};
    u64 seen = sight.keys_before(first + 128);
    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        Rows<STORED> queries = ROWS(q, m), keys = ROWS(k, n), values = ROWS(v, n), gradients = ROWS(dy, m);
        u32 of_queries[WIDTH / DEPTH / 8][4], of_gradients[WIDTH / DEPTH / 8][4];
        load_own_MODE(of_queries, queries, own, width, by_fours);
        load_own_MODE(of_gradients, gradients, own, width, by_fours);
        f32 top[2] = {LOWEST, LOWEST}, total[2] = {}, mean[2] = {};
        Pair_MODE<STORED, OTHERS, WIDTH> next;
        next.load(keys, values, 0, width, by_fours);
        for (u64 start = 0; start < seen; start += OTHERS, half = 1 - half) {
            next.turn(key_tile[half], value_tile[half], keys, values, start, seen, width, by_fours);
            if (!sight.is_any_seen(own, 16, start)) continue;
            f32 weights[OTHERS / 8][4], by_weight[OTHERS / 8][4];
            score_MODE(weights, of_queries, key_tile[half]);
            score_MODE(by_weight, of_gradients, value_tile[half]);
            hide_MODE(weights, sight, own, start);
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
