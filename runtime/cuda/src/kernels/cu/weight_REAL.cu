// e^(x - top); a hidden number weighs nothing, even beside others that are hidden.
__device__ __forceinline__ REAL weight_REAL(REAL x, REAL top) { return x == LOWEST ? 0 : exp_REAL(x - top); }
