// Products of rows with a matrix of 4 bits, y = x · Wᵀ. Only for processors that multiply bytes
// (AVX512-VNNI). Outputs are divided among the threads, so their number never changes a result.

#include "groups.h"

#ifdef SMALL_BYTES

#include <vector>

namespace {

constexpr int64_t LITTLE = 256 * 1024;  // below this many products one thread is faster than two
constexpr int64_t ALONE = 16 * 1024;    // up to here one thread rounds faster than two

}  // namespace

// Computes y [rows, out] of x [rows, in] with row stride `apart`; w is made of blocks (groups.h).
extern "C" void product_int4(float* y, const float* x, int64_t rows, int64_t apart,
                             const uint8_t* w, const float* bias, int64_t in, int64_t out,
                             int threads) {
    static thread_local std::vector<uint8_t> room;
    const int64_t pitch = grouped_pitch(in), tiles = (out + LANES - 1) / LANES;
    if (int64_t(room.size()) < rows * pitch + 64) room.resize(size_t(rows * pitch + 64));
    const auto first = (reinterpret_cast<uintptr_t>(room.data()) + 63) & ~uintptr_t(63);
    uint8_t* rounded = reinterpret_cast<uint8_t*>(first);
    const auto write = [&](int64_t r, int64_t o, __mmask16 some, __m512 sums) {
        if (bias) sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(some, bias + o));
        _mm512_mask_storeu_ps(y + r * out + o, some, sums);
    };
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * in > ALONE)
    for (int64_t r = 0; r < rows; ++r) round_groups(x + r * apart, in, rounded + r * pitch);
    const int crew = rows * in * out < LITTLE ? 1 : threads;
#pragma omp parallel for schedule(static) num_threads(crew)
    for (int64_t t = 0; t < tiles; ++t)
        grouped_products(rounded, pitch, rows, w, in, t * LANES,
                         std::min(out, (t + 1) * LANES), write);
}

#endif
