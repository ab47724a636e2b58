// Memory of the fake driver: pages of this process between pages that nobody may touch, full of what is no number.
//
// Bytes between an allocation and the ends of its pages hold a pattern, which is checked when it is freed. While a
// kernel runs, it cannot access the host's memory, and that of GPUs without peer access. With PIPEC_FAKE_LINKS, the pages of
// other GPUs that a kernel accesses are counted, once for reads and once for writes.
#pragma once

#include "world.h"
#include <csignal>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {

struct Allocation {
    char* pages;
    size_t size;
    char* start;
    size_t bytes;
    // None: memory of the host.
    Gpu* gpu;
};

inline std::map<char*, Allocation> allocations;
inline const char* running = nullptr;

constexpr size_t PAGE = 4096, ALIGNMENT = 256;
constexpr unsigned char PATTERN = 0xC3;

// Pages of other GPUs that the running kernel has read, and written: by GPU.
struct Touched {
    const Gpu* by = nullptr;
    // Whether a page was written, too.
    std::map<char*, bool> pages;
    uint64_t read[MOST_GPUS] = {}, written[MOST_GPUS] = {};
};

inline Touched* touched = nullptr;

// Opens a page to a kernel that reaches it; whether it does.
inline bool opens(char* at) {
    if (!touched) return false;
    for (auto& [start, own] : allocations) {
        if (at < own.pages || at >= own.pages + own.size || !own.gpu || !touched->by->reaches[own.gpu->ordinal]) continue;
        char* page = own.pages + size_t(at - own.pages) / PAGE * PAGE;
        auto [known, is_new] = touched->pages.emplace(page, false);
        if (!is_new && known->second) return false;
        known->second = !is_new;
        (is_new ? touched->read : touched->written)[own.gpu->ordinal] += PAGE;
        return mprotect(page, PAGE, is_new ? PROT_READ : PROT_READ | PROT_WRITE) == 0;
    }
    return false;
}

// What a kernel was not allowed to touch ends the process.
inline void caught(int, siginfo_t* info, void*) {
    if (opens(static_cast<char*>(info->si_addr))) return;
    char text[256];
    int length = std::snprintf(text, sizeof text, "fake cuda: %s touches %p, which it does not reach\n", running ? running : "the host", info->si_addr);
    if (write(2, text, size_t(length)) < 0) _exit(135);
    _exit(134);
}

inline void catch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = caught;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

inline void* allocate(size_t bytes, Gpu* gpu) {
    size_t size = (bytes + ALIGNMENT + PAGE - 1) / PAGE * PAGE;
    void* all = mmap(nullptr, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    char* pages = static_cast<char*>(all) + PAGE;
    if (mprotect(pages, size, PROT_READ | PROT_WRITE) != 0) {
        munmap(all, size + 2 * PAGE);
        return nullptr;
    }
    // As near to the end of the pages as its alignment lets it be.
    char* start = pages + (size - bytes) / ALIGNMENT * ALIGNMENT;
    std::memset(pages, PATTERN, size);
    std::memset(start, 0xFF, bytes);
    allocations[start] = {pages, size, start, bytes, gpu};
    return start;
}

// Whether it was allocated there, and nothing was written beside it.
inline Result release(char* start, bool of_host) {
    auto found = allocations.find(start);
    if (found == allocations.end() || (found->second.gpu == nullptr) != of_host) return complain(INVALID_VALUE, "%p is freed, but was not allocated", static_cast<void*>(start));
    Allocation own = found->second;
    allocations.erase(found);
    if (own.gpu) own.gpu->used -= own.bytes;
    bool is_whole = true;
    for (char* at = own.pages; at < own.start; at++) is_whole &= static_cast<unsigned char>(*at) == PATTERN;
    for (char* at = own.start + own.bytes; at < own.pages + own.size; at++) is_whole &= static_cast<unsigned char>(*at) == PATTERN;
    munmap(own.pages - PAGE, own.size + 2 * PAGE);
    return is_whole ? SUCCESS : complain(INVALID_VALUE, "something wrote beside an allocation of %zu bytes", own.bytes);
}

// The allocation that has all of these bytes.
inline const Allocation* holder(const void* start, size_t bytes) {
    char* at = static_cast<char*>(const_cast<void*>(start));
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return nullptr;
    const Allocation& own = std::prev(after)->second;
    return at + bytes <= own.start + own.bytes ? &own : nullptr;
}

// Lets nobody touch what kernels of a GPU do not reach, as long as it lives, and counts what they touch of others.
class Wall {
  public:
    explicit Wall(const Gpu* gpu) : gpu(gpu), counts(std::getenv("PIPEC_FAKE_LINKS") != nullptr) {
        own.by = gpu;
        if (counts) touched = &own;
        set(PROT_NONE);
    }
    ~Wall() {
        set(PROT_READ | PROT_WRITE);
        touched = nullptr;
        for (int other = 0; other < MOST_GPUS; other++) {
            note_moved(gpu->ordinal, other, gpu->ordinal, own.read[other]);
            note_moved(gpu->ordinal, gpu->ordinal, other, own.written[other]);
        }
    }

  private:
    void set(int protection) const {
        for (auto& [start, allocation] : allocations) {
            bool reaches = allocation.gpu && gpu->reaches[allocation.gpu->ordinal];
            if (allocation.gpu != gpu && (counts || !reaches)) mprotect(allocation.pages, allocation.size, protection);
        }
    }
    const Gpu* gpu;
    bool counts;
    Touched own;
};

}  // namespace fake
