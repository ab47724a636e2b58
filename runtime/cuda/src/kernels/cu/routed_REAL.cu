// Tiles of routed products: 16 rows of each factor, and the products that each of 16 x 16 threads adds up, four rows by four columns.
struct Tiles_routed_REAL {
    REAL left[16][68];
    REAL right[16][68];
};

// sums += left^T right. All threads must have filled the tiles, and may fill them again after it.
__device__ __forceinline__ void add_tiles_REAL(REAL (&sums)[4][4], const Tiles_routed_REAL& tiles) {
    u32 own_row = threadIdx.x / 16 * 4, own_column = threadIdx.x % 16 * 4;
    __syncthreads();
    for (u32 depth = 0; depth < 16; depth++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) sums[i][j] += tiles.left[depth][own_row + i] * tiles.right[depth][own_column + j];
        }
    }
    __syncthreads();
}
