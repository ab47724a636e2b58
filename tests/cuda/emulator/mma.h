// Tensor cores, one warp at a time: the same functions as in kernels/cu/mma.cu, whose fragments lie as the PTX ISA says
// (Warp Level Matrix Instructions: "Matrix Fragments for mma.m16n8k16 with floating point type", and "for mma.m16n8k8").
#pragma once

// Two numbers rounded to bf16, the nearest even one, the first in the low half: cvt.rn.bf16x2.f32.
static inline unsigned bf16_pair(float low, float high) {
    auto rounded = [](float x) {
        unsigned bits = __float_as_uint(x);
        return x != x ? 0x7FFFu : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    };
    return rounded(low) | rounded(high) << 16;
}

// Rounded to 10 bits of fraction, halves away from zero: cvt.rna.tf32.f32.
static inline unsigned tf32_of(float x) {
    unsigned bits = __float_as_uint(x);
    bool is_finite = (bits >> 23 & 0xFF) != 0xFF;
    return is_finite ? (bits + 0x1000) & ~0x1FFFu : bits;
}

namespace emulator {

// What all lanes hold of a and b.
inline const Shown* fragments(const unsigned a[4], const unsigned b[2], int line) {
    return exchange(Shown{{a[0], a[1], a[2], a[3], b[0], b[1]}}, line);
}

// Element (row, k) of a and (k, column) of b, 16 of k, as bf16.
inline float a_bf16(const Shown* all, unsigned row, unsigned k) {
    unsigned lane = row % 8 * 4 + k % 8 / 2, word = row / 8 + k / 8 * 2;
    return __uint_as_float(all[lane].words[word] >> k % 2 * 16 << 16);
}

inline float b_bf16(const Shown* all, unsigned k, unsigned column) {
    unsigned lane = column * 4 + k % 8 / 2, word = 4 + k / 8;
    return __uint_as_float(all[lane].words[word] >> k % 2 * 16 << 16);
}

// The same, 8 of k, as tf32.
inline float a_tf32(const Shown* all, unsigned row, unsigned k) {
    return __uint_as_float(all[row % 8 * 4 + k % 4].words[row / 8 + k / 4 * 2]);
}

inline float b_tf32(const Shown* all, unsigned k, unsigned column) {
    return __uint_as_float(all[column * 4 + k % 4].words[4 + k / 4]);
}

// Adds to this lane's four elements of the product.
template <class A, class B>
void multiply(float d[4], const Shown* all, unsigned depth, A a, B b) {
    unsigned lane = current % WARP;
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < depth; k++) d[i] += a(all, row, k) * b(all, k, column);
    }
}

// The row of a matrix in shared memory whose address a lane gave.
inline const unsigned* row_of(const Shown* all, unsigned lane, int line) {
    const unsigned* row;
    std::memcpy(&row, all[lane].words, sizeof row);
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("rows of a matrix begin at multiples of 16 bytes", line);
    return row;
}

inline const Shown* rows(const unsigned* row, int line) {
    Shown own = {};
    std::memcpy(own.words, &row, sizeof row);
    return exchange(own, line);
}

// Pending copies of each thread.
struct Copy {
    void* to;
    const void* from;
    unsigned bytes;
};
inline std::vector<Copy> copies[MOST_THREADS];

}  // namespace emulator

// Four matrices of 8 rows of four words: ldmatrix.x4.
static inline void load_rows(unsigned b[2][2], const unsigned* row) {
    const emulator::Shown* all = emulator::rows(row, __LINE__);
    unsigned lane = emulator::current % emulator::WARP;
    for (unsigned i = 0; i < 4; i++) b[i / 2][i % 2] = emulator::row_of(all, i * 8 + lane / 4, __LINE__)[lane % 4];
}

// Four matrices of 8 x 8 halves of words, each turned: ldmatrix.x4.trans.
static inline void load_columns(unsigned b[2][2], const unsigned* row) {
    const emulator::Shown* all = emulator::rows(row, __LINE__);
    unsigned lane = emulator::current % emulator::WARP, column = lane / 4;
    for (unsigned i = 0; i < 4; i++) {
        auto half = [&](unsigned at) { return emulator::row_of(all, i * 8 + at, __LINE__)[column / 2] >> column % 2 * 16 & 0xFFFF; };
        b[i / 2][i % 2] = half(lane % 4 * 2) | half(lane % 4 * 2 + 1) << 16;
    }
}

// 2^x, or 0 if that is below 2^-126: ex2.approx.ftz.
static inline float power_of_two(float x) { return x < -126 ? 0 : exp2f(x); }

// Bytes that are copied to shared memory, or set to 0, when their thread waits for its copies: cp.async.
template <unsigned BYTES>
void copy_async(void* to, const void* from, bool is_there) {
    if (reinterpret_cast<uintptr_t>(to) % BYTES != 0 || reinterpret_cast<uintptr_t>(from) % BYTES != 0) {
        emulator::fail("what is copied begins at multiples of its size", __LINE__);
    }
    emulator::copies[emulator::current].push_back({to, is_there ? from : nullptr, BYTES});
}

static inline void wait_for_copies() {
    for (const emulator::Copy& copy : emulator::copies[emulator::current]) {
        if (copy.from) std::memcpy(copy.to, copy.from, copy.bytes);
        else std::memset(copy.to, 0, copy.bytes);
    }
    emulator::copies[emulator::current].clear();
}

// d += a b, 16 rows, 8 columns, 16 deep.
static inline void mma_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
    emulator::multiply(d, emulator::fragments(a, b, __LINE__), 16, emulator::a_bf16, emulator::b_bf16);
}

// d += a b, 16 rows, 8 columns, 8 deep.
static inline void mma_tf32(float d[4], const unsigned a[4], const unsigned b[2]) {
    emulator::multiply(d, emulator::fragments(a, b, __LINE__), 8, emulator::a_tf32, emulator::b_tf32);
}
