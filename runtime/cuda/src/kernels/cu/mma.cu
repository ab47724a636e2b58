// Tensor cores: instructions of one warp, from sm_80 on. How fragments lie in its lanes is in the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
// point type" and "for mma.m16n8k8". The emulator has functions of the same names.
#ifndef PIPEC_EMULATED
// Two numbers rounded to bf16, the nearest even one, the first in the low half.
__device__ __forceinline__ u32 bf16_pair(f32 low, f32 high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Rounded to 10 bits of fraction, halves away from zero.
__device__ __forceinline__ u32 tf32_of(f32 x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// d += a b, 16 rows, 8 columns, 16 deep.
__device__ __forceinline__ void mma_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b, 16 rows, 8 columns, 8 deep.
__device__ __forceinline__ void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four matrices of 8 rows of four words, two for each fragment of b: each lane gives the address of a row, at which 16 bytes lie, and has a word of each matrix,
// lane % 4 of row lane / 4.
__device__ __forceinline__ void load_rows(u32 (&b)[2][2], const u32* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}

// The same, of matrices of 8 x 8 halves of words, each turned: a lane has halves lane / 4 of rows lane % 4 * 2 and the next one.
__device__ __forceinline__ void load_columns(u32 (&b)[2][2], const u32* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}

// 2^x, or 0 if that is below 2^-126: one instruction.
__device__ __forceinline__ f32 power_of_two(f32 x) {
    f32 power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// Copies BYTES (4 or 16) to shared memory, or writes zeros if the source is not there. Complete after wait_for_copies.
template <u32 BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool is_there) {
    u32 shared = (u32)__cvta_generic_to_shared(to), bytes = is_there ? BYTES : 0;
    if (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared), "l"(from), "r"(bytes));
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" : : "r"(shared), "l"(from), "n"(BYTES), "r"(bytes));
    }
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }
#endif

// A unit of a strip as a word of a fragment: two neighbours along k, or one.
__device__ __forceinline__ u32 word_bf16(const f32 (&x)[2]) { return bf16_pair(x[0], x[1]); }
__device__ __forceinline__ u32 word_bf16(const bf16 (&x)[2]) { return (u32)x[1] << 16 | x[0]; }
__device__ __forceinline__ u32 word_tf32(const f32 (&x)[1]) { return tf32_of(x[0]); }

// The fragment of a left factor made of one of a result, eight columns in each x, two or one of them. Where words have one number, the columns of the left factor come
// in the order 0, 2, 4, 6, 1, 3, 5, 7.
__device__ __forceinline__ void left_of_bf16(u32 (&a)[4], const f32 (*x)[4]) {
#pragma unroll
    for (u32 part = 0; part < 4; part++) a[part] = bf16_pair(x[part / 2][part % 2 * 2], x[part / 2][part % 2 * 2 + 1]);
}
__device__ __forceinline__ void left_of_tf32(u32 (&a)[4], const f32 (*x)[4]) {
#pragma unroll
    for (u32 part = 0; part < 4; part++) a[part] = tf32_of(x[0][part % 2 * 2 + part / 2]);
}

// Two fragments of a right factor, eight columns each, that match: from words whose rows are those of the factor, `stride` words apart.
__device__ __forceinline__ void right_of_bf16(u32 (&b)[2][2], const u32* words, u32 stride) {
    load_columns(b, words + threadIdx.x % 16 * stride + threadIdx.x % 32 / 16 * 4);
}
__device__ __forceinline__ void right_of_tf32(u32 (&b)[2][2], const u32* words, u32 stride) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) b[i / 2][i % 2] = words[(threadIdx.x % 4 * 2 + i % 2) * stride + i / 2 * 8 + threadIdx.x % 32 / 4];
}

// Two neighbours, as store_one.
__device__ __forceinline__ void store_two(f32* to, f32 x, f32 y, u32 accumulate) {
    Two_f32 two = {{x, y}};
    if (accumulate) {
        two.at[0] += to[0];
        two.at[1] += to[1];
    }
    *(Two_f32*)to = two;
}
__device__ __forceinline__ void store_two(bf16* to, f32 x, f32 y, u32) { *(u32*)to = bf16_pair(x, y); }

// Where a word of a row is in a tile of 16 words per row. The order of the words in a row changes from row to row, so that 32 rows of one word, two rows of 16
// words, and a fragment's eight rows of four words each lie in 32 different banks.
__device__ __forceinline__ u32 word_at(u32 row, u32 word) { return row * 16 + (word ^ row / 2 % 4 * 4 ^ row / 8 % 4); }
