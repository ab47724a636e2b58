// 1, base, base^2, .. each computed in double precision.
extern "C" __global__ void __launch_bounds__(512, 2) powers_REAL(REAL* out, u64 rows, u64 width, f64 base) {
    for (u64 column = threadIdx.x; column < width; column += blockDim.x) out[column] = (REAL)pow(base, (f64)column);
}
