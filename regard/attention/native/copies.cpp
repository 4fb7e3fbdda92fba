// Matrices copied in another order. torch transposes on one thread, and at half of this speed.
//
// A tile of 16 x 16 numbers is turned in registers, so that whole lines of the cache are read and
// written.

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

constexpr int64_t TILE = 16;
constexpr int64_t SIDE = 64;  // of a block that is written at once

#ifdef __AVX512F__
// Writes the columns of 16 rows as rows.
inline void turn(const float* from, int64_t pitch, float* to, int64_t to_pitch) {
    __m512 r[TILE], t[TILE];
    for (int i = 0; i < TILE; ++i) r[i] = _mm512_loadu_ps(from + i * pitch);
    for (int i = 0; i < TILE; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < TILE; i += 4)
        for (int j = 0; j < 2; ++j) {
            const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + 2 + j]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < TILE; i += 8)
        for (int j = 0; j < 4; ++j) {
            t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + 4 + j], 0x88);
            t[i + 4 + j] = _mm512_shuffle_f32x4(r[i + j], r[i + 4 + j], 0xdd);
        }
    for (int j = 0; j < 8; ++j) {
        _mm512_storeu_ps(to + j * to_pitch, _mm512_shuffle_f32x4(t[j], t[8 + j], 0x88));
        _mm512_storeu_ps(to + (8 + j) * to_pitch, _mm512_shuffle_f32x4(t[j], t[8 + j], 0xdd));
    }
}
#else
inline void turn(const float* from, int64_t pitch, float* to, int64_t to_pitch) {
    for (int64_t j = 0; j < TILE; ++j)
        for (int64_t i = 0; i < TILE; ++i) to[j * to_pitch + i] = from[i * pitch + j];
}
#endif

}  // namespace

// to [columns, rows] is from [rows, columns], whose rows begin `pitch` numbers apart.
extern "C" void transpose_fp32(float* to, const float* from, int64_t pitch, int64_t rows,
                               int64_t columns, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < columns; c += SIDE)
        for (int64_t r = 0; r < rows; r += SIDE) {
            const int64_t wide = std::min(SIDE, columns - c), high = std::min(SIDE, rows - r);
            const float* corner = from + r * pitch + c;
            float* out = to + c * rows + r;
            if (wide < SIDE || high < SIDE) {
                for (int64_t j = 0; j < wide; ++j)
                    for (int64_t i = 0; i < high; ++i) out[j * rows + i] = corner[i * pitch + j];
                continue;
            }
            alignas(64) float block[SIDE * SIDE];
            for (int64_t i = 0; i < SIDE; i += TILE)
                for (int64_t j = 0; j < SIDE; j += TILE)
                    turn(corner + i * pitch + j, pitch, block + j * SIDE + i, SIDE);
            for (int64_t j = 0; j < SIDE; ++j)
                std::memcpy(out + j * rows, block + j * SIDE, SIDE * sizeof(float));
        }
}
