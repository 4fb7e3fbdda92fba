// Tiles of products y = x · Wᵀ for matrices of 4 bits. 32 neighboring inputs of an output are a
// group; a weight is scale · n + low with n from 0 to 15. Rows of x are rounded to bytes by the same
// groups, x ≈ step · q, so that Σ w x = scale · step · Σ n q + low · step · Σ q for each group.
//
// A block holds a group of 16 outputs: 16 scales and 16 lows as bfloat16, then four lines of 16 × 4
// bytes. Byte j of output o in line i holds input 8 i + j in its lower half, 8 i + 4 + j in its upper.

#pragma once

#include "common.h"

#ifdef SMALL_BYTES
#include <immintrin.h>

#include <algorithm>
#include <cmath>

constexpr int64_t GROUP = 32;                              // inputs
constexpr int64_t LANES = 16;                              // outputs
constexpr int64_t BLOCK = LANES * 4 + LANES * GROUP / 2;   // bytes
constexpr int64_t AT_ONCE = 4;                             // rows that share a block

static inline int64_t groups_of(int64_t in) { return (in + GROUP - 1) / GROUP; }

// The bytes of a rounded row: its numbers, then the step and step · Σ q of each group.
static inline int64_t grouped_pitch(int64_t in) {
    return (groups_of(in) * (GROUP + 8) + 63) / 64 * 64;
}

static inline void round_groups(const float* x, int64_t in, void* to) {
    const int64_t groups = groups_of(in);
    int8_t* numbers = static_cast<int8_t*>(to);
    float* steps = reinterpret_cast<float*>(numbers + groups * GROUP);
    for (int64_t g = 0; g < groups; ++g) {
        const int64_t count = std::min(GROUP, in - g * GROUP);
        const float* from = x + g * GROUP;
        int8_t* q = numbers + g * GROUP;
        float most = 0.0f, check = 0.0f;
#pragma omp simd reduction(max : most) reduction(+ : check)
        for (int64_t k = 0; k < count; ++k) {
            most = std::max(most, std::fabs(from[k]));
            check += from[k] * 0.0f;
        }
        const bool told_apart = most > 1e-30f && most < INFINITY && check == 0.0f;
        const float inverse = told_apart ? 127.0f / most : 0.0f;
        int32_t sum = 0;
        if (told_apart) {
            for (int64_t k = 0; k < count; ++k) {
                const int32_t n = int32_t(__builtin_rintf(from[k] * inverse));
                q[k] = int8_t(n);
                sum += n;
            }
        } else {
            std::memset(q, 0, size_t(count));
        }
        std::memset(q + count, 0, size_t(GROUP - count));
        steps[g] = (told_apart ? most / 127.0f : 0.0f) + check;
        steps[groups + g] = steps[g] * float(sum);
    }
}

static inline __m512 brains(const uint8_t* at) {  // 16 numbers of bfloat16
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Multiplies R rounded rows with 16 outputs; the sums are [R][16].
template <int R>
inline void grouped_tile(const uint8_t* rows, int64_t pitch, int64_t groups, const uint8_t* block,
                         __m512* sums) {
    constexpr int64_t AHEAD_OF = 4096;  // bytes between the line that is read and the one fetched
    const __m512i lower = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; ++g, block += BLOCK) {
        __m512i even[R], odd[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) even[r] = odd[r] = _mm512_setzero_si512();
#pragma GCC unroll 5
        for (int64_t line = 0; line < BLOCK; line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(block + AHEAD_OF + line), _MM_HINT_T0);
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) {
            const __m512i both = _mm512_loadu_si512(block + LANES * 4 + i * 64);
            const __m512i first = _mm512_and_si512(both, lower);
            const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), lower);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                int32_t four[2];
                std::memcpy(four, rows + r * pitch + g * GROUP + i * 8, 8);
                even[r] = _mm512_dpbusd_epi32(even[r], first, _mm512_set1_epi32(four[0]));
                odd[r] = _mm512_dpbusd_epi32(odd[r], second, _mm512_set1_epi32(four[1]));
            }
        }
        const __m512 scale = brains(block), low = brains(block + LANES * 2);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const auto* steps = reinterpret_cast<const float*>(rows + r * pitch + groups * GROUP);
            const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(even[r], odd[r]));
            const __m512 unit = _mm512_mul_ps(scale, _mm512_set1_ps(steps[g]));
            const __m512 added = _mm512_fmadd_ps(low, _mm512_set1_ps(steps[groups + g]), sums[r]);
            sums[r] = _mm512_fmadd_ps(dot, unit, added);
        }
    }
}

// Computes outputs start … end (start is a multiple of 16) of rounded rows; write(row, output, mask,
// sums) takes up to 16 results at once. The sums of a row do not depend on the other rows.
template <class Write>
inline void grouped_products(const uint8_t* rows, int64_t pitch, int64_t count, const uint8_t* w,
                             int64_t in, int64_t start, int64_t end, const Write& write) {
    const int64_t groups = groups_of(in);
    for (int64_t o = start; o < end; o += LANES) {
        const auto some = __mmask16(end - o < LANES ? (1u << (end - o)) - 1 : 0xFFFFu);
        const uint8_t* block = w + o / LANES * groups * BLOCK;
        for (int64_t r = 0; r < count; r += AT_ONCE) {
            __m512 sums[AT_ONCE];
            const uint8_t* from = rows + r * pitch;
            const int64_t height = std::min(AT_ONCE, count - r);
            switch (height) {
                case 1: grouped_tile<1>(from, pitch, groups, block, sums); break;
                case 2: grouped_tile<2>(from, pitch, groups, block, sums); break;
                case 3: grouped_tile<3>(from, pitch, groups, block, sums); break;
                default: grouped_tile<AT_ONCE>(from, pitch, groups, block, sums);
            }
            for (int64_t i = 0; i < height; ++i) write(r + i, o, some, sums[i]);
        }
    }
}

#endif
