// What CUDA C has beside C++, for kernels that run on fibers (blocks.h): only what our kernels use.
#pragma once

#include "blocks.h"
#include <cmath>

#define PIPEC_EMULATED 1

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// All in one section, so that it can be made NaN before each block.
#define __shared__ static __attribute__((section("pipec_shared")))

#define __syncthreads() emulator::barrier(__LINE__)
#define __syncthreads_or(vote) (emulator::count(vote, __LINE__) != 0)
#define __shfl_xor_sync(lanes, value, mask) emulator::other_lane(lanes, value, mask, __LINE__)
#define __ballot_sync(lanes, vote) emulator::ballot(lanes, vote, __LINE__)

namespace emulator {

// The line of the barrier that threads do not wait at; 0 for none.
inline unsigned left_out = 0;

inline void barrier(unsigned line) {
    if (line != left_out) block_barrier(line);
}

inline void all_lanes(unsigned lanes, int line) {
    if (lanes != ~0u) fail("an exchange is for all lanes of a warp", line);
}

template <class T>
T other_lane(unsigned lanes, T value, unsigned mask, int line) {
    all_lanes(lanes, line);
    Shown own = {};
    std::memcpy(own.words, &value, sizeof(T));
    const Shown* all = exchange(own, line);
    std::memcpy(&value, all[current % WARP ^ mask].words, sizeof(T));
    return value;
}

inline unsigned ballot(unsigned lanes, int vote, int line) {
    all_lanes(lanes, line);
    const Shown* all = exchange(Shown{{vote != 0}}, line);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < WARP; lane++) bits |= all[lane].words[0] << lane;
    return bits;
}

}  // namespace emulator

static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline void __threadfence() {}

// Blocks come one after the other, and threads wait at barriers only: every read and write is whole.
template <class T>
T atomicCAS(T* at, T expected, T value) {
    T before = *at;
    if (before == expected) *at = value;
    return before;
}

static inline unsigned atomicAdd(unsigned* at, unsigned value) {
    unsigned before = *at;
    *at += value;
    return before;
}

// Rounded each for itself, because nothing here is contracted.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }

static inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

static inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

extern "C" __attribute__((visibility("default"))) void emulate_blocks(const uint64_t* places, uint64_t count) {
    emulator::sampled = places;
    emulator::n_sampled = count;
}

// For tests of tests.
extern "C" __attribute__((visibility("default"))) void emulate_leave_out(unsigned line) { emulator::left_out = line; }

#include "mma.h"
