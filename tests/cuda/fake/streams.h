// Streams of the fake driver: queues whose work is done late, and in an order that nobody may count on.
//
// Nothing is done until somebody waits. Then, of all streams whose next operation can be done, the one of the highest rank does it, until what was
// waited for is over. Ranks are random and change now and then, so that some streams run far ahead of others: whatever lacks a wait goes wrong
// under some seed (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010). A
// captured graph is a set of queues that are filled anew at each launch.
#pragma once

#include "memory.h"
#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace fake {

struct Graph;

// A point in a stream, made by one record.
struct Point {
    bool is_over = false;
    uint64_t nanos = 0;
    // Of the graph that is being captured, if any: the operation's number there.
    Graph* graph = nullptr;
    size_t node = 0;
};

struct Event {
    Gpu* gpu;
    bool is_timed;
    std::shared_ptr<Point> last;
};

enum class Kind { Work, Record, Wait, Mark, Launch };

struct Operation {
    Kind kind = Kind::Work;
    // Work: 1 when it is done, 0 to be asked again.
    std::function<int()> run;
    // Record and Wait.
    std::shared_ptr<Point> point;
    // Mark.
    Event* event = nullptr;
    // Launch.
    Graph* graph = nullptr;
};

struct Node {
    int queue;
    Operation operation;
    std::vector<size_t> after;
};

// What was captured.
struct Graph {
    std::vector<Node> nodes;
    bool is_broken = false;
};

inline uint64_t next_id = 0;
constexpr uint64_t RANKS = 1 << 20;
// Of so many operations, one gives its stream a new rank.
constexpr uint64_t CHANGE = 48;

struct Stream {
    // In the order in which they were made: the same seed gives the same order of work.
    uint64_t id = next_id++;
    uint64_t rank = random_below(RANKS);
    Gpu* gpu = nullptr;
    std::deque<Operation> queue;
    // While it is captured.
    Graph* graph = nullptr;
    bool is_origin = false;
    int number = 0;
    std::vector<size_t> after;
    // Queues of the graph that it is launching, and how many of them are left.
    std::list<Stream> parts;
};

struct Earlier {
    bool operator()(const Stream* one, const Stream* other) const { return one->id < other->id; }
};

inline std::set<Stream*, Earlier> streams;
// What copies from pageable memory are put into: none of the others waits for it. By GPU.
inline Stream defaults[MOST_GPUS];
inline std::set<Event*> events;
inline std::set<Graph*> graphs;
// What was made of a graph to be launched, and not destroyed yet.
inline std::set<Graph*> executables;
// Streams of this thread's capture.
inline std::set<Stream*, Earlier> captured;

inline uint64_t now() { return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count()); }

// Puts an operation at the end of a stream, or into the graph that captures it.
inline Result enqueue(Stream* stream, Operation operation) {
    if (!stream->graph) {
        stream->queue.push_back(std::move(operation));
        return SUCCESS;
    }
    Graph* graph = stream->graph;
    if (operation.point && operation.kind == Kind::Record) {
        operation.point->graph = graph;
        operation.point->node = graph->nodes.size();
    }
    graph->nodes.push_back({stream->number, std::move(operation), stream->after});
    stream->after = {graph->nodes.size() - 1};
    return SUCCESS;
}

// Whether a stream of this GPU can join the capture, which has those of others.
inline bool can_join(const Gpu* gpu) {
    std::set<const Gpu*> all = {gpu};
    for (Stream* stream : captured) all.insert(stream->gpu);
    return all.size() <= setting("PIPEC_FAKE_CAPTURE", MOST_GPUS);
}

