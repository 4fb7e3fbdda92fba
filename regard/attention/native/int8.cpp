// Products of rows with a matrix of small numbers, y = x · Wᵀ: bytes with a scale for each output,
// or bfloat16. Only for processors that multiply such numbers (AVX512-VNNI; AVX512-BF16).
//
// A weight is read once for many rows, in the order of memory. Rows of x are rounded first: to
// bfloat16, to one byte, or to two bytes, which are multiplied as two rows of bytes. A byte stands
// for (byte - zero) · step; zero · Σ W is subtracted in integers. Outputs are divided among the
// threads, so the number of threads never changes a result.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common.h"
#include "int8_many.h"

#ifdef SMALL_BYTES
#include <immintrin.h>

namespace {

constexpr int64_t TILE = 4;           // rows and outputs whose sums stay in registers together
constexpr int64_t LINE = 64;          // bytes of a vector and of a cache line
constexpr int64_t NEAR = 24 * 1024;   // bytes of rounded rows that stay in the L1 cache
constexpr int64_t ALONE = 16 * 1024;  // up to here one thread rounds faster than two
constexpr int64_t LITTLE = 256 * 1024;  // below this one thread multiplies faster than two

struct Bytes {
    using X = uint8_t;
    using W = int8_t;
    using Sum = int32_t;
    using Vector = __m512i;
    static constexpr int64_t STEP = 64;  // numbers multiplied at once
    static Vector none() { return _mm512_setzero_si512(); }
    static __mmask64 first(int64_t count) {  // a mask of the first `count` elements
        return count < STEP ? (__mmask64(1) << count) - 1 : ~__mmask64(0);
    }
    static __m512i load(__mmask64 mask, const W* at) { return _mm512_maskz_loadu_epi8(mask, at); }
    static Vector add(Vector sum, __m512i x, __m512i w) { return _mm512_dpbusd_epi32(sum, x, w); }
    static void four(const Vector* v, Sum* to) {  // the sum of each of four vectors
        const auto pair = [](Vector a, Vector b) {
            return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        };
        const Vector a = pair(v[0], v[1]), b = pair(v[2], v[3]);
        const Vector c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        const __m256i d =
            _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
        const __m128i e = _mm_add_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), e);
    }
};

#ifdef SMALL_HALVES
struct Halves {
    using X = uint16_t;
    using W = uint16_t;
    using Sum = float;
    using Vector = __m512;
    static constexpr int64_t STEP = 32;
    static Vector none() { return _mm512_setzero_ps(); }
    static __mmask32 first(int64_t count) {
        return count < STEP ? (__mmask32(1) << count) - 1 : ~__mmask32(0);
    }
    static __m512i load(__mmask32 mask, const W* at) { return _mm512_maskz_loadu_epi16(mask, at); }
    static Vector add(Vector sum, __m512i x, __m512i w) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh&>(x),
                                reinterpret_cast<__m512bh&>(w));
    }
    static void four(const Vector* v, Sum* to) {
        for (int i = 0; i < 4; ++i) to[i] = _mm512_reduce_add_ps(v[i]);
    }
};
#endif

// Multiplies R rows of x, padded with zeros, with O rows of W. Meanwhile the next rows of W are
// prefetched line after line: memory is fast only when it is read in order.
template <class Kind, int R, int O>
inline void tile(const typename Kind::X* x, int64_t pitch, const typename Kind::W* w, int64_t in,
                 typename Kind::Sum (*sums)[TILE]) {
    const char* ahead = reinterpret_cast<const char*>(w + O * in);
    typename Kind::Vector acc[R][TILE];  // loops are unrolled, or these are not registers
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int o = 0; o < TILE; ++o) acc[r][o] = Kind::none();
    for (int64_t k = 0; k < in; k += Kind::STEP) {
        const auto inside = Kind::first(in - k);
        __m512i v[O];
#pragma GCC unroll 4
        for (int o = 0; o < O; ++o) {
            v[o] = Kind::load(inside, w + o * in + k);
            asm("" : "+v"(v[o]));  // keeps it in a register: else it is read again for every row
            _mm_prefetch(ahead + o * LINE, _MM_HINT_T0);
        }
        ahead += O * LINE;
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const __m512i row = _mm512_load_si512(x + r * pitch + k);
#pragma GCC unroll 4
            for (int o = 0; o < O; ++o) acc[r][o] = Kind::add(acc[r][o], row, v[o]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) Kind::four(acc[r], sums[r]);
}

