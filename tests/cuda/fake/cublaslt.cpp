// A stand-in for cuBLASLt: the functions that the runtime calls, by the library's documented rules (column-major order, leading
// dimensions, strided batches, beta). Products run on the streams of the stand-in for the driver (cuda.cpp).
//
// It complains on stderr and refuses what the library would refuse: leading dimensions that are too small, a missing algorithm, a handle in another context
// than its own, kernels that are first needed, and so loaded, while a stream is captured, addresses that are less aligned than was said, types that it does not join: factors of bf16 have a result of f32 or bf16 and are added up in f32
// without any shortcut. Products of f32 in bf16 round their factors to nearest even, as the library may.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

extern "C" int pipec_fake_enqueue(void* stream, int (*run)(void*), void* data);
extern "C" const void* pipec_fake_current();
extern "C" int pipec_fake_is_captured(void* stream);

namespace {

enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum Compute { COMPUTE_32F = 68, COMPUTE_32F_FAST_16BF = 75, COMPUTE_32F_FAST_TF32 = 77, COMPUTE_64F = 70 };
enum Type { R_32F = 0, R_64F = 1, R_16BF = 14 };

struct Operation {
    int compute, scale;
    int32_t transposed[2] = {0, 0};
};

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
    int32_t count = 1;
    int64_t step = 0;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};

// What an algorithm says: that it is one, and for which alignments.
struct Algorithm {
    uint64_t magic;
    uint32_t alignment[4];
    // Of its kernel.
    uint64_t number;
    uint64_t rest[4];
};
static_assert(sizeof(Algorithm) == 64, "as large as the library's");

struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

// The library in a context, with the kernels that it has loaded there.
struct Handle {
    const void* context;
    std::set<uint64_t> loaded;
};

constexpr uint64_t MAGIC = 0x70697065634c7421;

Status complain(const char* what) {
    fprintf(stderr, "fake cuda: cuBLASLt: %s\n", what);
    return INVALID_VALUE;
}

bool fits(const Layout& layout) { return layout.leading >= int64_t(layout.rows) && layout.rows > 0 && layout.columns > 0; }

struct Product {
    Operation operation;
    Layout left, right, result;
    const char *a, *b;
    char* d;
    double alpha, beta;
};

float rounded(float x, int compute) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (compute == COMPUTE_32F_FAST_16BF) {
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    } else if (compute == COMPUTE_32F_FAST_TF32) {
        bits = (bits + 0x1000) & 0xffffe000;
    }
    memcpy(&x, &bits, 4);
    return x;
}

float widened(float x) { return x; }
double widened(double x) { return x; }
float widened(uint16_t half) {
    uint32_t bits = uint32_t(half) << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

uint16_t upper_half(float x) {
    uint32_t bits;
    x = rounded(x, COMPUTE_32F_FAST_16BF);
    memcpy(&bits, &x, 4);
    return uint16_t(bits >> 16);
}

void store(float& to, double alpha, float sum, double beta) { to = float(alpha) * sum + (beta == 0 ? 0 : float(beta) * to); }
void store(double& to, double alpha, double sum, double beta) { to = alpha * sum + (beta == 0 ? 0 : beta * to); }
void store(uint16_t& to, double alpha, float sum, double beta) {
    to = upper_half(float(alpha) * sum + (beta == 0 ? 0 : float(beta) * widened(to)));
}

template <class T, class Factor, class Result> void multiply(const Product& product) {
    auto at = [](const Layout& layout, bool transposed, int64_t batch, uint64_t row, uint64_t column) {
        if (transposed) std::swap(row, column);
        return batch * layout.step + int64_t(column) * layout.leading + int64_t(row);
    };
    const Operation& operation = product.operation;
    auto a = reinterpret_cast<const Factor*>(product.a), b = reinterpret_cast<const Factor*>(product.b);
    auto d = reinterpret_cast<Result*>(product.d);
    uint64_t inner = operation.transposed[0] ? product.left.rows : product.left.columns;
    for (int64_t batch = 0; batch < product.result.count; batch++)
        for (uint64_t column = 0; column < product.result.columns; column++)
            for (uint64_t row = 0; row < product.result.rows; row++) {
                T sum = 0;
                for (uint64_t k = 0; k < inner; k++) {
                    T x = widened(a[at(product.left, operation.transposed[0], batch, row, k)]);
                    T y = widened(b[at(product.right, operation.transposed[1], batch, k, column)]);
                    if (sizeof(T) == 4) x = rounded(x, operation.compute), y = rounded(y, operation.compute);
                    sum += x * y;
                }
                store(d[at(product.result, false, batch, row, column)], product.alpha, sum, product.beta);
            }
}

int run(void* data) {
    const Product& product = *static_cast<const Product*>(data);
    if (product.result.type == R_16BF) multiply<float, uint16_t, uint16_t>(product);
    else if (product.left.type == R_16BF) multiply<float, uint16_t, float>(product);
    else if (product.result.type == R_64F) multiply<double, double, double>(product);
    else multiply<float, float, float>(product);
    return 1;
}

}  // namespace

