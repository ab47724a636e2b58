// c = a b, or c += a b, for matrices with any strides: each block has a tile of SIDE x SIDE of c, each of its 16 x 16 threads SIDE / 16 rows and columns of it,
// in groups of four that are 64 apart. While a block multiplies 16 columns of a with 16 rows of b, the next ones are on their way.
extern "C" __global__ void __launch_bounds__(256, SIDE == 64 ? 2 : 1)
gemm_REAL_SIDE_LAYOUT(const REAL* a, const REAL* b, REAL* c, u64 m, u64 n, u64 k, u64 a_row, u64 a_column, u64 b_row, u64 b_column, u64 c_row, u64 c_column,
                      u64 batches, u64 size1, u64 size2, u64 a0, u64 a1, u64 a2, u64 b0, u64 b1, u64 b2, u64 c0, u64 c1, u64 c2, u32 accumulate, u32 by_fours) {
    const u32 GROUPS = SIDE / 64;
    typedef Strip<REAL, SIDE, 1, A_ALONG_K> StripOfA;
    typedef Strip<REAL, SIDE, 1, B_ALONG_K> StripOfB;
    __shared__ __align__(16) REAL a_tile[2][16][SIDE + 4];
    __shared__ __align__(16) REAL b_tile[2][16][SIDE + 4];
    u64 tile_row, tile_column;
    tile_of_block((m + SIDE - 1) / SIDE, (n + SIDE - 1) / SIDE, tile_row, tile_column);
    u64 first_row = tile_row * SIDE, first_column = tile_column * SIDE;
    u32 own_row = threadIdx.x / 16 * 4, own_column = threadIdx.x % 16 * 4;

    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        StripOfA strip_a(a + batch_offset(batch, size1, size2, a0, a1, a2), a_row, a_column, first_row, m);
        StripOfB strip_b(b + batch_offset(batch, size1, size2, b0, b1, b2), b_column, b_row, first_column, n);
        REAL next_a[StripOfA::UNITS][1], next_b[StripOfB::UNITS][1];
        REAL sums[GROUPS * 4][GROUPS * 4] = {};
        strip_a.load(next_a, k);
        strip_b.load(next_b, k);
        // The tiles of the last matrix may still be read.
        __syncthreads();
        u32 half = 0;
        for (u64 done = 0; done < k; done += 16) {
#pragma unroll
            for (u32 unit = 0; unit < StripOfA::UNITS; unit++) {
                a_tile[half][StripOfA::column(unit)][StripOfA::row(unit)] = next_a[unit][0];
                b_tile[half][StripOfB::column(unit)][StripOfB::row(unit)] = next_b[unit][0];
            }
            // One barrier is enough: who writes this half again has passed the next one, which all reach after they have read it.
            __syncthreads();
            if (done + 16 < k) {
                strip_a.load(next_a, k - done - 16);
                strip_b.load(next_b, k - done - 16);
            }
#pragma unroll 4
            for (u32 depth = 0; depth < 16; depth++) {
                Four_REAL x[GROUPS], y[GROUPS];
#pragma unroll
                for (u32 group = 0; group < GROUPS; group++) {
                    x[group] = *(const Four_REAL*)&a_tile[half][depth][group * 64 + own_row];
                    y[group] = *(const Four_REAL*)&b_tile[half][depth][group * 64 + own_column];
                }
#pragma unroll
                for (u32 i = 0; i < GROUPS * 4; i++) {
#pragma unroll
                    for (u32 j = 0; j < GROUPS * 4; j++) sums[i][j] += x[i / 4].at[i % 4] * y[j / 4].at[j % 4];
                }
            }
            half = 1 - half;
        }

        REAL* result = c + batch_offset(batch, size1, size2, c0, c1, c2);
#pragma unroll
        for (u32 i = 0; i < GROUPS * 4; i++) {
            u64 row = first_row + i / 4 * 64 + own_row + i % 4;
            if (row >= m) continue;
#pragma unroll
            for (u32 group = 0; group < GROUPS; group++) {
                u64 column = first_column + group * 64 + own_column;
                REAL* to = result + row * c_row + column * c_column;
                if (by_fours) {
                    if (column >= n) continue;
                    Four_REAL four = {};
                    if (accumulate) four = *(const Four_REAL*)to;
#pragma unroll
                    for (u32 j = 0; j < 4; j++) four.at[j] += sums[i][group * 4 + j];
                    *(Four_REAL*)to = four;
                } else {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        REAL sum = sums[i][group * 4 + j];
                        if (column + j < n) to[j * c_column] = accumulate ? to[j * c_column] + sum : sum;
                    }
                }
            }
        }
    }
}
