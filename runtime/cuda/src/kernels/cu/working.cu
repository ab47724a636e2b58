// A device's working memory: `WORKING_BYTES` in launch.rs. All zero when a run begins; each kernel that counts in it leaves its counters at 0. The kernels of one
// device run one after the other, so no two of them use it at once.
struct Working {
    u32 n_ended;
    u32 unused;
    f64 sums[1023];
    // Of columns: blocks of each strip that have ended, and what each block has added up.
    u32 n_parts[264];
    f64 parts[264 * 128];
};
