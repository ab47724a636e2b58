// A library with the interface of NCCL, as far as pipec calls it: sends and receives between processes of one machine, over Unix sockets.
//
// It keeps the rules of the real one. Sends and receives of a communicator are carried out in the order in which they were asked for, in the order of
// their stream; all of one group at once; a send ends when it was received. Who leaves a communicator where others are lost waits for all that the GPU
// does, as for the memory that is freed then. It is strict: whoever names other sizes than its partner, asks for something outside of memory of the GPU,
// forgets a communicator, or has so many that their blocks may hold all multiprocessors of an H100, is told on standard error.
//
// Members of a communicator find each other by its id, which names a folder. Whoever joins one waits for all members inside of the call, and who first
// exchanges something with a member waits for it inside of the end of the group, as the real one does; the log says in which round of such waits, one
// after the other, a communicator was joined. It takes memory of the GPU: PIPEC_FAKE_NCCL_MEMORY bytes for a communicator and for each connection.
//
// The log has the bytes of every send to another host. PIPEC_FAKE_NCCL_LOSE=n breaks the n-th group of a process, like
// a failing network.

#include "world.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <deque>
#include <fcntl.h>
#include <map>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

// Of the fake driver: work for a stream, which is asked again until it says 1; whether bytes are inside memory of the GPU that is current.
extern "C" int fakeWork(void* stream, int (*run)(void*), void* data);
extern "C" int fakeHold(int64_t bytes);
extern "C" int fakeNumber();
extern "C" int fakeIsOnGpu(const void* start, size_t bytes);
extern "C" int fakeHasCurrent();
// Lets all streams work as far as they can; whether nothing is left.
extern "C" int fakeIsIdle();

namespace {

enum Answer : int { OK = 0, CUDA = 1, SYSTEM = 2, ARGUMENT = 4, USAGE = 5, REMOTE = 6 };

struct Id {
    char text[128];
};

// Of version 2.17; later ones have more fields behind.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks;
    const char* network;
};

// Blocks of an exchange where nobody limits them, between GPUs that NVLink joins; multiprocessors, of which a block has one for itself while it waits.
constexpr int USUAL_BLOCKS = 32, MULTIPROCESSORS = 132;

// To another member: one socket for what goes there and the word that it arrived, one for the other direction.
struct Link {
    int out = -1, in = -1;
    // Whether anything was ever sent there, or received.
    bool is_out_open = false, is_in_open = false;
    // Whether the member is on another host.
    bool is_far = false;
};

struct Communicator {
    int own;
    // By member.
    std::vector<Link> links;
    Answer error = OK;
    std::atomic<bool> is_aborted = false;
    // Groups that are queued, by number: only the first one works.
    uint64_t asked = 0, done = 0;
    int blocks = USUAL_BLOCKS;
    int64_t held = 0;
};

// The round of the last communicator that this process has joined.
int round_of_joining = 0;

// One send or receive, as far as it came.
struct End {
    Communicator* communicator;
    int peer;
    char* start;
    uint64_t bytes;
    bool sends;
    uint64_t head = 0, head_moved = 0;
    uint64_t moved = 0;
    char word = 0;
    uint64_t word_moved = 0;
    bool is_over = false;
};

struct Group {
    std::vector<End> ends;
    // By communicator: the turn of the group there.
    std::map<Communicator*, uint64_t> turns;
    bool loses = false;
};

thread_local int depth = 0;
thread_local std::vector<End> open_ends;
thread_local void* open_stream = nullptr;

Answer complain(Answer answer, const char* text) {
    std::fprintf(stderr, "fake cuda: nccl: %s\n", text);
    return answer;
}

// Communicators that were joined, and neither destroyed nor aborted; threads that wait inside of a call.
struct Open {
    std::atomic<int> count = 0, blocks = 0, inside = 0;
    void add(const Communicator* communicator, int sign) {
        count += sign;
        blocks += sign * communicator->blocks;
        if (blocks > MULTIPROCESSORS) complain(USAGE, "exchanges that wait may hold all multiprocessors of the GPU");
    }
    ~Open() {
        if (inside > 0) complain(USAGE, "a process exits while a thread is inside of a call");
        if (count > 0) complain(USAGE, "a process ends without leaving its communicators");
    }
} open_communicators;

