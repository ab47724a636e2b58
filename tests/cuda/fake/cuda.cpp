// A library with the interface of the CUDA driver, as far as pipec calls it: GPUs whose memory is that of this process, and whose kernels are those
// of the emulator. It is strict: what the real driver would let pass, or only punish now and then, is a line on standard error here.

#include "streams.h"
#include <dlfcn.h>

using namespace fake;

namespace {

struct Module {
    Gpu* gpu;
    void* library;
};

struct Function {
    Module* module;
    std::string name;
    void (*run)(const unsigned*, const unsigned*, unsigned, void**);
    const unsigned* sizes;
    // Whether its code is on the GPU: a function comes there when it is first launched, unless that was asked for.
    bool is_loaded = false;
    // Bytes of dynamic shared memory that a launch may ask for.
    unsigned most_shared = 48 << 10;
};

// What a device of compute capability 9.0 has, and what all have.
constexpr int MAX_DYNAMIC_SHARED = 8, GREATEST_PRIORITY = -5;
constexpr unsigned long long USE_NODE_PRIORITY = 8;
// A graph of more nodes takes so long to make, and so much memory, that nobody should.
constexpr size_t MOST_NODES = 100000;
constexpr unsigned MOST_SHARED = 227 << 10, MOST_PARAMETERS = 4096, MOST_THREADS = 1024, MOST_DEEP = 64, MOST_HIGH = 65535, MOST_WIDE = 0x7fffffff;

std::set<Module*> modules;
// Whether a stream has a priority of its own.
bool has_priorities = false;
std::set<Function*> functions;

// The first word of every call: its name in the log, and the lock.
struct Call {
    explicit Call(const char* name) : guard(lock), name(name) { note(name); }
    std::lock_guard<std::recursive_mutex> guard;
    const char* name;

    Result not_in_capture() const {
        if (captured.empty()) return SUCCESS;
        for (Stream* stream : captured) stream->graph->is_broken = true;
        return complain(STREAM_CAPTURE_UNSUPPORTED, "%s is called while streams are captured", name);
    }
    // Whether work can be given to a stream now.
    Result stream(Stream* stream) const {
        if (!streams.count(stream)) return complain(INVALID_HANDLE, "%s: no such stream", name);
        if (stream->gpu != current) return complain(INVALID_CONTEXT, "%s: the stream is one of another context", name);
        return has_failed ? ILLEGAL_ADDRESS : SUCCESS;
    }
    Result event(Event* event) const { return events.count(event) ? SUCCESS : complain(INVALID_HANDLE, "%s: no such event", name); }
    // Whether bytes are inside an allocation of a GPU, or of the host.
    Result bytes(const void* start, size_t bytes, const Gpu* gpu) const {
        if (bytes == 0) return complain(INVALID_VALUE, "%s: no bytes at all, for which a graph has no node", name);
        const Allocation* own = holder(start, bytes);
        if (!own) return complain(INVALID_VALUE, "%s: %zu bytes at %p are not inside an allocation", name, bytes, start);
        if (own->gpu != gpu) return complain(INVALID_VALUE, "%s: %p is memory of another place", name, start);
        return SUCCESS;
    }
};

#define CHECK(what) \
    if (Result result = (what)) return result

Result work(Call& call, Stream* stream, std::function<void()> run) {
    CHECK(call.stream(stream));
    Operation operation;
    operation.run = [run = std::move(run)] { return run(), 1; };
    return enqueue(stream, std::move(operation));
}

// Whether a kernel is the one that is to do this.
bool uses_an_illegal_address(const std::string& name) {
    static const char* which = std::getenv("PIPEC_FAKE_ILLEGAL");
    static uint64_t count = 0;
    const char* number = which ? std::strchr(which, ':') : nullptr;
    if (!number || name.compare(0, size_t(number - which), which, size_t(number - which)) != 0) return false;
    return ++count == std::strtoull(number + 1, nullptr, 10);
}

Result copy(Call& call, Stream* stream, void* to, const void* from, size_t bytes) {
    return work(call, stream, [=] { std::memmove(to, from, bytes); });
}

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

Result record(Call& call, Event* event, Stream* stream) {
    CHECK(call.event(event));
    CHECK(call.stream(stream));
    if (event->gpu != stream->gpu) return complain(INVALID_HANDLE, "%s: event and stream are of different contexts", call.name);
    Operation operation;
    operation.kind = Kind::Record;
    operation.point = event->last = std::make_shared<Point>();
    return enqueue(stream, std::move(operation));
}

Result elapsed(const Call& call, float* millis, Event* from, Event* to) {
    CHECK(call.event(from));
    CHECK(call.event(to));
    if (from->gpu != to->gpu) return complain(INVALID_HANDLE, "a time between events of different contexts");
    if (!from->is_timed || !to->is_timed) return complain(INVALID_HANDLE, "a time between events that know none");
    if (!from->last || !to->last) return complain(INVALID_HANDLE, "a time between events that were never recorded");
    if (from->last->graph || to->last->graph) return complain(INVALID_VALUE, "a time between events of which a graph knows only the order");
    if (!from->last->is_over || !to->last->is_over) return NOT_READY;
    return *millis = float(double(int64_t(to->last->nanos - from->last->nanos)) * 1e-6), SUCCESS;
}

// At an exit the driver takes down what is still in use, and so what other threads may be inside of.
struct Exit {
    ~Exit() {
        for (Stream* stream : streams)
            if (stream->gpu && stream != &defaults[stream->gpu->ordinal]) {
                complain(SUCCESS, "a process exits while streams are in use");
                return;
            }
    }
} at_exit;

}  // namespace

