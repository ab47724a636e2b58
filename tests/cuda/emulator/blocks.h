// Blocks of threads on one thread of the machine: blocks one after the other, threads of a block as fibers, both in a random order.
//
// A thread runs until it ends or waits at a barrier; then another thread that can go on does, the one of highest rank among some. Ranks are new for each block:
// now all threads advance evenly, now whole warps, or single threads, fall behind as far as barriers let them. So whatever lacks a barrier reads what is not
// there yet, or not any more, for some order. Shared memory is NaN when a block begins. A barrier that not all threads reach ends the process with a message.
#pragma once

#include "fiber.h"
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

struct Place {
    unsigned x, y, z;
};

// What kernels read. They change with every switch, so nothing may take them for constant: they are visible outside of this file.
__attribute__((visibility("hidden"))) Place threadIdx, blockIdx, blockDim, gridDim;

// Where the linker puts shared memory: see `__shared__`.
extern char __start_pipec_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_pipec_shared[] __attribute__((weak, visibility("hidden")));

namespace emulator {

constexpr unsigned WARP = 32;
constexpr unsigned MOST_THREADS = 1024;
// Of so many threads the one of the highest rank goes on: those of low ranks come when hardly any other is left.
constexpr unsigned CANDIDATES = 4;
// Tops of stacks that lie a power of two apart would share a few sets of the caches of this machine.
constexpr size_t STACK = (64 << 10) + 192;

enum class State { Fresh, Ready, AtBlock, AtWarp, Ended };

struct Thread {
    State state;
    Place place;
    // What it goes on from.
    void* top;
    char* stack;
    // The line of the barrier where it waits.
    int line;
    unsigned rank;
    // Which half of the warp's buffer its next exchange uses.
    unsigned turn;
};

// What a lane shows to the others of its warp.
struct Shown {
    uint32_t words[8];
};

inline Thread threads[MOST_THREADS];
inline Shown shown[MOST_THREADS / WARP][2][WARP];
inline unsigned n_threads, current;
inline void* scheduler;
inline const char* kernel;
inline std::vector<char*> stacks;
inline void (*body)(void**);
inline void** body_arguments;
inline uint64_t seed = 1;
inline int votes[MOST_THREADS];
// The blocks that launches run, by their places in the grid, x before y before z; all of them where there is no list.
inline const uint64_t* sampled = nullptr;
inline uint64_t n_sampled = 0;

// xorshift64* (Vigna, An experimental exploration of Marsaglia's xorshift generators, scrambled, 2016).
inline unsigned random_below(unsigned bound) {
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    // Multiplied, and not divided (Lemire, Fast Random Integer Generation in an Interval, 2019).
    return unsigned((seed * 0x2545F4914F6CDD1DULL >> 32) * bound >> 32);
}

[[noreturn]] inline void fail(const char* what, int line) {
    std::fprintf(stderr, "emulated kernel %s, line %d: %s (block %u of %u, %u threads)\n", kernel, line, what, blockIdx.x, gridDim.x, n_threads);
    std::abort();
}

inline void enter() {
    body(body_arguments);
    threads[current].state = State::Ended;
    pipec_switch(&threads[current].top, scheduler);
}

// Leaves the thread until the scheduler takes it up again.
inline void wait(State state, int line) {
    Thread& thread = threads[current];
    thread.state = state;
    thread.line = line;
    pipec_switch(&thread.top, scheduler);
}

inline void block_barrier(int line) { wait(State::AtBlock, line); }
inline void warp_barrier(int line) { wait(State::AtWarp, line); }

// Shows words to the other lanes, waits until all have, and returns what they showed. The next exchange uses the other half, so one barrier is enough.
inline const Shown* exchange(const Shown& own, int line) {
    unsigned at = current, turn = threads[at].turn;
    threads[at].turn = 1 - turn;
    shown[at / WARP][turn][at % WARP] = own;
    warp_barrier(line);
    return shown[at / WARP][turn];
}

// How many threads gave something other than 0.
inline int count(int vote, int line) {
    votes[current] = vote != 0;
    block_barrier(line);
    int total = 0;
    for (unsigned at = 0; at < n_threads; at++) total += votes[at];
    block_barrier(line);
    return total;
}

inline void go_on(unsigned at) {
    Thread& thread = threads[at];
    if (thread.state == State::Fresh) {
        if (stacks.empty()) stacks.push_back(static_cast<char*>(std::malloc(STACK)));
        thread.stack = stacks.back();
        stacks.pop_back();
        thread.top = prepared(thread.stack + STACK, enter);
    }
    current = at;
    threadIdx = thread.place;
    pipec_switch(&scheduler, thread.top);
    if (thread.state == State::Ended) stacks.push_back(thread.stack);
}

// Makes the threads of a range ready, which wait at one barrier.
inline void release(unsigned from, unsigned to, std::vector<unsigned>& ready) {
    for (unsigned at = from; at < to; at++) {
        if (threads[at].line != threads[from].line) fail("threads wait at different barriers", threads[at].line);
        threads[at].state = State::Ready;
        ready.push_back(at);
    }
}

// Takes a thread that can go on: that of the highest rank among so many at random.
inline unsigned taken(std::vector<unsigned>& ready, unsigned candidates) {
    unsigned best = random_below(unsigned(ready.size()));
    for (unsigned count = 1; count < candidates; count++) {
        unsigned other = random_below(unsigned(ready.size()));
        if (threads[ready[other]].rank > threads[ready[best]].rank) best = other;
    }
    unsigned at = ready[best];
    ready[best] = ready.back();
    ready.pop_back();
    return at;
}

inline void run_block() {
    size_t shared = __stop_pipec_shared - __start_pipec_shared;
    if (shared > 0) std::memset(__start_pipec_shared, 0xFF, shared);
    static std::vector<unsigned> ready;
    ready.clear();
    unsigned at_block = 0, ended = 0, at_warp[MOST_THREADS / WARP] = {};
    // One rank for each thread, or for each warp; it matters not at all, or much.
    unsigned granule = random_below(2) == 0 ? 1 : WARP, candidates = random_below(2) == 0 ? 1 : CANDIDATES, rank = 0;
    for (unsigned at = 0; at < n_threads; at++) {
        if (at % granule == 0) rank = random_below(1u << 31);
        Place place = {at % blockDim.x, at / blockDim.x % blockDim.y, at / blockDim.x / blockDim.y};
        threads[at] = {State::Fresh, place, nullptr, nullptr, 0, rank, 0};
        ready.push_back(at);
    }
    while (!ready.empty()) {
        unsigned at = taken(ready, candidates);
        go_on(at);
        unsigned first = at / WARP * WARP;
        switch (threads[at].state) {
            case State::Ended: ended++; break;
            case State::AtBlock:
                if (++at_block == n_threads) {
                    at_block = 0;
                    release(0, n_threads, ready);
                }
                break;
            case State::AtWarp:
                if (++at_warp[at / WARP] == WARP) {
                    at_warp[at / WARP] = 0;
                    release(first, first + WARP, ready);
                }
                break;
            default: break;
        }
    }
    for (unsigned at = 0; at < n_threads && ended < n_threads; at++) {
        if (threads[at].state == State::AtBlock) fail("a barrier that some threads of the block do not reach", threads[at].line);
        if (threads[at].state == State::AtWarp) fail("an exchange that some lanes of the warp do not reach", threads[at].line);
    }
}

// All blocks of a launch, or those of the list. One launch at a time: shared memory is static.
inline void launch(const char* name, const unsigned grid[3], const unsigned block[3], void (*function)(void**), void** arguments) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> lock(one_at_a_time);
    kernel = name;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    n_threads = block[0] * block[1] * block[2];
    body = function;
    body_arguments = arguments;
    if (n_threads == 0 || n_threads > MOST_THREADS || n_threads % WARP != 0) fail("blocks are of whole warps, of 1024 threads at most", 0);
    uint64_t n_blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    if (n_blocks == 0 || grid[0] > 2147483647 || grid[1] > 65535 || grid[2] > 65535) fail("a grid has blocks, and at most 2^31 - 1 in x, 65535 in y and in z", 0);
    // A random rotation and direction: no block may count on another one before it.
    uint64_t count = sampled ? n_sampled : n_blocks, first = random_below(unsigned(count));
    bool back = random_below(2) == 1;
    for (uint64_t step = 0; step < count; step++) {
        uint64_t at = (first + (back ? count - step : step)) % count;
        if (sampled) at = sampled[at];
        if (at >= n_blocks) fail("a block that the grid has not", 0);
        blockIdx = {unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])};
        run_block();
    }
}

// A kernel's parameters, taken from where the driver's caller put them.
template <class... Parameters, size_t... At>
void call(void (*function)(Parameters...), void** arguments, std::index_sequence<At...>) {
    function(*static_cast<Parameters*>(arguments[At])...);
}

template <class... Parameters>
void call(void (*function)(Parameters...), void** arguments) {
    call(function, arguments, std::index_sequence_for<Parameters...>());
}

// Bytes of each parameter, then 0.
template <unsigned... Each>
struct Sizes {
    unsigned bytes[sizeof...(Each)];
};

template <class... Parameters>
constexpr Sizes<unsigned(sizeof(Parameters))..., 0u> sizes(void (*)(Parameters...)) {
    return {{unsigned(sizeof(Parameters))..., 0u}};
}

}  // namespace emulator
