// Rotary positions: one pass over the queries or the keys, which may lie in memory in any order.
//
// Each row is computed in fp32 and written once. Rows are divided among the threads, so their number
// never changes a result.

#include <cstdint>

#include "common.h"

namespace {

// Strides count numbers, of batch, head and row.
template <class T>
void rotate(T* y, const T* x, const T* cosines, const T* sines, const int64_t* y_strides,
            const int64_t* x_strides, int64_t angle_stride, int64_t batch, int64_t heads,
            int64_t rows, int64_t half, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < batch * rows; ++n) {
        const int64_t b = n / rows, i = n % rows, at = b * angle_stride + i * half;
        for (int64_t h = 0; h < heads; ++h) {
            const T* from = x + b * x_strides[0] + h * x_strides[1] + i * x_strides[2];
            T* to = y + b * y_strides[0] + h * y_strides[1] + i * y_strides[2];
#pragma omp simd
            for (int64_t j = 0; j < half; ++j) {
                const float c = get(cosines[at + j]), s = get(sines[at + j]);
                const float first = get(from[j]), second = get(from[half + j]);
                put(to[j], first * c - second * s);
                put(to[half + j], second * c + first * s);
            }
        }
    }
}

}  // namespace

#define EXPORT(NAME, TYPE)                                                                        \
    extern "C" void rotate_##NAME(TYPE* y, const TYPE* x, const TYPE* cosines, const TYPE* sines, \
                                  const int64_t* y_strides, const int64_t* x_strides,             \
                                  int64_t angle_stride, int64_t batch, int64_t heads,             \
                                  int64_t rows, int64_t half, int threads) {                      \
        rotate(y, x, cosines, sines, y_strides, x_strides, angle_stride, batch, heads, rows,      \
               half, threads);                                                                    \
    }

EXPORT(fp32, float)
EXPORT(bf16, Brain)