extern "C" {

Result cuInit(unsigned) {
    Call call("cuInit");
    if (n_gpus() == 0) return NO_DEVICE;
    if (!started) catch_faults();
    started = true;
    for (int ordinal = 0; ordinal < MOST_GPUS; ordinal++) {
        gpus[ordinal].ordinal = ordinal;
        defaults[ordinal].gpu = &gpus[ordinal];
        streams.insert(&defaults[ordinal]);
    }
    return SUCCESS;
}

Result cuDriverGetVersion(int* version) { return *version = int(setting("PIPEC_FAKE_VERSION", 13000)), SUCCESS; }

Result cuDeviceGetCount(int* count) {
    Call call("cuDeviceGetCount");
    if (!started) return complain(NOT_INITIALIZED, "cuInit was not called");
    return *count = n_gpus(), SUCCESS;
}

Result cuDeviceGet(int* device, int ordinal) {
    Call call("cuDeviceGet");
    if (ordinal < 0 || ordinal >= n_gpus()) return complain(INVALID_DEVICE, "there is no GPU %d", ordinal);
    return *device = ordinal, SUCCESS;
}

Result cuDeviceGetName(char* name, int size, int device) { return std::snprintf(name, size_t(size), "Fake GPU %d", device), SUCCESS; }

Result cuDeviceGetUuid_v2(char* uuid, int device) {
    Call call("cuDeviceGetUuid_v2");
    std::memset(uuid, 0, 16);
    return uuid[15] = char(visible()[size_t(device)]), SUCCESS;
}

Result cuDeviceGetAttribute(int* number, int attribute, int) {
    Call call("cuDeviceGetAttribute");
    switch (attribute) {
        case 75: return *number = 9, SUCCESS;
        case 76: return *number = 0, SUCCESS;
    }
    return complain(INVALID_VALUE, "the fake knows no attribute %d", attribute);
}

Result cuDevicePrimaryCtxRetain(Gpu** context, int device) {
    Call call("cuDevicePrimaryCtxRetain");
    gpus[device].retained++;
    return *context = &gpus[device], SUCCESS;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
    Call call("cuDevicePrimaryCtxRelease_v2");
    if (gpus[device].retained-- == 0) return complain(INVALID_CONTEXT, "a context is released more often than retained");
    return SUCCESS;
}

Result cuCtxSetCurrent(Gpu* context) {
    Call call("cuCtxSetCurrent");
    if (context && context->retained == 0) return complain(INVALID_CONTEXT, "a context is used that was released");
    return current = context, SUCCESS;
}

Result cuCtxSynchronize() {
    Call call("cuCtxSynchronize");
    CHECK(call.not_in_capture());
    if (!current) return complain(INVALID_CONTEXT, "no context is current");
    Gpu* gpu = current;
    return work_until([gpu] {
        for (Stream* stream : streams)
            if (stream->gpu == gpu && !is_idle(*stream)) return false;
        return true;
    });
}

// Whether a GPU reaches the memory of another one.
bool reaches(int from, int to) {
    const char* peers = std::getenv("PIPEC_FAKE_PEERS");
    if (peers && std::strcmp(peers, "first") == 0) return from == 0 || to == 0;
    return setting("PIPEC_FAKE_PEERS", 1) != 0;
}

Result cuDeviceCanAccessPeer(int* possible, int from, int to) { return *possible = int(reaches(from, to)), SUCCESS; }

Result cuCtxEnablePeerAccess(Gpu* peer, unsigned) {
    Call call("cuCtxEnablePeerAccess");
    if (!reaches(current->ordinal, peer->ordinal)) return PEER_ACCESS_UNSUPPORTED;
    if (current->reaches[peer->ordinal]) return PEER_ACCESS_ALREADY_ENABLED;
    return current->reaches[peer->ordinal] = true, SUCCESS;
}

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
    Call call("cuMemGetInfo_v2");
    *total = setting("PIPEC_FAKE_MEMORY", uint64_t(8) << 30);
    return *free = *total - current->used, SUCCESS;
}

