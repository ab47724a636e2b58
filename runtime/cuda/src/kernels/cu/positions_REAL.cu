// 0, 1, 2, ..
extern "C" __global__ void __launch_bounds__(512, 2) positions_REAL(REAL* out, u64 rows, u64 width) {
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) out[column] = (REAL)(f64)column;
}