extern "C" {

Status cublasLtCreate(Handle** handle) {
    if (!pipec_fake_current()) return complain("it begins without a context");
    const char* fails = getenv("PIPEC_FAKE_FAILS");
    if (fails && strcmp(fails, "cublasLtCreate") == 0) return NOT_INITIALIZED;
    *handle = new Handle{pipec_fake_current(), {}};
    return SUCCESS;
}

Status cublasLtDestroy(Handle* handle) {
    if (handle->context != pipec_fake_current()) complain("it ends in another context than its own");
    delete handle;
    return SUCCESS;
}

size_t cublasLtGetVersion() { return 130000; }

Status cublasLtMatmulDescCreate(Operation** operation, int compute, int scale) {
    *operation = new Operation{compute, scale};
    return SUCCESS;
}

Status cublasLtMatmulDescDestroy(Operation* operation) {
    delete operation;
    return SUCCESS;
}

Status cublasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* value, size_t bytes) {
    if ((attribute != 3 && attribute != 4) || bytes != 4) return complain("an attribute of an operation that it does not know");
    memcpy(&operation->transposed[attribute - 3], value, bytes);
    return SUCCESS;
}

Status cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    *layout = new Layout{type, rows, columns, leading};
    return SUCCESS;
}

Status cublasLtMatrixLayoutDestroy(Layout* layout) {
    delete layout;
    return SUCCESS;
}

Status cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value, size_t bytes) {
    if (attribute == 5 && bytes == 4) memcpy(&layout->count, value, bytes);
    else if (attribute == 6 && bytes == 8) memcpy(&layout->step, value, bytes);
    else return complain("an attribute of a layout that it does not know");
    return SUCCESS;
}

Status cublasLtMatmulPreferenceCreate(Preference** preference) {
    *preference = new Preference;
    return SUCCESS;
}

Status cublasLtMatmulPreferenceDestroy(Preference* preference) {
    delete preference;
    return SUCCESS;
}

Status cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t bytes) {
    if (attribute == 1 && bytes == 8) memcpy(&preference->workspace, value, bytes);
    else if (attribute >= 5 && attribute <= 8 && bytes == 4) memcpy(&preference->alignment[attribute - 5], value, bytes);
    else return complain("an attribute of a preference that it does not know");
    return SUCCESS;
}

Status cublasLtMatmulAlgoGetHeuristic(void*, const Operation* operation, const Layout* a, const Layout* b, const Layout* c,
                                      const Layout* d, const Preference* preference, int wanted, Heuristic* found, int* count) {
    auto shape = [](const Layout* layout, bool transposed) {
        return transposed ? std::pair(layout->columns, layout->rows) : std::pair(layout->rows, layout->columns);
    };
    auto [rows, inner] = shape(a, operation->transposed[0]);
    auto [again, columns] = shape(b, operation->transposed[1]);
    *count = 0;
    if (wanted < 1 || inner != again || d->rows != rows || d->columns != columns) return complain("sizes that do not fit together");
    if (c->leading != d->leading || c->step != d->step) return complain("C and D lie differently");
    if (!fits(*a) || !fits(*b) || !fits(*d)) return complain("a leading dimension that is too small");
    if (a->count != d->count || b->count != d->count) return complain("batches of different sizes");
    bool is_mixed = a->type == R_16BF && (d->type == R_32F || d->type == R_16BF);
    if (operation->scale != (is_mixed ? int(R_32F) : d->type) || c->type != d->type || a->type != b->type || (a->type != d->type && !is_mixed))
        return complain("types that do not fit together");
    if (is_mixed && operation->compute != COMPUTE_32F) return complain("a way to compute that factors of bf16 do not have");
    bool is_double = operation->compute == COMPUTE_64F;
    if (is_double != (d->type == R_64F)) return complain("a way to compute that does not fit the type");
    // It has no algorithm for square results: so the way without it is gone, too, beside the one with it.
    if (rows == columns) return NOT_SUPPORTED;
    *found = Heuristic{};
    static uint64_t last = 0;
    found->algorithm.magic = MAGIC;
    found->algorithm.number = ++last;
    memcpy(found->algorithm.alignment, preference->alignment, sizeof preference->alignment);
    *count = 1;
    return SUCCESS;
}

Status cublasLtMatmul(Handle* handle, const Operation* operation, const void* alpha, const void* a, const Layout* left, const void* b,
                      const Layout* right, const void* beta, const void* c, const Layout*, void* d, const Layout* result,
                      const Algorithm* algorithm, void* workspace, size_t bytes, void* stream) {
    if (!handle || !algorithm || algorithm->magic != MAGIC) return complain("no algorithm of its own");
    if (handle->context != pipec_fake_current()) return complain("a product in another context than its own");
    if (handle->loaded.insert(algorithm->number).second && pipec_fake_is_captured(stream)) return complain("a kernel is loaded while a stream is captured");
    if (c != d) return complain("C is not D");
    if (!workspace || bytes == 0 || reinterpret_cast<uintptr_t>(workspace) % 16 != 0) return complain("no workspace");
    const void* addresses[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (reinterpret_cast<uintptr_t>(addresses[i]) % algorithm->alignment[i] != 0) return complain("an address less aligned than was said");
    auto scalar = [&](const void* at) {
        return operation->scale == R_64F ? *static_cast<const double*>(at) : double(*static_cast<const float*>(at));
    };
    // Kept for as long as a captured graph may replay it.
    auto product = new Product{*operation, *left, *right, *result, static_cast<const char*>(a), static_cast<const char*>(b),
                               static_cast<char*>(d), scalar(alpha), scalar(beta)};
    return pipec_fake_enqueue(stream, run, product) == 0 ? SUCCESS : complain("the stream takes no work");
}
}