std::string folder() {
    const char* own = std::getenv("PIPEC_FAKE_NCCL");
    return own ? own : "/tmp";
}

// Moves what can be moved now; false where the other end is gone.
bool move(int socket, bool out, void* bytes, uint64_t length, uint64_t& moved) {
    while (moved < length) {
        char* at = static_cast<char*>(bytes) + moved;
        ssize_t count = out ? send(socket, at, length - moved, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(socket, at, length - moved, MSG_DONTWAIT);
        if (count > 0) {
            moved += uint64_t(count);
        } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        } else {
            return false;
        }
    }
    return true;
}

// A message is its length, then its bytes; the receiver answers with a word when it has all of them. False where it cannot be.
bool advance(End& end) {
    const Link& link = end.communicator->links[size_t(end.peer)];
    int socket = end.sends ? link.out : link.in;
    if (end.sends) end.head = end.bytes;
    if (!move(socket, end.sends, &end.head, sizeof end.head, end.head_moved)) return false;
    if (end.head_moved < sizeof end.head) return true;
    if (end.head != end.bytes) {
        complain(ARGUMENT, "a receive has another size than the send");
        return false;
    }
    if (!move(socket, end.sends, end.start, end.bytes, end.moved)) return false;
    if (end.moved < end.bytes) return true;
    if (!move(socket, !end.sends, &end.word, 1, end.word_moved)) return false;
    end.is_over = end.word_moved == 1;
    return true;
}

// Lets a group come further; 1 when it is over.
int work(void* data) {
    Group* group = static_cast<Group*>(data);
    for (auto& [communicator, turn] : group->turns) {
        if (communicator->is_aborted) return delete group, 1;
        if (communicator->done != turn) return 0;
    }
    bool over = !group->loses;
    for (End& end : group->ends) {
        if (end.is_over || group->loses) continue;
        // Of several messages between two members, one direction, the first comes first.
        bool waits = false;
        for (End& before : group->ends) {
            if (&before == &end) break;
            waits |= !before.is_over && before.communicator == end.communicator && before.peer == end.peer && before.sends == end.sends;
        }
        if (!waits && !advance(end)) end.communicator->error = REMOTE;
        over &= end.is_over;
    }
    if (group->loses)
        for (auto& [communicator, turn] : group->turns) communicator->error = REMOTE;
    if (!over) return 0;
    for (auto& [communicator, turn] : group->turns) communicator->done++;
    delete group;
    return 1;
}

struct Inside {
    Inside() { open_communicators.inside++; }
    ~Inside() { open_communicators.inside--; }
};

bool say(int socket, int word) { return send(socket, &word, sizeof word, MSG_NOSIGNAL) == sizeof word; }
bool hear(int socket, int& word) { return recv(socket, &word, sizeof word, MSG_WAITALL) == sizeof word; }

int64_t connection_bytes() { return int64_t(fake::setting("PIPEC_FAKE_NCCL_MEMORY", 4096)); }

Answer hold(Communicator* communicator) {
    if (!fakeHold(connection_bytes())) return CUDA;
    return communicator->held += connection_bytes(), OK;
}

// Connects members that exchange something for the first time: each says so to the other, and waits for it.
Answer connect_members() {
    Inside inside;
    std::vector<int> sockets;
    for (End& end : open_ends) {
        Link& link = end.communicator->links[size_t(end.peer)];
        bool& is_open = end.sends ? link.is_out_open : link.is_in_open;
        if (is_open) continue;
        is_open = true;
        if (Answer answer = hold(end.communicator)) return answer;
        sockets.push_back(end.sends ? link.out : link.in);
    }
    for (int socket : sockets)
        if (!say(socket, 0)) return REMOTE;
    for (int word : sockets)
        if (int socket = word; !hear(socket, word)) return REMOTE;
    return OK;
}