inline void fill_queues(Stream& stream, const Graph& graph) {
    std::map<int, Stream*> queues;
    std::map<const Point*, std::shared_ptr<Point>> points;
    for (const Node& node : graph.nodes) {
        Stream*& queue = queues[node.queue];
        if (!queue) {
            stream.parts.emplace_back();
            queue = &stream.parts.back();
            queue->gpu = stream.gpu;
        }
        Operation operation = node.operation;
        if (operation.point) {
            auto& fresh = points[operation.point.get()];
            if (!fresh) fresh = std::make_shared<Point>();
            operation.point = fresh;
        }
        queue->queue.push_back(std::move(operation));
    }
}

// Whether a kernel has used an illegal address. Then nothing more is done, and every call says so.
inline bool has_failed = false;

inline Result give_up() {
    for (Stream* stream : streams) {
        stream->queue.clear();
        stream->parts.clear();
    }
    return ILLEGAL_ADDRESS;
}

inline bool is_idle(const Stream& stream) { return stream.queue.empty(); }

inline bool advance(Stream& stream);

// Lets one of some streams do its next operation; whether any could.
inline bool advance_one(std::vector<Stream*>& all) {
    std::stable_sort(all.begin(), all.end(), [](const Stream* one, const Stream* other) { return one->rank < other->rank; });
    for (Stream* stream : all) {
        if (!advance(*stream)) continue;
        if (random_below(CHANGE) == 0) stream->rank = random_below(RANKS);
        return true;
    }
    return false;
}

// Does the next operation of a stream, if it can be done; whether it was.
inline bool advance(Stream& stream) {
    if (stream.queue.empty()) return false;
    Operation& next = stream.queue.front();
    switch (next.kind) {
        case Kind::Wait:
            if (!next.point->is_over) return false;
            break;
        case Kind::Work:
            if (next.run() == 0) return false;
            break;
        case Kind::Record:
            next.point->is_over = true;
            next.point->nanos = now();
            break;
        case Kind::Mark:
            next.event->last = std::make_shared<Point>();
            next.event->last->is_over = true;
            next.event->last->nanos = now();
            break;
        case Kind::Launch: {
            if (next.graph) {
                fill_queues(stream, *next.graph);
                next.graph = nullptr;
            }
            std::vector<Stream*> left;
            for (Stream& part : stream.parts)
                if (!is_idle(part)) left.push_back(&part);
            if (!left.empty()) return advance_one(left);
            stream.parts.clear();
            break;
        }
    }
    stream.queue.pop_front();
    return true;
}

inline std::vector<Stream*> busy_streams() {
    std::vector<Stream*> busy;
    for (Stream* stream : streams)
        if (!is_idle(*stream)) busy.push_back(stream);
    return busy;
}

// Lets some stream do one thing; whether any could.
inline bool work_once() {
    std::vector<Stream*> busy = busy_streams();
    return advance_one(busy);
}

// Lets streams work until something is so.
inline Result work_until(const std::function<bool()>& is_so) {
    uint64_t tries = 0;
    while (!is_so()) {
        if (has_failed) return give_up();
        std::vector<Stream*> busy = busy_streams();
        if (busy.empty()) return complain(LAUNCH_FAILED, "somebody waits for what was never asked");
        if (advance_one(busy)) {
            tries = 0;
            continue;
        }
        // Work of other libraries may wait for other processes.
        if (++tries > 100000) return complain(LAUNCH_FAILED, "all streams wait for each other");
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return has_failed ? give_up() : SUCCESS;
}

inline bool all_idle() {
    for (Stream* stream : streams)
        if (!is_idle(*stream)) return false;
    return true;
}

// Whether the last operation of the origin comes after every other.
inline bool is_joined(const Graph& graph, const std::vector<size_t>& last) {
    std::vector<bool> seen(graph.nodes.size());
    std::vector<size_t> open = last;
    while (!open.empty()) {
        size_t at = open.back();
        open.pop_back();
        if (seen[at]) continue;
        seen[at] = true;
        for (size_t before : graph.nodes[at].after) open.push_back(before);
    }
    for (bool is_seen : seen)
        if (!is_seen) return false;
    return true;
}

}  // namespace fake
