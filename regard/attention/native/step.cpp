// Computes one more token of a whole decoder block (pre-norm, int8 weights) in one call: for a few
// rows, the calls of a block's thirty small operations take as long as its arithmetic.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common.h"

#ifdef SMALL_BYTES

struct Norm {
    const float *weight, *bias;
    double epsilon;
};

struct Linear {
    const int8_t* weight;
    const float* scale;
    const int32_t* total;
    const float* bias;
    int64_t in, out;
};

struct Block {
    Norm before, between;
    Linear project, out, wide, narrow;
    int64_t heads, size;
    double scale;
    int64_t relu;  // 1: relu; 0: the tanh form of gelu
};

struct Cache {
    float *keys, *values;  // [batch, heads, capacity, size]
    int64_t capacity, length;
    const float* mask;  // [batch or 1, length + 1], added to the scores; may be null
    int64_t apart;      // the row stride of the mask
};

namespace {

constexpr int64_t LITTLE = 128 * 1024;  // below this one thread is faster than two

void normalised(const float* x, int64_t width, const Norm& norm, float* to) {
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < width; ++k) sum += x[k];
    const float mean = sum / float(width);
#pragma omp simd reduction(+ : squares)
    for (int64_t k = 0; k < width; ++k) squares += (x[k] - mean) * (x[k] - mean);
    const float share = 1.0f / std::sqrt(squares / float(width) + float(norm.epsilon));
    for (int64_t k = 0; k < width; ++k)
        to[k] = (x[k] - mean) * share * norm.weight[k] + norm.bias[k];
}

inline float gelu(float x) {  // x / (1 + exp(-u)), with exp only of numbers up to 0
    const float u = 1.59576912f * (x + 0.044715f * x * x * x);
    const float e = exponential(-std::fabs(u));
    return x * (u < 0.0f ? e : 1.0f) / (1.0f + e);
}

void activated(float* x, int64_t count, bool relu) {
    if (relu) {
        for (int64_t k = 0; k < count; ++k) x[k] = std::max(x[k], 0.0f);
        return;
    }
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) x[k] = gelu(x[k]);
}

// Computes softmax(q kᵀ · scale + mask) v of one head of one text; zeros if it sees no key.
void attend(const float* q, const float* k, const float* v, const float* mask, int64_t keys,
            int64_t size, float scale, float* weights, float* to) {
    float most = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < keys; ++j) {
        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < size; ++d) dot += q[d] * k[j * size + d];
        weights[j] = dot * scale + (mask ? mask[j] : 0.0f);
        most = std::max(most, weights[j]);
    }
    const bool blind = most == -INFINITY;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; ++j) {
        weights[j] = blind ? 0.0f : exponential(weights[j] - most);
        sum += weights[j];
    }
    const float share = blind ? 0.0f : 1.0f / sum;
    std::fill(to, to + size, 0.0f);
    for (int64_t j = 0; j < keys; ++j)
        for (int64_t d = 0; d < size; ++d) to[d] += weights[j] * v[j * size + d];
    for (int64_t d = 0; d < size; ++d) to[d] *= share;
}

}  // namespace

// Replaces x [batch, width] by the block's output, and adds its keys and values to the cache.
extern "C" void step_int8(float* x, int64_t batch, const Block* block, const Cache* cache,
                          int planes, int threads) {
    const Block& b = *block;
    const Cache& c = *cache;
    const int64_t width = b.project.in, inner = b.heads * b.size, keys = c.length + 1;
    std::vector<float> rows(batch * width), triple(batch * 3 * inner), read(batch * inner);
    std::vector<float> hidden(batch * b.wide.out), weights(batch * b.heads * keys);
    const auto through = [&](const Linear& l, const std::vector<float>& from, float* to) {
        product_int8(to, from.data(), batch, l.in, l.weight, l.scale, l.total, l.bias, l.in, l.out,
                     planes, threads);
    };
    const auto added = [&] {
        for (int64_t i = 0; i < batch * width; ++i) x[i] += rows[i];
    };
    for (int64_t r = 0; r < batch; ++r)
        normalised(x + r * width, width, b.before, rows.data() + r * width);
    through(b.project, rows, triple.data());
    const int crew = batch * inner * keys < LITTLE ? 1 : threads;
#pragma omp parallel for schedule(static) num_threads(crew)
    for (int64_t n = 0; n < batch * b.heads; ++n) {
        const int64_t r = n / b.heads, at = n * c.capacity * b.size;
        const float* q = triple.data() + r * 3 * inner + n % b.heads * b.size;
        std::copy(q + inner, q + inner + b.size, c.keys + at + c.length * b.size);
        std::copy(q + 2 * inner, q + 2 * inner + b.size, c.values + at + c.length * b.size);
        attend(q, c.keys + at, c.values + at, c.mask ? c.mask + r * c.apart : nullptr, keys, b.size,
               float(b.scale), weights.data() + n * keys, read.data() + n * b.size);
    }
    through(b.out, read, rows.data());
    added();
    for (int64_t r = 0; r < batch; ++r)
        normalised(x + r * width, width, b.between, rows.data() + r * width);
    through(b.wide, rows, hidden.data());
#pragma omp parallel for schedule(static) num_threads(batch < 4 ? 1 : threads)
    for (int64_t r = 0; r < batch; ++r)
        activated(hidden.data() + r * b.wide.out, b.wide.out, b.relu != 0);
    through(b.narrow, hidden, rows.data());
    added();
}

#endif