Result cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    Call call("cuMemAlloc_v2");
    CHECK(call.not_in_capture());
    if (!current) return complain(INVALID_CONTEXT, "no context is current");
    if (bytes == 0) return complain(INVALID_VALUE, "an allocation of no bytes");
    if (current->used + bytes > setting("PIPEC_FAKE_MEMORY", uint64_t(8) << 30)) return OUT_OF_MEMORY;
    void* start = allocate(bytes, current);
    if (!start) return OUT_OF_MEMORY;
    current->used += bytes;
    return *address = reinterpret_cast<uint64_t>(start), SUCCESS;
}

Result cuMemFree_v2(uint64_t address) {
    Call call("cuMemFree_v2");
    if (!all_idle()) complain(SUCCESS, "memory is freed while streams work");
    return release(static_cast<char*>(at(address)), false);
}

Result cuMemHostAlloc(void** start, size_t bytes, unsigned) {
    Call call("cuMemHostAlloc");
    CHECK(call.not_in_capture());
    *start = allocate(bytes, nullptr);
    return *start ? SUCCESS : OUT_OF_MEMORY;
}

Result cuMemFreeHost(void* start) {
    Call call("cuMemFreeHost");
    if (!all_idle()) complain(SUCCESS, "memory is freed while streams work");
    return release(static_cast<char*>(start), true);
}

Result cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
    Call call("cuMemcpyHtoD_v2");
    CHECK(call.not_in_capture());
    CHECK(call.bytes(at(to), bytes, current));
    // When it returns, the bytes have left `from`. That they are there is said by the default stream.
    std::vector<char> staged(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    return work(call, &defaults[current->ordinal], [=] { std::memcpy(at(to), staged.data(), bytes); });
}

Result cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
    Call call("cuMemcpyDtoH_v2");
    if (fails(call.name)) return LAUNCH_FAILED;
    CHECK(call.not_in_capture());
    CHECK(call.bytes(at(from), bytes, current));
    Stream* own = &defaults[current->ordinal];
    CHECK(work_until([own] { return is_idle(*own); }));
    return std::memcpy(to, at(from), bytes), SUCCESS;
}

Result cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream* stream) {
    Call call("cuMemcpyHtoDAsync_v2");
    CHECK(call.bytes(at(to), bytes, current));
    CHECK(call.bytes(from, bytes, nullptr));
    return copy(call, stream, at(to), from, bytes);
}

Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream* stream) {
    Call call("cuMemcpyDtoHAsync_v2");
    CHECK(call.bytes(to, bytes, nullptr));
    CHECK(call.bytes(at(from), bytes, current));
    return copy(call, stream, to, at(from), bytes);
}

Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
    Call call("cuMemcpyDtoDAsync_v2");
    CHECK(call.bytes(at(to), bytes, current));
    CHECK(call.bytes(at(from), bytes, current));
    return copy(call, stream, at(to), at(from), bytes);
}

