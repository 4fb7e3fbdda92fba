// The numbers of a cache: floats, bfloat16, or bytes. A column of bytes ends with a float, the step:
// a byte stands for byte · step.

#pragma once

#include "decode_tiles.h"

#ifdef SMALL_BYTES

// The numbers from one column to the next.
template <class Number>
constexpr int64_t column_size(int64_t size) {
    return std::is_same<Number, int8_t>::value ? size + int64_t(sizeof(float)) : size;
}

static inline float one(const float* at) { return *at; }
static inline float one(const int8_t* at) { return float(*at); }
static inline float one(const uint16_t* at) { return get(Brain{*at}); }

static inline __m512 sixteen(const float* at, __mmask16 some) {
    return _mm512_maskz_loadu_ps(some, at);
}
static inline __m512 sixteen(const uint16_t* at, __mmask16 some) {
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
static inline __m512 sixteen(const int8_t* at, __mmask16 some) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, at)));
}

// The step of a column of bytes.
static inline float step_of(const int8_t* column, int64_t size) {
    float step;
    std::memcpy(&step, column + size, sizeof step);
    return step;
}

static inline void store(const float* x, int64_t size, float* to) { std::copy(x, x + size, to); }

static inline void store(const float* x, int64_t size, uint16_t* to) {
    for (int64_t k = 0; k < size; ++k) {
        Brain half;
        put(half, x[k]);
        to[k] = half.bits;
    }
}

static inline void store(const float* x, int64_t size, int8_t* to) {
    float most = 0.0f, check = 0.0f;
    for (int64_t k = 0; k < size; ++k) {
        most = std::max(most, std::fabs(x[k]));
        check += x[k] * 0.0f;
    }
    const bool finite = check == 0.0f, usable = finite && most > 1e-30f;
    const float inverse = usable ? 127.0f / most : 0.0f, step = usable ? most / 127.0f : check;
    for (int64_t k = 0; k < size; ++k)
        to[k] = finite ? int8_t(int32_t(__builtin_rintf(x[k] * inverse))) : int8_t(0);
    std::memcpy(to + size, &step, sizeof step);
}

// Multiplies floats with the numbers of a cache.
template <class Cached>
struct KeyTile {
    using Number = Cached;
    using Vector = __m512;
    using Sum = float;
    static constexpr int64_t STEP = 16;
    static Vector none() { return _mm512_setzero_ps(); }
    static __m512i load(const Number* at) { return _mm512_castps_si512(sixteen(at, 0xFFFF)); }
    static __m512i last(const Number* at, int64_t count) {
        return _mm512_castps_si512(sixteen(at, __mmask16((1u << count) - 1)));
    }
    static Vector add(Vector sum, __m512i x, __m512i w) { return FloatTile::add(sum, x, w); }
    static void four(const Vector* v, Sum* to) { FloatTile::four(v, to); }
};

#endif
