// Fuses passes over attention weights that PyTorch makes one after the other.
//
// Rows are independent: each is read into a buffer that stays in the L1 cache, computed in fp32,
// and written once. Rows are divided among the threads, so their number never changes a result.

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common.h"

namespace {

// Returns row (batch, head, row) of an added term. Strides count elements; 0: a shared dimension.
template <class T>
inline const T* row_of(const T* term, const int64_t* strides, int64_t b, int64_t h, int64_t i) {
    return term + b * strides[0] + h * strides[1] + i * strides[2];
}

template <class T>
void weigh(T* scores, T* kept, const T* bias, const int64_t* bias_strides, const T* mask,
           const int64_t* mask_strides, const uint8_t* keep, int64_t batch, int64_t heads,
           int64_t rows, int64_t keys, int threads) {
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> room(keys);
        float* x = room.data();
#pragma omp for schedule(static)
        for (int64_t n = 0; n < batch * heads * rows; ++n) {
            const int64_t b = n / (heads * rows), h = n / rows % heads, i = n % rows;
            T* s = scores + n * keys;
            for (int64_t j = 0; j < keys; ++j) x[j] = get(s[j]);
            if (bias) {
                const T* term = row_of(bias, bias_strides, b, h, i);
                for (int64_t j = 0; j < keys; ++j) x[j] += get(term[j]);
            }
            if (mask) {
                const T* term = row_of(mask, mask_strides, b, h, i);
                for (int64_t j = 0; j < keys; ++j) x[j] += get(term[j]);
            }
            float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
            for (int64_t j = 0; j < keys; ++j) most = x[j] > most ? x[j] : most;
            const bool blind = most == -std::numeric_limits<float>::infinity();
            most = blind ? 0.0f : most;  // a softmax over no keys gives zeros
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < keys; ++j) {
                x[j] = exponential(x[j] - most);
                sum += x[j];
            }
            const float share = blind ? 0.0f : 1.0f / sum;
            if (kept == nullptr) {
                for (int64_t j = 0; j < keys; ++j) put(s[j], x[j] * share);
                continue;
            }
            T* k = kept + n * keys;
            const uint8_t* d = keep + n * keys;
            for (int64_t j = 0; j < keys; ++j) {
                const float p = x[j] * share;
                put(s[j], p);
                put(k[j], d[j] ? p : 0.0f);
            }
        }
    }
}

template <class T>
void weigh_back(T* grad, T* kept, const T* weights, const uint8_t* keep, int64_t rows, int64_t keys,
                int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < rows; ++n) {
        T* g = grad + n * keys;
        const T* p = weights + n * keys;
        float sum = 0.0f;
        if (kept == nullptr) {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < keys; ++j) sum += get(g[j]) * get(p[j]);
            for (int64_t j = 0; j < keys; ++j) put(g[j], get(p[j]) * (get(g[j]) - sum));
            continue;
        }
        T* k = kept + n * keys;
        const uint8_t* d = keep + n * keys;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < keys; ++j) {
            const float both = d[j] ? get(p[j]) : 0.0f;
            put(k[j], both);
            sum += get(g[j]) * both;
        }
        for (int64_t j = 0; j < keys; ++j) {
            const float back = d[j] ? get(g[j]) : 0.0f;
            put(g[j], get(p[j]) * (back - sum));
        }
    }
}

template <class T>
void drop(T* to, const T* from, const uint8_t* keep, float factor, int64_t count, int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t j = 0; j < count; ++j) put(to[j], keep[j] ? get(from[j]) * factor : 0.0f);
}

}  // namespace

// Draws one random byte per element and sets it to 1 if it is at least `limit`, else to 0. The
// bytes are those of splitmix64 (Steele, Lea and Flood 2014), a function of the seed and the index.
extern "C" void draw_keep(uint8_t* keep, uint64_t seed, int limit, int64_t count, int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t n = 0; n < count / 8; ++n) {
        uint64_t x = seed + uint64_t(n + 1) * 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        x ^= x >> 31;
        std::memcpy(keep + 8 * n, &x, 8);
    }
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t n = 0; n < count; ++n) keep[n] = keep[n] >= limit;
}

#define EXPORT(NAME, TYPE)                                                                        \
    extern "C" void weigh_##NAME(TYPE* scores, TYPE* kept, const TYPE* bias,                      \
                                 const int64_t* bias_strides, const TYPE* mask,                   \
                                 const int64_t* mask_strides, const uint8_t* keep, int64_t batch, \
                                 int64_t heads, int64_t rows, int64_t keys, int threads) {        \
        weigh(scores, kept, bias, bias_strides, mask, mask_strides, keep, batch, heads, rows,     \
              keys, threads);                                                                     \
    }                                                                                             \
    extern "C" void weigh_back_##NAME(TYPE* grad, TYPE* kept, const TYPE* weights,                \
                                      const uint8_t* keep, int64_t rows, int64_t keys,            \
                                      int threads) {                                              \
        weigh_back(grad, kept, weights, keep, rows, keys, threads);                               \
    }                                                                                             \
    extern "C" void drop_##NAME(TYPE* to, const TYPE* from, const uint8_t* keep, float factor,    \
                                int64_t count, int threads) {                                     \
        drop(to, from, keep, factor, count, threads);                                             \
    }

EXPORT(fp32, float)
EXPORT(bf16, Brain)