Answer launch() {
    static uint64_t count = 0;
    if (open_ends.empty()) return OK;
    if (Answer answer = connect_members()) return open_ends.clear(), answer;
    Group* group = new Group;
    group->ends = std::move(open_ends);
    open_ends.clear();
    for (End& end : group->ends)
        if (!group->turns.count(end.communicator)) group->turns[end.communicator] = end.communicator->asked++;
    group->loses = ++count == fake::setting("PIPEC_FAKE_NCCL_LOSE", 0);
    return fakeWork(open_stream, work, group) == 0 ? OK : SYSTEM;
}

Answer ask(void* start, size_t bytes, int type, int peer, Communicator* communicator, void* stream, bool sends) {
    if (type != 0) return complain(ARGUMENT, "something else than bytes is moved");
    if (peer < 0 || size_t(peer) >= communicator->links.size() || peer == communicator->own) return complain(ARGUMENT, "there is no such member");
    if (!fakeIsOnGpu(start, bytes)) return complain(ARGUMENT, "bytes are not memory of this GPU");
    if (depth > 0 && !open_ends.empty() && open_stream != stream) return complain(USAGE, "a group has two streams");
    open_stream = stream;
    if (sends && communicator->links[size_t(peer)].is_far) fake::note(("to another host: " + std::to_string(bytes)).c_str());
    open_ends.push_back({communicator, peer, static_cast<char*>(start), bytes, sends});
    return depth > 0 ? OK : launch();
}

sockaddr_un address(const std::string& path) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::snprintf(name.sun_path, sizeof name.sun_path, "%s", path.c_str());
    return name;
}