// By addresses alone. Between GPUs it is direct: each reaches the memory of the other, and that of the stream reaches both.
Result cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
    Call call("cuMemcpyAsync");
    CHECK(call.stream(stream));
    const Allocation *target = holder(at(to), bytes), *source = holder(at(from), bytes);
    if (!target || !source || !target->gpu || !source->gpu) return complain(INVALID_VALUE, "%s: bytes are not inside memory of GPUs", call.name);
    const Gpu* all[] = {stream->gpu, target->gpu, source->gpu};
    for (const Gpu* one : all)
        for (const Gpu* other : all)
            if (one != other && !one->reaches[other->ordinal]) return complain(INVALID_VALUE, "%s: GPU %d does not reach GPU %d", call.name, one->ordinal, other->ordinal);
    int mover = stream->gpu->ordinal, here = source->gpu->ordinal, there = target->gpu->ordinal;
    return work(call, stream, [=] {
        std::memmove(at(to), at(from), bytes);
        note_moved(mover, here, there, bytes);
    });
}

Result cuMemcpyPeerAsync(uint64_t to, Gpu* there, uint64_t from, Gpu* here, size_t bytes, Stream* stream) {
    Call call("cuMemcpyPeerAsync");
    if (captured.count(stream)) CHECK(call.not_in_capture());
    CHECK(call.bytes(at(to), bytes, there));
    CHECK(call.bytes(at(from), bytes, here));
    return copy(call, stream, at(to), at(from), bytes);
}

Result cuMemsetD32Async(uint64_t to, unsigned word, size_t count, Stream* stream) {
    Call call("cuMemsetD32Async");
    if (to % 4 != 0) return complain(INVALID_VALUE, "words at %p are not aligned", at(to));
    CHECK(call.bytes(at(to), 4 * count, current));
    return work(call, stream, [=] { std::fill_n(static_cast<unsigned*>(at(to)), count, word); });
}

// Lower numbers come first.
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    Call call("cuCtxGetStreamPriorityRange");
    if (!current) return complain(INVALID_CONTEXT, "no context is current");
    return *least = 0, *greatest = GREATEST_PRIORITY, SUCCESS;
}

Result cuStreamCreateWithPriority(Stream** stream, unsigned flags, int priority) {
    Call call(priority == GREATEST_PRIORITY ? "cuStreamCreateWithPriority: greatest" : "cuStreamCreateWithPriority");
    CHECK(call.not_in_capture());
    if (flags != 1) return complain(INVALID_VALUE, "a stream that waits for the default one");
    if (priority > 0 || priority < GREATEST_PRIORITY) return complain(INVALID_VALUE, "a priority of %d, which the real one would change without a word", priority);
    has_priorities |= priority != 0;
    *stream = *streams.insert(new Stream).first;
    (*stream)->gpu = current;
    return SUCCESS;
}

Result cuStreamCreate(Stream** stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

Result cuStreamDestroy_v2(Stream* stream) {
    Call call("cuStreamDestroy_v2");
    CHECK(call.stream(stream));
    if (!is_idle(*stream)) complain(SUCCESS, "a stream is destroyed while it works");
    streams.erase(stream);
    return delete stream, SUCCESS;
}

Result cuStreamSynchronize(Stream* stream) {
    Call call("cuStreamSynchronize");
    CHECK(call.not_in_capture());
    if (!stream && current) stream = &defaults[current->ordinal];
    CHECK(call.stream(stream));
    return work_until([stream] { return is_idle(*stream); });
}

Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
    Call call("cuStreamWaitEvent");
    CHECK(call.stream(stream));
    CHECK(call.event(event));
    if (!event->last) return complain(INVALID_VALUE, "a stream waits for an event that was never recorded");
    Graph* graph = event->last->graph;
    if (graph && graphs.count(graph)) return complain(STREAM_CAPTURE_ISOLATION, "a stream waits for an event of a capture that has ended");
    if (stream->graph && stream->graph != graph) return complain(STREAM_CAPTURE_ISOLATION, "a captured stream waits for an event from outside");
    if (graph && !stream->graph) {
        if (!can_join(stream->gpu)) return graph->is_broken = true, STREAM_CAPTURE_UNSUPPORTED;
        stream->graph = graph;
        stream->number = int(captured.size());
        stream->after = {event->last->node};
        captured.insert(stream);
    }
    Operation operation;
    operation.kind = Kind::Wait;
    operation.point = event->last;
    if (graph) stream->after.push_back(event->last->node);
    return enqueue(stream, std::move(operation));
}

