// c = a b, or c += a b, for matrices with any strides, by tensor cores: factors, stored as REAL, are rounded to MODE on their way into shared memory if they are not
// stored so; sums are in single precision, and rounded where RESULT is bf16. Each block has a tile of 128 rows of c and 128 or 64 columns, each of its eight warps COLUMNS / 2 x 32 of it: 4 or 2 by 4 products of 16 x 8.
// A word holds NUMBERS neighbours along k; words of both modes lie alike in fragments, so one text serves both.
extern "C" __global__ void __launch_bounds__(256, COLUMNS == 64 ? 2 : 1)
gemm_MODE_REAL_RESULT_COLUMNS_LAYOUT(const REAL* a, const REAL* b, RESULT* c, u64 m, u64 n, u64 k, u64 a_row, u64 a_column, u64 b_row, u64 b_column, u64 c_row, u64 c_column, u64 batches,
                 u64 size1, u64 size2, u64 a0, u64 a1, u64 a2, u64 b0, u64 b1, u64 b2, u64 c0, u64 c1, u64 c2, u32 accumulate, u32 by_fours) {
    // Warps side by side, and products of a warp below each other.
    const u32 WIDE = COLUMNS / 32, TALL = COLUMNS / 32;
    typedef Strip<REAL, 128, NUMBERS, A_ALONG_K> StripOfA;
    typedef Strip<REAL, COLUMNS, NUMBERS, B_ALONG_K> StripOfB;
    __shared__ u32 a_tile[2][128 * 16];
    __shared__ u32 b_tile[2][COLUMNS * 16];
    u64 tile_row, tile_column;
    tile_of_block((m + 127) / 128, (n + COLUMNS - 1) / COLUMNS, tile_row, tile_column);
    u64 first_row = tile_row * 128, first_column = tile_column * COLUMNS;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 warp_row = warp / WIDE * TALL * 16, warp_column = warp % WIDE * 32;

    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        StripOfA strip_a(a + batch_offset(batch, size1, size2, a0, a1, a2), a_row, a_column, first_row, m);
        StripOfB strip_b(b + batch_offset(batch, size1, size2, b0, b1, b2), b_column, b_row, first_column, n);
        REAL next_a[StripOfA::UNITS][NUMBERS], next_b[StripOfB::UNITS][NUMBERS];
        f32 sums[TALL][4][4] = {};
        strip_a.load(next_a, k);
        strip_b.load(next_b, k);
        // The tiles of the last matrix may still be read.
        __syncthreads();
        u32 half = 0;
        for (u64 done = 0; done < k; done += 16 * NUMBERS) {
#pragma unroll
            for (u32 unit = 0; unit < StripOfA::UNITS; unit++) {
                a_tile[half][word_at(StripOfA::row(unit), StripOfA::column(unit))] = word_MODE(next_a[unit]);
            }
#pragma unroll
            for (u32 unit = 0; unit < StripOfB::UNITS; unit++) {
                b_tile[half][word_at(StripOfB::row(unit), StripOfB::column(unit))] = word_MODE(next_b[unit]);
            }
            // One barrier is enough: who writes this half again has passed the next one, which all reach after they have read it.
            __syncthreads();
            if (done + 16 * NUMBERS < k) {
                strip_a.load(next_a, k - done - 16 * NUMBERS);
                strip_b.load(next_b, k - done - 16 * NUMBERS);
            }
            // One after the other: the fragments of both would take too many registers.
#pragma unroll 1
            for (u32 word = 0; word < 16; word += 8) {
                u32 of_a[TALL][4], of_b[4][2];
#pragma unroll
                for (u32 i = 0; i < TALL; i++) {
                    u32 row = warp_row + i * 16 + lane / 4;
#pragma unroll
                    for (u32 part = 0; part < 4; part++) of_a[i][part] = a_tile[half][word_at(row + part % 2 * 8, word + lane % 4 + part / 2 * 4)];
                }
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    u32 column = warp_column + j * 8 + lane / 4;
#pragma unroll
                    for (u32 part = 0; part < 2; part++) of_b[j][part] = b_tile[half][word_at(column, word + lane % 4 + part * 4)];
                }
#pragma unroll
                for (u32 i = 0; i < TALL; i++) {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) mma_MODE(sums[i][j], of_a[i], of_b[j]);
                }
            }
            half = 1 - half;
        }

        RESULT* result = c + batch_offset(batch, size1, size2, c0, c1, c2);
#pragma unroll
        for (u32 i = 0; i < TALL; i++) {
#pragma unroll
            for (u32 part = 0; part < 2; part++) {
                u64 row = first_row + warp_row + i * 16 + part * 8 + lane / 4;
                if (row >= m) continue;
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    u64 column = first_column + warp_column + j * 8 + lane % 4 * 2;
                    RESULT* to = result + row * c_row + column * c_column;
                    f32 first = sums[i][j][2 * part], second = sums[i][j][2 * part + 1];
                    if (by_fours && column < n) {
                        store_two(to, first, second, accumulate);
                    } else {
                        if (column < n) store_one(to, first, accumulate);
                        if (column + 1 < n) store_one(to + c_column, second, accumulate);
                    }
                }
            }
        }
    }
}
