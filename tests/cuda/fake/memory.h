// Memory of the fake driver: pages of this process between pages that nobody may touch, full of what is no number.
//
// Bytes between an allocation and the ends of its pages hold a pattern, which is looked at when it is freed. While a kernel runs, the memory of
// GPUs that its own does not reach, and that of the host, cannot be touched.
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

// What a kernel was not allowed to touch ends the process.
inline void caught(int, siginfo_t* info, void*) {
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

// Lets nobody touch what kernels of a GPU do not reach, as long as it lives.
class Wall {
  public:
    explicit Wall(const Gpu* gpu) : gpu(gpu) { set(PROT_NONE); }
    ~Wall() { set(PROT_READ | PROT_WRITE); }

  private:
    void set(int protection) const {
        for (auto& [start, own] : allocations) {
            bool reaches = own.gpu == gpu || (own.gpu && gpu->reaches[own.gpu->ordinal]);
            if (!reaches) mprotect(own.pages, own.size, protection);
        }
    }
    const Gpu* gpu;
};

}  // namespace fake