// Computes all products, tile by tile; finish(row, rows, output, outputs, sums) writes the results.
// A tile begins at a multiple of its rows, so the two byte rows of one row stay together.
template <class Kind, class Finish>
void multiply(const typename Kind::X* x, int64_t pitch, int64_t rows, const typename Kind::W* w,
              int64_t in, int64_t out, int threads, Finish finish) {
    const int64_t room = NEAR / (pitch * int64_t(sizeof(typename Kind::X)));
    const int64_t block = std::max(TILE, room / TILE * TILE), tiles = (out + TILE - 1) / TILE;
    const int crew = rows * in * out < LITTLE ? 1 : threads;
    const auto work = [&](int64_t r, int64_t o, auto height, auto width) {
        typename Kind::Sum sums[TILE][TILE];
        tile<Kind, height.value, width.value>(x + r * pitch, pitch, w + o * in, in, sums);
        finish(r, height.value, o, width.value, sums);
    };
    const auto across = [&](int64_t r, int64_t o, auto height) {  // the last outputs one by one
        if (o + TILE <= out) return work(r, o, height, std::integral_constant<int, TILE>());
        for (; o < out; ++o) work(r, o, height, std::integral_constant<int, 1>());
    };
#pragma omp parallel num_threads(crew)
    for (int64_t first = 0; first < rows; first += block) {
        const int64_t last = std::min(rows, first + block);
#pragma omp for schedule(static) nowait
        for (int64_t t = 0; t < tiles; ++t)
            for (int64_t r = first; r < last; r += TILE) {
                const int64_t o = t * TILE;
                switch (last - r) {
                    case 1: across(r, o, std::integral_constant<int, 1>()); break;
                    case 2: across(r, o, std::integral_constant<int, 2>()); break;
                    case 3: across(r, o, std::integral_constant<int, 3>()); break;
                    default: across(r, o, std::integral_constant<int, TILE>());
                }
            }
    }
}

// Returns memory for the rounded rows. It is reused, and every row begins at a cache line.
template <class X>
X* room_for(int64_t count) {
    static thread_local std::vector<uint8_t> room;
    const size_t bytes = size_t(count) * sizeof(X) + 64;
    if (room.size() < bytes) room.resize(bytes);
    return reinterpret_cast<X*>((reinterpret_cast<uintptr_t>(room.data()) + 63) & ~uintptr_t(63));
}

struct Rounded {
    float step;       // the distance of two neighboring values; NaN if x is not all finite
    int32_t zero[2];  // the integer that stands for 0: its upper byte and its lower byte
};

// Rounds x to integers from 0 to 255, or to 65535 in two rows of bytes.
template <int PLANES>
Rounded to_bytes(const float* x, int64_t in, uint8_t* to, int64_t pitch) {
    float low = 0.0f, high = 0.0f, check = 0.0f;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : check)
    for (int64_t k = 0; k < in; ++k) {
        low = std::min(low, x[k]);
        high = std::max(high, x[k]);
        check += x[k] * 0.0f;
    }
    const float levels = PLANES == 1 ? 255.0f : 65535.0f, range = high - low;
    const bool told_apart = range > 1e-30f && range < INFINITY;
    const float inverse = told_apart ? levels / range : 0.0f;
    const float zero = told_apart ? std::nearbyint(-low * inverse) : 0.0f;
    for (int64_t k = 0; k < in; ++k) {
        const float q = __builtin_rintf(x[k] * inverse) + zero;
        const int32_t n = int32_t(std::min(levels, std::max(0.0f, q)));
        to[k] = uint8_t(PLANES == 1 ? n : n >> 8);
        if (PLANES == 2) to[pitch + k] = uint8_t(n);
    }
    for (int plane = 0; plane < PLANES; ++plane)
        std::memset(to + plane * pitch + in, 0, size_t(pitch - in));
    const int32_t whole = int32_t(zero);
    return {range / levels + check, {PLANES == 1 ? whole : whole >> 8, whole & 255}};
}

