// The parts of a decoding step that are no products, and the rows that products read.

#pragma once

#include <utility>
#include <vector>

#include "decode_plan.h"
#include "decode_cache.h"

#ifdef SMALL_BYTES

#include <memory>

// Memory that begins at a cache line, with a vector of zeros or numbers to spare at its end.
class Room {
    std::unique_ptr<float[]> memory;
    float* first = nullptr;
    int64_t size = 0;

  public:
    void fit(int64_t count) {
        if (count <= size) return;
        memory.reset(new float[count + 32]());
        first = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) &
                                         ~uintptr_t(63));
        size = count;
    }
    float* data() const { return first; }
};

static inline void normalize(const float* x, int64_t width, const Norm& norm, float* to) {
    float mean = 0.0f, squares = 0.0f;
    if (norm.kind == NO_NORM) {
        if (to != x) std::copy(x, x + width, to);
        return;
    }
    if (norm.kind == LAYER_NORM) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < width; ++k) sum += x[k];
        mean = sum / float(width);
    }
#pragma omp simd reduction(+ : squares)
    for (int64_t k = 0; k < width; ++k) squares += (x[k] - mean) * (x[k] - mean);
    const float share = 1.0f / std::sqrt(squares / float(width) + float(norm.epsilon));
    for (int64_t k = 0; k < width; ++k) to[k] = (x[k] - mean) * share * norm.weight[k];
    if (norm.bias)
        for (int64_t k = 0; k < width; ++k) to[k] += norm.bias[k];
}

