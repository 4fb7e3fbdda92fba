// Products of many rows of bytes with a matrix of bytes, such as those of a prompt. A few rows read
// the matrix as it lies (int8.cpp); many rows pay for a copy of 64 outputs at a time, in which the
// same four inputs of 16 outputs are one vector: sums stay apart, and none is added across a vector.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common.h"

#ifdef SMALL_BYTES
#include <immintrin.h>

namespace many {

constexpr int64_t LANES = 16;            // outputs of a vector
constexpr int64_t VECTORS = 4;           // vectors whose sums stay in registers together …
constexpr int64_t HEIGHT = 6;            // … for each of so many rows
constexpr int64_t WIDTH = LANES * VECTORS;
constexpr int64_t FROM = 24;             // rows that pay for the copy

inline bool worth(int64_t rows, int64_t in, int64_t out) {
    return rows >= FROM && in % 4 == 0 && out >= LANES;
}

// Transposes 16 vectors of 16 groups: first inside of lanes of four groups, then the lanes.
inline void transpose(__m512i* x) {
    __m512i pairs[LANES], fours[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i a = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0xdd);
        x[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        x[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
        x[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
        x[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

// Copies up to 64 outputs of W [out, in]: to [in / 4, VECTORS, LANES] groups of four bytes.
inline void pack(const int8_t* w, int64_t in, int64_t count, int32_t* to) {
    const int64_t groups = in / 4;
    for (int64_t v = 0; v < VECTORS; ++v, w += LANES * in) {
        const int64_t rows = std::clamp<int64_t>(count - v * LANES, 0, LANES);
        for (int64_t k = 0; k < groups; k += LANES) {
            const int64_t some = std::min(LANES, groups - k);
            const __mmask16 inside = __mmask16((1u << some) - 1);
            __m512i block[LANES];
            for (int64_t i = 0; i < LANES; ++i)
                block[i] = i < rows ? _mm512_maskz_loadu_epi32(inside, w + i * in + 4 * k)
                                    : _mm512_setzero_si512();
            transpose(block);
            for (int64_t i = 0; i < some; ++i)
                _mm512_store_si512(to + ((k + i) * VECTORS + v) * LANES, block[i]);
        }
    }
}

// Adds the products of HEIGHT rows with the packed outputs.
inline void products(const uint8_t* const* x, int64_t in, const int32_t* w,
                     __m512i (*sums)[VECTORS]) {
    __m512i acc[HEIGHT][VECTORS];  // loops are unrolled, or these are not registers
#pragma GCC unroll 6
    for (int r = 0; r < HEIGHT; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) acc[r][v] = _mm512_setzero_si512();
    for (int64_t k = 0; k < in; k += 4, w += WIDTH) {
        __m512i lines[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) lines[v] = _mm512_load_si512(w + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < HEIGHT; ++r) {
            int32_t four;
            std::memcpy(&four, x[r] + k, 4);
            const __m512i row = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v)
                acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], row, lines[v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < HEIGHT; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) sums[r][v] = acc[r][v];
}

// Computes all products; finish(row, output, mask of outputs, sums of HEIGHT rows) writes those of a
// vector. The last rows are computed with copies of the last one, which finish does not write.
template <class Finish>
void multiply(const uint8_t* x, int64_t pitch, int64_t rows, const int8_t* w, int64_t in,
              int64_t out, int threads, Finish finish) {
    const int64_t blocks = (out + WIDTH - 1) / WIDTH;
#pragma omp parallel num_threads(threads)
    {
        static thread_local std::vector<int32_t> room;
        if (int64_t(room.size()) < in / 4 * WIDTH + LANES) room.resize(in / 4 * WIDTH + LANES);
        const auto at = (reinterpret_cast<uintptr_t>(room.data()) + 63) & ~uintptr_t(63);
        int32_t* packed = reinterpret_cast<int32_t*>(at);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; ++b) {
            const int64_t o = b * WIDTH, count = std::min(WIDTH, out - o);
            pack(w + o * in, in, count, packed);
            for (int64_t r = 0; r < rows; r += HEIGHT) {
                const uint8_t* from[HEIGHT];
                for (int64_t i = 0; i < HEIGHT; ++i) from[i] = x + std::min(r + i, rows - 1) * pitch;
                __m512i sums[HEIGHT][VECTORS];
                products(from, in, packed, sums);
                for (int64_t v = 0; v * LANES < count; ++v) {
                    const int64_t left = std::min(LANES, count - v * LANES);
                    const __m512i column[HEIGHT] = {sums[0][v], sums[1][v], sums[2][v],
                                                    sums[3][v], sums[4][v], sums[5][v]};
                    finish(r, std::min(HEIGHT, rows - r), o + v * LANES,
                           __mmask16((1u << left) - 1), column);
                }
            }
        }
    }
}

}  // namespace many

#endif