template <int PLANES>
void bytes(float* y, const float* x, int64_t rows, int64_t apart, const int8_t* w,
           const float* scale, const int32_t* total, const float* bias, int64_t in, int64_t out,
           int threads) {
    const int64_t pitch = (in + Bytes::STEP - 1) / Bytes::STEP * Bytes::STEP;
    uint8_t* rounded = room_for<uint8_t>(rows * PLANES * pitch);
    std::vector<Rounded> about(rows);
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * in > ALONE)
    for (int64_t r = 0; r < rows; ++r)
        about[r] = to_bytes<PLANES>(x + r * apart, in, rounded + r * PLANES * pitch, pitch);
    const auto finish = [&](int64_t first, int height, int64_t o, int width, auto sums) {
        for (int i = 0; i + PLANES <= height; i += PLANES) {
            const int64_t r = (first + i) / PLANES;
            const Rounded& row = about[r];
            for (int j = 0; j < width; ++j) {
                float sum = float(sums[i][j] - row.zero[0] * total[o + j]);
                if (PLANES == 2)
                    sum = sum * 256.0f + float(sums[i + 1][j] - row.zero[1] * total[o + j]);
                y[r * out + o + j] =
                    sum * (row.step * scale[o + j]) + (bias ? bias[o + j] : 0.0f);
            }
        }
    };
    if (!many::worth(rows * PLANES, in, out))
        return multiply<Bytes>(rounded, pitch, rows * PLANES, w, in, out, threads, finish);
    const auto finish_many = [&](int64_t first, int64_t height, int64_t o, __mmask16 some,
                                 const __m512i* sums) {
        const __m512i ones = _mm512_maskz_loadu_epi32(some, total + o);
        const __m512 scales = _mm512_maskz_loadu_ps(some, scale + o);
        const __m512 more = bias ? _mm512_maskz_loadu_ps(some, bias + o) : _mm512_setzero_ps();
        const auto without = [&](__m512i sum, int32_t zero) {
            const __m512i too_much = _mm512_mullo_epi32(_mm512_set1_epi32(zero), ones);
            return _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, too_much));
        };
        for (int64_t i = 0; i + PLANES <= height; i += PLANES) {
            const int64_t r = (first + i) / PLANES;
            const Rounded& row = about[r];
            __m512 sum = without(sums[i], row.zero[0]);
            if (PLANES == 2)
                sum = _mm512_fmadd_ps(sum, _mm512_set1_ps(256.0f),
                                      without(sums[i + 1], row.zero[1]));
            const __m512 step = _mm512_mul_ps(_mm512_set1_ps(row.step), scales);
            _mm512_mask_storeu_ps(y + r * out + o, some, _mm512_fmadd_ps(sum, step, more));
        }
    };
    many::multiply(rounded, pitch, rows * PLANES, w, in, out, threads, finish_many);
}

#ifdef SMALL_HALVES
inline uint16_t to_half(float x) {  // rounds to nearest, ties to even; NaN stays NaN
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    return uint16_t(x == x ? (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16 : 0x7FC0);
}
#endif

}  // namespace

// Computes y [rows, out] of x [rows, in] with row stride `apart`; planes: bytes of a rounded element.
extern "C" void product_int8(float* y, const float* x, int64_t rows, int64_t apart, const int8_t* w,
                             const float* scale, const int32_t* total, const float* bias,
                             int64_t in, int64_t out, int planes, int threads) {
    const auto run = planes == 1 ? bytes<1> : bytes<2>;
    run(y, x, rows, apart, w, scale, total, bias, in, out, threads);
}

#ifdef SMALL_HALVES
extern "C" void product_bf16(float* y, const float* x, int64_t rows, int64_t apart,
                             const uint16_t* w, const float* bias, int64_t in, int64_t out,
                             int threads) {
    const int64_t pitch = (in + Halves::STEP - 1) / Halves::STEP * Halves::STEP;
    uint16_t* rounded = room_for<uint16_t>(rows * pitch);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = 0; k < in; ++k) rounded[r * pitch + k] = to_half(x[r * apart + k]);
        std::fill(rounded + r * pitch + in, rounded + (r + 1) * pitch, uint16_t(0));
    }
    const auto finish = [&](int64_t first, int height, int64_t o, int width, auto sums) {
        for (int i = 0; i < height; ++i)
            for (int j = 0; j < width; ++j)
                y[(first + i) * out + o + j] = sums[i][j] + (bias ? bias[o + j] : 0.0f);
    };
    multiply<Halves>(rounded, pitch, rows, w, in, out, threads, finish);
}
#endif

#endif
