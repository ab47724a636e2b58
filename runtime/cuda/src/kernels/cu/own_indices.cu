// Indices, counted from the first of the `size` that a member has; those of other members name nothing.
extern "C" __global__ void __launch_bounds__(256)
own_indices(const i32* indices, i32* out, u64* error, u64 count, u64 size, u64 members, u64 member) {
    u64 place = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= count) return;
    i32 index = indices[place];
    bool names = names_a_row(index, size * members);
    if (!names && index != NOWHERE) note_index(error, indices, place, size * members);
    bool is_own = names && (u64)index >= member * size && (u64)index < (member + 1) * size;
    out[place] = is_own ? (i32)((u64)index - member * size) : NOWHERE;
}
