// What the optimizer is given anew for each step: `StepNumbers` in step.rs.
struct StepNumbers {
    f64 rate;
    f64 keep;
    f64 corrected_rate;
    f64 root;
};

// What gradients are multiplied with so that their norm is `most` or less: `clip_scale` in the crate `pipe-ir`. 1 where they are not clipped.
__device__ __forceinline__ f64 clip_scale(const f64* squares, f64 most) {
    if (!squares) return 1;
    f64 scale = most / add_f64(sqrt_f64(*squares), 1e-6);
    return scale > 1 ? 1 : scale;
}