// Of two members, the first listens and the second calls.
int meet(const std::string& path, bool listens) {
    int own = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name = address(path);
    sockaddr* at = reinterpret_cast<sockaddr*>(&name);
    if (listens) {
        if (bind(own, at, sizeof name) != 0 || listen(own, 1) != 0) return -1;
        int other = accept(own, nullptr, nullptr);
        close(own);
        unlink(path.c_str());
        return other;
    }
    for (int tries = 0; tries < 30000; tries++) {
        if (connect(own, at, sizeof name) == 0) return own;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return -1;
}

Answer join(Communicator** made, int members, Id id, int own, int blocks) {
    Inside inside;
    if (own < 0 || own >= members) return complain(ARGUMENT, "there is no such member");
    if (!fakeHasCurrent()) return complain(USAGE, "no GPU is current");
    Communicator* communicator = new Communicator{own, std::vector<Link>(size_t(members)), OK, false, 0, 0, blocks};
    if (Answer answer = hold(communicator)) return answer;
    // In one order of all pairs.
    for (int one = 0; one < members; one++) {
        for (int other = one + 1; other < members; other++) {
            if (own != one && own != other) continue;
            std::string path = std::string(id.text) + "-" + std::to_string(one) + "-" + std::to_string(other);
            bool is_first = own == one;
            int there = meet(path + "-there", is_first), back = there < 0 ? -1 : meet(path + "-back", is_first);
            if (back < 0) return SYSTEM;
            communicator->links[size_t(is_first ? other : one)] = is_first ? Link{there, back} : Link{back, there};
        }
    }
    // Two members on one GPU of a host are refused.
    char name[32] = {};
    gethostname(name, sizeof name - 1);
    int gpu = fakeNumber(), host = 0;
    for (char letter : name) host = host * 31 + letter;
    for (const Link& link : communicator->links)
        if (link.out >= 0 && !(say(link.out, gpu) && say(link.out, host))) return REMOTE;
    for (Link& link : communicator->links) {
        int their_gpu = 0, their_host = 0;
        if (link.in < 0) continue;
        if (!hear(link.in, their_gpu) || !hear(link.in, their_host)) return REMOTE;
        link.is_far = their_host != host;
        if (!link.is_far && their_gpu == gpu) return USAGE;
    }
    // It comes after all that its members have joined before.
    int round = round_of_joining, theirs = 0;
    for (const Link& link : communicator->links)
        if (link.out >= 0 && !say(link.out, round_of_joining)) return REMOTE;
    for (const Link& link : communicator->links) {
        if (link.in >= 0 && !hear(link.in, theirs)) return REMOTE;
        round = std::max(round, theirs);
    }
    round_of_joining = round + 1;
    fake::note(("joined in round " + std::to_string(round_of_joining)).c_str());
    open_communicators.add(communicator, 1);
    return *made = communicator, OK;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) { return *version = 22703, OK; }

const char* ncclGetErrorString(int answer) {
    switch (answer) {
        case OK: return "no error";
        case CUDA: return "unhandled cuda error";
        case SYSTEM: return "unhandled system error";
        case ARGUMENT: return "invalid argument";
        case USAGE: return "invalid usage";
        case REMOTE: return "remote process exited or there was a network error";
        default: return "unknown result code";
    }
}

int ncclGetUniqueId(Id* id) {
    static int count = 0;
    std::snprintf(id->text, sizeof id->text, "%s/nccl-%d-%d", folder().c_str(), int(getpid()), count++);
    return OK;
}

int ncclCommInitRank(Communicator** made, int members, Id id, int own) {
    if (fake::note("ncclCommInitRank")) return SYSTEM;
    return join(made, members, id, own, USUAL_BLOCKS);
}

int ncclCommInitRankConfig(Communicator** made, int members, Id id, int own, Config* config) {
    if (fake::note("ncclCommInitRankConfig")) return SYSTEM;
    bool is_sound = config->magic == 0xcafebeef && config->version >= 21700 && config->size >= sizeof(Config);
    bool is_usual = config->blocking == INT_MIN && config->cluster_size == INT_MIN && config->least_blocks == INT_MIN && !config->network;
    if (!is_sound || !is_usual) return complain(ARGUMENT, "the config is not one of version 2.17 that limits blocks alone");
    int blocks = config->most_blocks;
    // The real one takes the next power of two for sends and receives.
    if (blocks < 1 || (blocks & (blocks - 1)) != 0) return complain(ARGUMENT, "blocks are limited to what is no power of two");
    return join(made, members, id, own, blocks);
}

int ncclCommDestroy(Communicator* communicator) {
    fake::note("ncclCommDestroy");
    if (communicator->asked != communicator->done) complain(USAGE, "a communicator is destroyed while something is under way");
    for (Link& link : communicator->links)
        for (int socket : {link.out, link.in})
            if (socket >= 0) close(socket);
    open_communicators.add(communicator, -1);
    fakeHold(-communicator->held);
    delete communicator;
    return OK;
}

int ncclCommAbort(Communicator* communicator) {
    fake::note("ncclCommAbort");
    communicator->is_aborted = true;
    for (Link& link : communicator->links)
        for (int socket : {link.out, link.in})
            if (socket >= 0) shutdown(socket, SHUT_RDWR);
    open_communicators.add(communicator, -1);
    for (int tries = 0; tries < 3000; tries++) {
        if (fakeIsIdle()) return OK;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return complain(USAGE, "who leaves a communicator waits for exchanges of another one, which nobody leaves");
}

int ncclCommGetAsyncError(Communicator* communicator, int* error) { return *error = communicator->error, OK; }

int ncclGroupStart() { return depth++, OK; }

int ncclGroupEnd() {
    if (--depth > 0) return OK;
    return launch();
}

int ncclSend(void* start, size_t count, int type, int peer, Communicator* communicator, void* stream) {
    fake::note("ncclSend");
    return ask(start, count, type, peer, communicator, stream, true);
}

int ncclRecv(void* start, size_t count, int type, int peer, Communicator* communicator, void* stream) {
    fake::note("ncclRecv");
    return ask(start, count, type, peer, communicator, stream, false);
}

}  // extern "C"