Result cuEventCreate(Event** event, unsigned flags) {
    Call call("cuEventCreate");
    return *event = *events.insert(new Event{current, (flags & 2) == 0, nullptr}).first, SUCCESS;
}

Result cuEventDestroy_v2(Event* event) {
    Call call("cuEventDestroy_v2");
    CHECK(call.event(event));
    if (!all_idle()) complain(SUCCESS, "an event is destroyed while streams work");
    events.erase(event);
    return delete event, SUCCESS;
}

Result cuEventRecord(Event* event, Stream* stream) {
    Call call("cuEventRecord");
    return record(call, event, stream);
}

Result cuEventRecordWithFlags(Event* event, Stream* stream, unsigned flags) {
    Call call("cuEventRecordWithFlags");
    if (flags == 0) return record(call, event, stream);
    CHECK(call.event(event));
    CHECK(call.stream(stream));
    if (!stream->graph) return complain(INVALID_VALUE, "an external event is recorded outside of a capture");
    Operation operation;
    operation.kind = Kind::Mark;
    operation.event = event;
    return enqueue(stream, std::move(operation));
}

Result cuEventQuery(Event* event) {
    Call call("cuEventQuery");
    CHECK(call.event(event));
    return !event->last || event->last->is_over ? SUCCESS : NOT_READY;
}

// Drivers before CUDA 12.8 have the first version alone.
Result cuEventElapsedTime(float* millis, Event* from, Event* to) {
    Call call("cuEventElapsedTime");
    return elapsed(call, millis, from, to);
}

Result cuEventElapsedTime_v2(float* millis, Event* from, Event* to) {
    Call call("cuEventElapsedTime_v2");
    return elapsed(call, millis, from, to);
}

Result cuModuleLoadData(Module** module, const void* image) {
    Call call("cuModuleLoadData");
    if (fails(call.name)) return INVALID_IMAGE;
    CHECK(call.not_in_capture());
    if (!current) return complain(INVALID_CONTEXT, "no context is current");
    // How long a file in ELF format is: its section headers come last.
    const unsigned char* bytes = static_cast<const unsigned char*>(image);
    if (std::memcmp(bytes, "\x7f" "ELF", 4) != 0) return complain(INVALID_IMAGE, "the image is none");
    uint64_t offset;
    uint16_t size, count;
    std::memcpy(&offset, bytes + 0x28, 8);
    std::memcpy(&size, bytes + 0x3A, 2);
    std::memcpy(&count, bytes + 0x3C, 2);
    std::string path = "/tmp/pipec-fake-XXXXXX";
    int file = mkstemp(path.data());
    size_t all = offset + size_t(size) * count;
    bool is_written = file >= 0 && write(file, image, all) == ssize_t(all);
    if (file >= 0) close(file);
    void* library = is_written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path.c_str());
    if (!library) return complain(INVALID_IMAGE, "the image cannot be loaded: %s", dlerror());
    return *module = *modules.insert(new Module{current, library}).first, SUCCESS;
}

Result cuModuleUnload(Module* module) {
    Call call("cuModuleUnload");
    if (!all_idle()) complain(SUCCESS, "a module is unloaded while streams work");
    if (!modules.erase(module)) return complain(INVALID_HANDLE, "no such module");
    if (module->gpu != current) complain(INVALID_CONTEXT, "a module is unloaded in another context");
    for (auto at = functions.begin(); at != functions.end();) at = (*at)->module == module ? (delete *at, functions.erase(at)) : std::next(at);
    dlclose(module->library);
    return delete module, SUCCESS;
}

Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
    Call call("cuModuleGetFunction");
    if (!modules.count(module)) return complain(INVALID_HANDLE, "no such module");
    std::string symbol = std::string("emulate_") + name;
    void* run = dlsym(module->library, symbol.c_str());
    void* sizes = dlsym(module->library, (symbol + "_sizes").c_str());
    if (!run || !sizes) return complain(NOT_FOUND, "no kernel %s", name);
    *function = new Function{module, name, reinterpret_cast<decltype(Function::run)>(run), static_cast<const unsigned*>(sizes)};
    functions.insert(*function);
    return SUCCESS;
}

