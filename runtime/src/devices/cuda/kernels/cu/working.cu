// A device's working memory: `WORKING_BYTES` in launch.rs. All zero when a run begins; each kernel that uses it leaves `n_ended` at 0. The kernels of one
// device run one after the other, so no two of them use it at once.
struct Working {
    u32 n_ended;
    u32 unused;
    f64 sums[1023];
};
