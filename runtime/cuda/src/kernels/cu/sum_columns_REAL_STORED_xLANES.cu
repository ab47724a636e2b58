// out[i, j] (+)= sum over r of x[i, r, j]. A block has some columns j of one i, and some rows r.
extern "C" __global__ void __launch_bounds__(256, 2)
sum_columns_REAL_STORED_xLANES(const STORED* x, REAL* out, Working* working, u64 reduced, u64 inner, u64 n_strips, u32 accumulate) {
    u64 outer = blockIdx.x / n_strips;
    x += outer * reduced * inner;
    auto term = [=](REAL (&own)[4], u64 row, u64 column) { load_four<LANES>(own, x + row * inner, column, inner, (REAL)0); };
    add_columns_REAL(term, out + outer * inner, working, reduced, inner, blockIdx.x % n_strips, accumulate);
}