Result cuFuncLoad(Function* function) {
    Call call("cuFuncLoad");
    CHECK(call.not_in_capture());
    if (!functions.count(function)) return complain(INVALID_HANDLE, "no such function");
    return function->is_loaded = true, SUCCESS;
}

Result cuFuncSetAttribute(Function* function, int attribute, int number) {
    Call call("cuFuncSetAttribute");
    if (!functions.count(function)) return complain(INVALID_HANDLE, "no such function");
    if (attribute != MAX_DYNAMIC_SHARED || number < 0 || unsigned(number) > MOST_SHARED)
        return complain(INVALID_VALUE, "kernel %s: attribute %d cannot be %d", function->name.c_str(), attribute, number);
    return function->most_shared = unsigned(number), SUCCESS;
}

Result cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned shared, Stream* stream, void** arguments, void**) {
    Call call("cuLaunchKernel");
    CHECK(call.stream(stream));
    if (!functions.count(function)) return complain(INVALID_HANDLE, "no such function");
    if (function->module->gpu != stream->gpu) return complain(INVALID_HANDLE, "kernel %s is loaded on another GPU", function->name.c_str());
    if (x == 0 || y == 0 || z == 0 || x > MOST_WIDE || y > MOST_HIGH || z > MOST_HIGH || a * b * c == 0 || a * b * c > MOST_THREADS || c > MOST_DEEP)
        return complain(INVALID_VALUE, "kernel %s: no such launch as %ux%ux%u blocks of %ux%ux%u", function->name.c_str(), x, y, z, a, b, c);
    if (shared > function->most_shared) return complain(INVALID_VALUE, "kernel %s: %u bytes of shared memory that were not allowed", function->name.c_str(), shared);
    if (stream->graph && !function->is_loaded) complain(SUCCESS, "kernel %s is loaded while it is captured", function->name.c_str());
    function->is_loaded = true;
    std::vector<std::vector<char>> values;
    size_t all = 0;
    for (const unsigned* size = function->sizes; *size; size++) {
        const char* from = static_cast<const char*>(arguments[values.size()]);
        values.emplace_back(from, from + *size);
        all = (all + *size - 1) / *size * *size + *size;
    }
    if (all > MOST_PARAMETERS) return complain(INVALID_VALUE, "kernel %s: %zu bytes of parameters", function->name.c_str(), all);
    const Gpu* gpu = stream->gpu;
    return work(call, stream, [=]() mutable {
        if (uses_an_illegal_address(function->name)) has_failed = true;
        if (has_failed) return;
        std::vector<void*> pointers;
        for (std::vector<char>& value : values) pointers.push_back(value.data());
        unsigned grid[3] = {x, y, z}, block[3] = {a, b, c};
        running = function->name.c_str();
        Wall wall(gpu);
        function->run(grid, block, shared, pointers.data());
        running = nullptr;
    });
}

Result cuLaunchHostFunc(Stream* stream, void (*run)(void*), void* data) {
    Call call("cuLaunchHostFunc");
    return work(call, stream, [=] { run(data); });
}

Result cuStreamBeginCapture_v2(Stream* stream, int) {
    Call call("cuStreamBeginCapture_v2");
    CHECK(call.stream(stream));
    if (!can_join(stream->gpu)) return NOT_SUPPORTED;
    if (!captured.empty()) return complain(STREAM_CAPTURE_UNSUPPORTED, "a capture begins inside another");
    stream->graph = new Graph;
    stream->is_origin = true;
    stream->number = 0;
    stream->after.clear();
    return captured.insert(stream), SUCCESS;
}

Result cuStreamEndCapture(Stream* stream, Graph** graph) {
    Call call("cuStreamEndCapture");
    CHECK(call.stream(stream));
    *graph = nullptr;
    if (!stream->is_origin) return complain(INVALID_VALUE, "a capture ends in a stream that did not begin it");
    Graph* made = stream->graph;
    bool whole = is_joined(*made, stream->after);
    for (Stream* each : captured) {
        each->graph = nullptr;
        each->is_origin = false;
    }
    captured.clear();
    graphs.insert(made);
    if (made->is_broken) return STREAM_CAPTURE_INVALIDATED;
    if (!whole) return complain(STREAM_CAPTURE_UNJOINED, "a captured stream is not waited for at the end");
    return *graph = made, SUCCESS;
}