static inline float sigmoid(float x) {  // with exp only of numbers up to 0
    const float e = exponential(-std::fabs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float activated(float x, int64_t kind) {
    if (kind == RELU) return std::max(x, 0.0f);
    if (kind == SILU) return x * sigmoid(x);
    if (kind == GELU_TANH) return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
    if (kind == TANH) return 2.0f * sigmoid(2.0f * x) - 1.0f;
    return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
}

template <int64_t KIND>
inline void activate_as(float* x, const float* gate, int64_t start, int64_t end) {
    if (gate) {
#pragma omp simd
        for (int64_t k = start; k < end; ++k) x[k] *= activated(gate[k], KIND);
    } else {
#pragma omp simd
        for (int64_t k = start; k < end; ++k) x[k] = activated(x[k], KIND);
    }
}

static inline void activate(const Part& part, float* x, const float* gate, int64_t start,
                            int64_t end) {
    switch (part.activation) {
        case RELU: return activate_as<RELU>(x, gate, start, end);
        case SILU: return activate_as<SILU>(x, gate, start, end);
        case GELU_TANH: return activate_as<GELU_TANH>(x, gate, start, end);
        case TANH: return activate_as<TANH>(x, gate, start, end);
        default: return activate_as<GELU>(x, gate, start, end);
    }
}

static inline float as_float(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}

static inline uint16_t as_half(float x) {  // rounds to nearest, ties to even; NaN stays NaN
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    return uint16_t(x == x ? (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16 : 0x7FC0);
}

static inline void look_up(const Matrix& tokens, int64_t token, double scale, float* to) {
    const int64_t width = tokens.in, at = token * width;
    if (tokens.kind == FLOATS) {
        const float* row = static_cast<const float*>(tokens.weight) + at;
        std::copy(row, row + width, to);
    } else if (tokens.kind == HALVES) {
        const uint16_t* row = static_cast<const uint16_t*>(tokens.weight) + at;
        for (int64_t k = 0; k < width; ++k) to[k] = as_float(row[k]);
    } else {
        const int8_t* row = static_cast<const int8_t*>(tokens.weight) + at;
        for (int64_t k = 0; k < width; ++k) to[k] = float(row[k]) * tokens.scale[token];
    }
    if (scale != 1.0)
        for (int64_t k = 0; k < width; ++k) to[k] *= float(scale);
}

// Rotates `heads` rows of x; the elements i and i + size / 2 are a pair.
static inline void rotate(float* x, int64_t heads, int64_t size, int64_t position,
                          const float* frequencies) {
    const int64_t half = size / 2;
    for (int64_t i = 0; i < half; ++i) {
        const float angle = float(position) * frequencies[i];
        const float cos = std::cos(angle), sin = std::sin(angle);
        for (int64_t h = 0; h < heads; ++h) {
            float &a = x[h * size + i], &b = x[h * size + half + i];
            const float first = a * cos - b * sin;
            b = b * cos + a * sin;
            a = first;
        }
    }
}

template <class Number>
struct Reading {  // the queries of a group of heads, and the keys and values that they read
    const float* q;
    const Number *keys, *values;
    int64_t start, end;
};

// Adds the weighted values [keys, size] to `to`, in registers for 64 numbers at a time.
template <class Number>
inline void weighted_sum(const float* weights, const Number* values, int64_t keys, int64_t size,
                         float share, float* to) {
    const int64_t apart = column_size<Number>(size);
    int64_t d = 0;
    for (; d + 64 <= size; d += 64) {
        __m512 acc[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                         _mm512_setzero_ps()};
        for (int64_t j = 0; j < keys; ++j) {
            const __m512 weight = _mm512_set1_ps(weights[j]);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i)
                acc[i] = _mm512_fmadd_ps(
                    weight, sixteen(values + j * apart + d + i * 16, 0xFFFF), acc[i]);
        }
        for (int i = 0; i < 4; ++i)
            _mm512_storeu_ps(to + d + i * 16, _mm512_mul_ps(acc[i], _mm512_set1_ps(share)));
    }
    if (d == size) return;
    std::fill(to + d, to + size, 0.0f);
    for (int64_t j = 0; j < keys; ++j)
        for (int64_t k = d; k < size; ++k) to[k] += weights[j] * share * one(values + j * apart + k);
}

// Computes softmax(q kᵀ · scale + bias) v of the heads that share keys; `head` is the first of them.
template <class Number>
inline void attend(const Part& part, const Reading<Number>& job, int64_t head, float* to,
                   Room& scratch) {
    constexpr bool BYTE = std::is_same<Number, int8_t>::value;
    const int64_t size = part.size, keys = job.end - job.start;
    const int64_t apart = column_size<Number>(size);
    const Number *first_key = job.keys + job.start * apart;
    const Number *first_value = job.values + job.start * apart;
    const int64_t group = part.heads / part.kv_heads, pitch = (size + 15) / 16 * 16;
    const int64_t columns = (keys + 15) / 16 * 16;
    scratch.fit(ROWS * (pitch + columns));
    float *q = scratch.data(), *weights = q + ROWS * pitch;
    for (int64_t first = 0; first < group; first += ROWS) {
        const int64_t count = std::min(ROWS, group - first);
        for (int64_t h = 0; h < count; ++h) {
            const float* from = job.q + (first + h) * size;
            for (int64_t k = 0; k < size; ++k) q[h * pitch + k] = from[k] * float(part.scale);
            std::fill(q + h * pitch + size, q + (h + 1) * pitch, 0.0f);
        }
        const auto score = [&](int64_t j, auto height, auto wide) {
            float sums[ROWS][OUTPUTS];
            tile<KeyTile<Number>, height.value, wide.value, false>(
                q, pitch * 4, first_key + j * apart, size, apart, sums);
            for (int64_t h = 0; h < height.value; ++h)
                for (int64_t i = 0; i < wide.value; ++i) weights[h * columns + j + i] = sums[h][i];
        };
        const auto scores = [&](auto height) {
            int64_t j = 0;
            for (; j + OUTPUTS <= keys; j += OUTPUTS)
                score(j, height, std::integral_constant<int, OUTPUTS>());
            for (; j < keys; ++j) score(j, height, std::integral_constant<int, 1>());
        };
        by_height(count, scores);
        for (int64_t h = 0; h < count; ++h) {
            float *row = weights + h * columns, most = -INFINITY, sum = 0.0f;
            if constexpr (BYTE)
                for (int64_t j = 0; j < keys; ++j) row[j] *= step_of(first_key + j * apart, size);
            if (part.bias) {
                const float* bias = part.bias + (head + first + h) * part.reach;
                for (int64_t j = 0; j < keys; ++j)
                    row[j] += bias[std::min(keys - 1 - j, part.reach - 1)];
            }
#pragma omp simd reduction(max : most)
            for (int64_t j = 0; j < keys; ++j) most = std::max(most, row[j]);
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < keys; ++j) {
                row[j] = exponential(row[j] - most);
                sum += row[j];
            }
            if constexpr (BYTE)
                for (int64_t j = 0; j < keys; ++j) row[j] *= step_of(first_value + j * apart, size);
            weighted_sum(row, first_value, keys, size, 1.0f / sum, to + (first + h) * size);
        }
    }
}

#include "decode_rows.h"

#endif
