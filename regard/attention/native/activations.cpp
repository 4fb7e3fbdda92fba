// GELU in its tanh form and SiLU, forward and backward in one pass each, and the same times a second
// input. Both are x · s(u) with the logistic function s; what is kept for the gradient is the input.
//
// All is computed in fp32. Elements are independent, so the number of threads never changes a result.

#include <cmath>
#include <cstdint>

#include "common.h"

namespace {

struct Point {
    float value, slope;
};

// Returns s(u) and its slope from e = exp(-|u|), so that nothing cancels where s is small.
inline Point logistic(float u) {
    const float e = exponential(-std::fabs(u)), by = 1.0f / (1.0f + e);
    return {(u < 0.0f ? e : 1.0f) * by, e * by * by};
}

struct GeluTanh {  // 2 √(2/π) (x + 0.044715 x³), since (1 + tanh(u)) / 2 = s(2u)
    static Point at(float x) {
        constexpr float first = 1.5957691216f, third = 0.0713548163f;
        const float square = x * x;
        const Point s = logistic(x * (first + third * square));
        return {x * s.value, s.value + x * s.slope * (first + 3.0f * third * square)};
    }
};

struct Silu {
    static Point at(float x) {
        const Point s = logistic(x);
        return {x * s.value, s.value + x * s.slope};
    }
};

template <class Kind, class T>
void forward(T* y, const T* x, const T* factor, int64_t count, int threads) {
#pragma omp parallel num_threads(threads)
    {
        if (factor == nullptr) {
#pragma omp for simd schedule(static)
            for (int64_t j = 0; j < count; ++j) put(y[j], Kind::at(get(x[j])).value);
        } else {
#pragma omp for simd schedule(static)
            for (int64_t j = 0; j < count; ++j)
                put(y[j], Kind::at(get(x[j])).value * get(factor[j]));
        }
    }
}

template <class Kind, class T>
void backward(T* grad_x, T* grad_factor, const T* grad, const T* x, const T* factor, int64_t count,
              int threads) {
#pragma omp parallel num_threads(threads)
    {
        if (factor == nullptr) {
#pragma omp for simd schedule(static)
            for (int64_t j = 0; j < count; ++j)
                put(grad_x[j], get(grad[j]) * Kind::at(get(x[j])).slope);
        } else {
#pragma omp for simd schedule(static)
            for (int64_t j = 0; j < count; ++j) {
                const Point here = Kind::at(get(x[j]));
                const float g = get(grad[j]);
                put(grad_x[j], g * get(factor[j]) * here.slope);
                put(grad_factor[j], g * here.value);
            }
        }
    }
}

}  // namespace

// kind: 0 GELU (tanh), 1 SiLU. `factor` may be null.
#define EXPORT(NAME, TYPE)                                                                         \
    extern "C" void activate_##NAME(TYPE* y, const TYPE* x, const TYPE* factor, int kind,          \
                                    int64_t count, int threads) {                                  \
        (kind == 0 ? forward<GeluTanh, TYPE> : forward<Silu, TYPE>)(y, x, factor, count, threads); \
    }                                                                                              \
    extern "C" void activate_back_##NAME(TYPE* grad_x, TYPE* grad_factor, const TYPE* grad,        \
                                         const TYPE* x, const TYPE* factor, int kind,              \
                                         int64_t count, int threads) {                             \
        (kind == 0 ? backward<GeluTanh, TYPE> : backward<Silu, TYPE>)(grad_x, grad_factor, grad,   \
                                                                      x, factor, count, threads);  \
    }

EXPORT(bf16, Brain)
