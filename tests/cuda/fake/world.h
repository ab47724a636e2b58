// What all parts of the fake driver share: settings, the log of calls, complaints, random numbers.
//
// | variable | meaning |
// |---|---|
// | PIPEC_FAKE_DEVICES | number of GPUs; 1 if not set |
// | PIPEC_FAKE_MEMORY | bytes of each GPU; 8 GiB if not set |
// | PIPEC_FAKE_PEERS | 0: GPUs do not reach each other's memory; first: GPU 0 reaches all, and the others reach GPU 0 |
// | PIPEC_FAKE_CAPTURE | of how many GPUs streams can be captured together; all if not set |
// | PIPEC_FAKE_SEED | of the order in which streams work |
// | PIPEC_FAKE_VERSION | of CUDA, as the driver says it; 13000 if not set |
// | PIPEC_FAKE_FAILS | a call that answers an error: cuMemcpyDtoH_v2, cuModuleLoadData, cuGraphInstantiateWithFlags, cuGraphLaunch or cublasLtCreate |
// | PIPEC_FAKE_ENDS | RANK:CALL:n:HOW: at its n-th call of this name a rank is KILLed or STOPped, or the call is REFUSED (by those of NCCL that join) |
// | PIPEC_FAKE_ILLEGAL | NAME:n: of the kernels whose names begin with NAME the n-th uses an illegal address; every later call says so |
// | PIPEC_FAKE_LOG | a file for the names of all calls, one a line |
// | PIPEC_FAKE_LINKS | a file for the bytes between GPUs, a line for each copy, or kernel and GPU: the GPU that moves them, from, to, how many |
#pragma once

#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

// Those of cuda.h that are needed here.
enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
};

namespace fake {

inline std::recursive_mutex lock;

inline uint64_t setting(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Says what a program did wrong. Tests look for these lines, so what the program makes of the result does not matter.
__attribute__((format(printf, 2, 3))) inline Result complain(Result result, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fprintf(stderr, "fake cuda: ");
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    return result;
}

// Whether a call shall answer an error, as those of a GPU that was lost.
inline bool fails(const char* call) {
    const char* name = std::getenv("PIPEC_FAKE_FAILS");
    return name && std::strcmp(name, call) == 0;
}

// Which of several processes this one is, as launchers say it.
inline const char* rank() {
    for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"})
        if (const char* found = std::getenv(name)) return found;
    return "";
}

// Whether this call is one that is to be refused; or the process ends here.
inline bool is_refused(const char* call) {
    static const char* ends = std::getenv("PIPEC_FAKE_ENDS");
    static std::string own = std::string(rank()) + ":";
    static uint64_t count = 0;
    if (!ends || std::strncmp(ends, own.c_str(), own.size()) != 0) return false;
    std::string rest = ends + own.size(), begins = std::string(call) + ":";
    if (rest.compare(0, begins.size(), begins) != 0) return false;
    begins += std::to_string(++count) + ":";
    if (rest.compare(0, begins.size(), begins) != 0) return false;
    std::string how = rest.substr(begins.size());
    if (how != "REFUSED") raise(how == "STOP" ? SIGSTOP : SIGKILL);
    return how == "REFUSED";
}

// A line of the log. Whether the call is to be refused.
inline bool note(const char* call) {
    static std::FILE* file = std::getenv("PIPEC_FAKE_LOG") ? std::fopen(std::getenv("PIPEC_FAKE_LOG"), "a") : nullptr;
    if (file) {
        std::fprintf(file, "%s\n", call);
        std::fflush(file);
    }
    return is_refused(call);
}

// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
inline uint64_t random_below(uint64_t bound) {
    static uint64_t state = setting("PIPEC_FAKE_SEED", 1);
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (z ^ (z >> 31)) % bound;
}

constexpr int MOST_GPUS = 16;

// Notes bytes that a GPU moves from one to another.
inline void note_moved(int mover, int from, int to, uint64_t bytes) {
    static std::FILE* file = std::getenv("PIPEC_FAKE_LINKS") ? std::fopen(std::getenv("PIPEC_FAKE_LINKS"), "a") : nullptr;
    if (!file || from == to || bytes == 0) return;
    std::fprintf(file, "%d %d %d %llu\n", mover, from, to, static_cast<unsigned long long>(bytes));
    std::fflush(file);
}

struct Gpu {
    int ordinal;
    int retained = 0;
    uint64_t used = 0;
    bool reaches[MOST_GPUS] = {};
};

inline Gpu gpus[MOST_GPUS];
inline bool started = false;
// The context that is current. A context is a GPU: each has its primary one only.
inline thread_local Gpu* current = nullptr;

// The GPUs that CUDA_VISIBLE_DEVICES leaves, by their numbers on the machine, or all.
inline std::vector<int> visible() {
    int all = int(setting("PIPEC_FAKE_DEVICES", 1));
    std::vector<int> found;
    const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
    for (int gpu = 0; !named && gpu < all; gpu++) found.push_back(gpu);
    while (named && *named) {
        char* end;
        long gpu = std::strtol(named, &end, 10);
        // The driver stops at the first one that is not there.
        if (end == named || gpu < 0 || gpu >= all) break;
        found.push_back(int(gpu));
        named = *end ? end + 1 : end;
    }
    return found;
}

inline int n_gpus() { return int(visible().size()); }

}  // namespace fake