// Captured graphs are kept until the end of the process: events of their captures point to them.
Result cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long flags) {
    Call call("cuGraphInstantiateWithFlags");
    CHECK(call.not_in_capture());
    if (fails(call.name)) return NOT_SUPPORTED;
    if (!graphs.count(graph)) return complain(INVALID_HANDLE, "no such graph");
    size_t nodes = 0;
    for (const Node& node : graph->nodes) nodes += node.operation.kind == Kind::Work || node.operation.kind == Kind::Mark;
    if (nodes > MOST_NODES) complain(SUCCESS, "a graph of %zu nodes is made", nodes);
    if (has_priorities && !(flags & USE_NODE_PRIORITY)) complain(SUCCESS, "a graph is made that forgets the priorities of its streams");
    return executables.insert(graph), *executable = graph, SUCCESS;
}

Result cuGraphDestroy(Graph*) {
    Call call("cuGraphDestroy");
    return SUCCESS;
}

Result cuGraphExecDestroy(Graph* graph) {
    Call call("cuGraphExecDestroy");
    if (!all_idle()) complain(SUCCESS, "a graph is destroyed while streams work");
    if (!executables.erase(graph)) return complain(INVALID_HANDLE, "no such graph");
    return SUCCESS;
}

Result cuGraphLaunch(Graph* graph, Stream* stream) {
    Call call("cuGraphLaunch");
    CHECK(call.stream(stream));
    CHECK(call.not_in_capture());
    if (fails(call.name)) return NOT_SUPPORTED;
    if (!executables.count(graph)) return complain(INVALID_HANDLE, "no such graph");
    Operation operation;
    operation.kind = Kind::Launch;
    operation.graph = graph;
    return enqueue(stream, std::move(operation));
}

// For fakes of other libraries: the context that is current, and whether a stream is captured.
const void* pipec_fake_current() { return current; }

int pipec_fake_is_captured(void* stream) {
    Call call("pipec_fake_is_captured");
    return streams.count(static_cast<Stream*>(stream)) && static_cast<Stream*>(stream)->graph != nullptr;
}

// `run(data)` is called when the stream comes to it, and again until it answers 1. Captured like anything else.
int pipec_fake_enqueue(void* stream, int (*run)(void*), void* data) {
    Call call("pipec_fake_enqueue");
    Stream* own = static_cast<Stream*>(stream);
    CHECK(call.stream(own));
    Operation operation;
    operation.run = [=] { return run(data); };
    return enqueue(own, std::move(operation));
}

Result cuStreamQuery(Stream* stream) {
    Call call("cuStreamQuery");
    CHECK(call.not_in_capture());
    CHECK(call.stream(stream));
    // Whoever asks often waits: all work goes on meanwhile.
    while (!has_failed && !is_idle(*stream) && work_once()) {}
    if (has_failed) return give_up();
    return is_idle(*stream) ? SUCCESS : NOT_READY;
}

// For the fakes of other libraries: work on a stream, which is asked again until it says 1.
int fakeWork(Stream* stream, int (*run)(void*), void* data) {
    Call call("fakeWork");
    CHECK(call.stream(stream));
    Operation operation;
    operation.run = [=] { return run(data); };
    return enqueue(stream, std::move(operation));
}

int fakeIsOnGpu(const void* start, size_t bytes) {
    Call call("fakeIsOnGpu");
    const Allocation* own = holder(start, bytes);
    return own && own->gpu && own->gpu == current;
}

// Memory of the current GPU that another library takes, or gives back; whether it is there.
int fakeHold(int64_t bytes) {
    Call call("fakeHold");
    if (!current || (bytes > 0 && current->used + uint64_t(bytes) > setting("PIPEC_FAKE_MEMORY", uint64_t(8) << 30))) return 0;
    return current->used += uint64_t(bytes), 1;
}

// The number of the current GPU on its machine.
int fakeNumber() { return current ? visible()[size_t(current->ordinal)] : -1; }

int fakeHasCurrent() { return current != nullptr; }

int fakeIsIdle() {
    Call call("fakeIsIdle");
    while (work_once()) {}
    return all_idle();
}

}  // extern "C"
