// Tiles of products y = x · Wᵀ for a few rows of x: floats, bfloat16, or bytes with a scale for each
// output. A weight is read once for all rows, in the order of memory, and lines ahead are fetched.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "groups.h"

#ifdef SMALL_BYTES
#include <immintrin.h>

constexpr int64_t OUTPUTS = 4;   // outputs of a tile
constexpr int64_t ROWS = 4;      // rows of a tile
constexpr int64_t LINE = 64;     // bytes of a vector and of a cache line
constexpr int64_t AHEAD = 4096;  // bytes between the line that is read and the one that is fetched

// The sums of four vectors, in one.
static inline __m128 four_sums(const __m512* v) {
    const auto pair = [](__m512 a, __m512 b) {
        return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    };
    const __m512d a = _mm512_castps_pd(pair(v[0], v[1])), b = _mm512_castps_pd(pair(v[2], v[3]));
    const __m512 c = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                   _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

static inline __m128i four_sums(const __m512i* v) {
    const auto pair = [](__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i a = pair(v[0], v[1]), b = pair(v[2], v[3]);
    const __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const __m256i d = _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}

struct FloatTile {
    using Number = float;
    using Vector = __m512;
    using Sum = float;
    static constexpr int64_t STEP = 16;
    static Vector none() { return _mm512_setzero_ps(); }
    static __m512i load(const Number* at) { return _mm512_loadu_si512(at); }
    static __m512i last(const Number* at, int64_t count) {
        return _mm512_castps_si512(_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), at));
    }
    static Vector add(Vector sum, __m512i x, __m512i w) {
        return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), sum);
    }
    static void four(const Vector* v, Sum* to) { _mm_storeu_ps(to, four_sums(v)); }
};

struct ByteTile {
    using Number = int8_t;
    using Vector = __m512i;
    using Sum = int32_t;
    static constexpr int64_t STEP = 64;
    static Vector none() { return _mm512_setzero_si512(); }
    static __m512i load(const Number* at) { return _mm512_loadu_si512(at); }
    static __m512i last(const Number* at, int64_t count) {
        return _mm512_maskz_loadu_epi8((__mmask64(1) << count) - 1, at);
    }
    static Vector add(Vector sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
    static void four(const Vector* v, Sum* to) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), four_sums(v));
    }
};

#ifdef SMALL_HALVES
struct HalfTile {
    using Number = uint16_t;
    using Vector = __m512;
    using Sum = float;
    static constexpr int64_t STEP = 32;
    static Vector none() { return _mm512_setzero_ps(); }
    static __m512i load(const Number* at) { return _mm512_loadu_si512(at); }
    static __m512i last(const Number* at, int64_t count) {
        return _mm512_maskz_loadu_epi16((__mmask32(1) << count) - 1, at);
    }
    static Vector add(Vector sum, __m512i x, __m512i w) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh&>(x),
                                reinterpret_cast<__m512bh&>(w));
    }
    static void four(const Vector* v, Sum* to) { _mm_storeu_ps(to, four_sums(v)); }
};
#endif

// Multiplies R rows of x, padded with zeros up to the pitch, with O rows of W, which begin `apart`
// numbers from each other. FETCH: this is the first time that these rows of W are read.
template <class Kind, int R, int O, bool FETCH>
inline void tile(const void* x, int64_t pitch, const typename Kind::Number* w, int64_t in,
                 int64_t apart, typename Kind::Sum (*sums)[OUTPUTS]) {
    constexpr int64_t STEP = Kind::STEP;
    const char* from = static_cast<const char*>(x);
    const char* ahead = reinterpret_cast<const char*>(w) + AHEAD;
    typename Kind::Vector acc[R][OUTPUTS];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int o = 0; o < OUTPUTS; ++o) acc[r][o] = Kind::none();
    const auto step = [&](const __m512i* v) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const __m512i row = _mm512_load_si512(from + r * pitch);
#pragma GCC unroll 4
            for (int o = 0; o < O; ++o) acc[r][o] = Kind::add(acc[r][o], row, v[o]);
        }
        from += LINE;
    };
    int64_t k = 0;
    for (; k + STEP <= in; k += STEP) {
        __m512i v[O];
#pragma GCC unroll 4
        for (int o = 0; o < O; ++o) {
            v[o] = Kind::load(w + o * apart + k);
            asm("" : "+v"(v[o]));  // keeps it in a register: else it is read again for every row
            if (FETCH) _mm_prefetch(ahead + o * LINE, _MM_HINT_T0);
        }
        ahead += O * LINE;
        step(v);
    }
    if (k < in) {
        __m512i v[O];
#pragma GCC unroll 4
        for (int o = 0; o < O; ++o) v[o] = Kind::last(w + o * apart + k, in - k);
        step(v);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) Kind::four(acc[r], sums[r]);
}

// Calls work with the number of rows of a tile as a constant.
template <class Work>
inline void by_height(int64_t rows, const Work& work) {
    switch (rows) {
        case 1: return work(std::integral_constant<int, 1>());
        case 2: return work(std::integral_constant<int, 2>());
        case 3: return work(std::integral_constant<int, 3>());
        default: return work(std::integral_constant<int, ROWS>());
    }
}

#endif
