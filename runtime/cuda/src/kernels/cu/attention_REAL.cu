// What kernels of attention at full precision share. A block has 64 rows of its own, of queries or of keys, and walks the others, OTHERS at a time. Each of its
// 16 x 16 threads has four own rows: of a tile of scores OTHERS / 16 columns, of results four columns in each group of 64.

struct Tiles_REAL {
    // In two halves: 16 columns of own rows and of others, or one or two groups of columns of 16 others.
    __align__(16) REAL strips[2][2][16][68];
    // What others weigh for own rows; see `place_of_REAL`.
    __align__(16) REAL weights[OTHERS][68];
};

// Neighbours of a tile of scores that a thread has.
struct __align__(OTHERS / 16 * sizeof(REAL)) Share_REAL {
    REAL at[OTHERS / 16];
};

// Where an other's weights are: neighbouring threads write neighbouring rows, which lie in different banks.
__device__ __forceinline__ u32 place_of_REAL(u32 other) { return other % (OTHERS / 16) * 16 + other / (OTHERS / 16); }

// sums += the products of own rows from `first` on with others from `start` on. One barrier a step is enough: who writes a half again has passed the barrier of the
// other one, which all reach after they have read it. It serves weights too.
template <class Stored>
__device__ __forceinline__ void add_scores_REAL(REAL (&sums)[4][OTHERS / 16], const Rows<Stored>& own, u64 first, const Rows<Stored>& other, u64 start, u64 width,
                                                Tiles_REAL& tiles, u32& half) {
    Strip<Stored, 64, 1, true> strip_of_own(own.at, own.row, own.column, first, own.count);
    Strip<Stored, OTHERS, 1, true> strip_of_other(other.at, other.row, other.column, start, other.count);
    Stored next_own[4][1], next_other[OTHERS / 16][1];
    strip_of_own.load(next_own, width);
    strip_of_other.load(next_other, width);
    for (u64 done = 0; done < width; done += 16) {
#pragma unroll
        for (u32 unit = 0; unit < 4; unit++) tiles.strips[half][0][strip_of_own.column(unit)][strip_of_own.row(unit)] = widened(next_own[unit][0]);
#pragma unroll
        for (u32 unit = 0; unit < OTHERS / 16; unit++) tiles.strips[half][1][strip_of_other.column(unit)][strip_of_other.row(unit)] = widened(next_other[unit][0]);
        __syncthreads();
        if (done + 16 < width) {
            strip_of_own.load(next_own, width - done - 16);
            strip_of_other.load(next_other, width - done - 16);
        }
#pragma unroll 2
        for (u32 depth = 0; depth < 16; depth++) {
            Four_REAL x = *(const Four_REAL*)&tiles.strips[half][0][depth][threadIdx.x / 16 * 4];
            Share_REAL y = *(const Share_REAL*)&tiles.strips[half][1][depth][threadIdx.x % 16 * (OTHERS / 16)];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 j = 0; j < OTHERS / 16; j++) sums[i][j] += x.at[i] * y.at[j];
            }
        }
        half = 1 - half;
    }
}

// Puts weights where all threads find them.
__device__ __forceinline__ void put_weights_REAL(const REAL (&weights)[4][OTHERS / 16], Tiles_REAL& tiles) {
#pragma unroll
    for (u32 j = 0; j < OTHERS / 16; j++) {
        Four_REAL four = {{weights[0][j], weights[1][j], weights[2][j], weights[3][j]}};
        *(Four_REAL*)&tiles.weights[place_of_REAL(threadIdx.x % 16 * (OTHERS / 16) + j)][threadIdx.x / 16 * 4] = four;
    }
}

// sums += what was put, times the others from `start` on: COUNT groups of their columns from `first_column` on.
template <u32 COUNT, class Stored>
__device__ __forceinline__ void add_weighted_REAL(REAL (&sums)[COUNT][4][4], const Rows<Stored>& other, u64 start, u64 first_column, u64 width, Tiles_REAL& tiles,
                                                  u32& half) {
    typedef Strip<Stored, 64, 1, false> Columns;
    const Stored* at = other.at + start * other.row;
    u64 left = other.count - start, second_column = first_column + 64 < width ? first_column + 64 : width;
    Columns columns[2] = {Columns(at, other.column, other.row, first_column, width), Columns(at, other.column, other.row, second_column, width)};
    Stored next[COUNT][4][1];
#pragma unroll
    for (u32 group = 0; group < COUNT; group++) columns[group].load(next[group], left);
    for (u32 done = 0; done < OTHERS && done < left; done += 16) {
#pragma unroll
        for (u32 group = 0; group < COUNT; group++) {
#pragma unroll
            for (u32 unit = 0; unit < 4; unit++) tiles.strips[half][group][Columns::column(unit)][Columns::row(unit)] = widened(next[group][unit][0]);
        }
        __syncthreads();
        if (done + 16 < OTHERS && done + 16 < left) {
#pragma unroll
            for (u32 group = 0; group < COUNT; group++) columns[group].load(next[group], left - done - 16);
        }
#pragma unroll 2
        for (u32 depth = 0; depth < 16; depth++) {
            Four_REAL x = *(const Four_REAL*)&tiles.weights[place_of_REAL(done + depth)][threadIdx.x / 16 * 4];
#pragma unroll
            for (u32 group = 0; group < COUNT; group++) {
                Four_REAL y = *(const Four_REAL*)&tiles.strips[half][group][depth][threadIdx.x % 16 * 4];
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) sums[group][i][j] += x.at[i] * y.at[j];
                }
            }
        }
        half = 1 - half;
    }
}

// The sum over the threads that have the same own rows, the same bits in all of them.
__device__ __forceinline__ REAL sum_of_row_REAL(REAL x) {
#pragma unroll
    for (u32 mask = 8; mask > 0; mask /= 2) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}

// Scores become weights e^(score - largest so far) of their own rows. Returns what to multiply what was summed up for a row with, since the largest has grown.
__device__ __forceinline__ REAL weigh_REAL(REAL (&scores)[OTHERS / 16], REAL& top) {
    REAL before = top;
#pragma unroll
    for (u32 j = 0; j < OTHERS / 16; j++) top = scores[j] > top ? scores[j] : top;
#pragma unroll
    for (u32 mask = 8; mask > 0; mask /= 2) {
        REAL other = __shfl_xor_sync(~0u, top, mask);
        top = other > top ? other : top;
    }
#pragma unroll
    for (u32 j = 0; j < OTHERS / 16; j++) scores[j] = weight_REAL(scores[j], top);
    return before == top ? 1 : exp_REAL(before - top);
}

// Writes own rows from `first` on, COUNT groups of their columns, times a factor for each row.
template <u32 COUNT, class Result>
__device__ __forceinline__ void write_REAL(const REAL (&sums)[COUNT][4][4], const REAL (&factors)[4], Result* out, u64 row_stride, u64 column_stride, u64 first, u64 rows,
                                           u64 first_column, u64 width, u32 accumulate) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u64 row = first + threadIdx.x / 16 * 4 + i;
        if (row >= rows) continue;
#pragma unroll
        for (u32 group = 0; group < COUNT; group++) {
            u64 column = first_column + group * 64 + threadIdx.x % 16 * 4;
            Result* to = out + row * row_stride + column * column_stride;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                if (column + j < width) store_one(to + j * column_stride, mul_REAL(sums[group][i][j], factors[i]), accumulate);
            }
        }
    }
}
