// A library with the interface of NVRTC, whose code for the device is a shared library for this machine: kernels for the emulator.
//
// Built with -DPIPEC_EMULATOR="the folder of shim.h". The result has, for each kernel NAME of the source,
//   void emulate_NAME(const unsigned grid[3], const unsigned block[3], unsigned shared, void** arguments);
//   const unsigned emulate_NAME_sizes[];  // bytes of each parameter, then 0
// and for all of them
//   void emulate_blocks(const uint64_t* places, uint64_t count);  // from now on only these blocks of each grid run; null for all
//   void emulate_leave_out(unsigned line);  // from now on threads do not wait at the barrier of this line; 0 for none
// Equal sources are compiled once, if PIPEC_EMULATOR_CACHE names a folder to keep results in.

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

enum Result { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, COMPILATION = 6 };

struct Program {
    std::string source, log, code;
};

// The names of all functions declared as `__global__ void NAME(`, perhaps with launch bounds before the name.
std::vector<std::string> kernels(const std::string& source) {
    std::vector<std::string> names;
    const std::string mark = "__global__ void ", bounds = "__launch_bounds__(";
    for (size_t at = source.find(mark); at != std::string::npos; at = source.find(mark, at)) {
        at += mark.size();
        if (source.compare(at, bounds.size(), bounds) == 0) at = source.find(')', at) + 1;
        while (std::isspace(static_cast<unsigned char>(source[at]))) at++;
        size_t end = source.find('(', at);
        if (end != std::string::npos) names.push_back(source.substr(at, end - at));
    }
    return names;
}

// The source for a C++ compiler: the shim before it, and what the fake driver calls after it.
std::string emulated(const std::string& source) {
    std::ostringstream text;
    text << "#include \"shim.h\"\n#line 1 \"kernels.cu\"\n" << source << "\n";
    for (const std::string& name : kernels(source)) {
        text << "extern \"C\" __attribute__((visibility(\"default\"))) void emulate_" << name
             << "(const unsigned grid[3], const unsigned block[3], unsigned, void** arguments) {\n"
             << "    emulator::launch(\"" << name << "\", grid, block, [](void** all) { emulator::call(&" << name << ", all); }, arguments);\n}\n"
             << "extern \"C\" __attribute__((visibility(\"default\"))) const auto emulate_" << name << "_sizes = emulator::sizes(&" << name << ");\n";
    }
    return text.str();
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// FNV-1a, 64 bits.
uint64_t hash(const std::string& text, uint64_t hash = 0xCBF29CE484222325) {
    for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001B3;
    return hash;
}

// The options are those of a build that is fast, and as fast to make (with -O2 kernels take as long, and a third more to compile), and that traps where a kernel leaves a shared array, or loads from an address that a device would refuse.
const char* const OPTIONS = " -std=c++17 -O1 -march=native -fPIC -shared -fvisibility=hidden -fno-exceptions -fno-strict-aliasing -fwrapv -ffp-contract=off -w"
                            " -fsanitize=bounds,alignment,integer-divide-by-zero,shift -fsanitize-undefined-trap-on-error";

bool compile(Program& program) {
    std::string text = emulated(program.source);
    uint64_t key = hash(OPTIONS, hash(text));
    for (const char* header : {"shim.h", "blocks.h", "fiber.h", "mma.h"}) key = hash(contents(std::string(PIPEC_EMULATOR "/") + header), key);
    const char* cache = std::getenv("PIPEC_EMULATOR_CACHE");
    char name[32];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(key));
    std::string kept = cache ? std::string(cache) + "/" + name + ".so" : "";
    if (cache && access(kept.c_str(), R_OK) == 0) {
        program.code = contents(kept);
        return true;
    }
    const char* temporary = cache ? cache : std::getenv("TMPDIR");
    std::string folder = std::string(temporary ? temporary : "/tmp") + "/pipec-XXXXXX";
    if (!mkdtemp(folder.data())) {
        program.log = "cannot make a folder " + folder;
        return false;
    }
    std::string source = folder + "/kernels.cpp", code = folder + "/kernels.so", log = folder + "/log";
    std::ofstream(source) << text;
    std::string command = "g++" + std::string(OPTIONS) + " -I'" PIPEC_EMULATOR "' -o '" + code + "' '" + source + "' 2>'" + log + "'";
    bool is_compiled = std::system(command.c_str()) == 0;
    program.log = contents(log);
    program.code = is_compiled ? contents(code) : "";
    if (is_compiled && cache) std::rename(code.c_str(), kept.c_str());
    for (const std::string& path : {source, code, log}) unlink(path.c_str());
    rmdir(folder.c_str());
    return is_compiled;
}

}  // namespace

extern "C" {

Result nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

const char* nvrtcGetErrorString(Result result) {
    switch (result) {
        case SUCCESS: return "NVRTC_SUCCESS";
        case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    }
    return "NVRTC_ERROR unknown";
}

Result nvrtcGetNumSupportedArchs(int* count) {
    *count = 3;
    return SUCCESS;
}

Result nvrtcGetSupportedArchs(int* all) {
    all[0] = 80;
    all[1] = 90;
    all[2] = 100;
    return SUCCESS;
}

Result nvrtcCreateProgram(Program** program, const char* source, const char*, int n_headers, const char* const*, const char* const*) {
    if (!source || n_headers != 0) return INVALID_INPUT;
    *program = new Program{source, "", ""};
    return SUCCESS;
}

Result nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

Result nvrtcCompileProgram(Program* program, int, const char* const*) { return compile(*program) ? SUCCESS : COMPILATION; }

Result nvrtcGetProgramLogSize(Program* program, size_t* size) {
    *size = program->log.size() + 1;
    return SUCCESS;
}

Result nvrtcGetProgramLog(Program* program, char* log) {
    std::memcpy(log, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}

Result nvrtcGetCUBINSize(Program* program, size_t* size) {
    *size = program->code.size();
    return program->code.empty() ? INVALID_PROGRAM : SUCCESS;
}

Result nvrtcGetCUBIN(Program* program, char* code) {
    std::memcpy(code, program->code.data(), program->code.size());
    return SUCCESS;
}

Result nvrtcGetPTXSize(Program* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }

Result nvrtcGetPTX(Program* program, char* code) { return nvrtcGetCUBIN(program, code); }

}  // extern "C"
