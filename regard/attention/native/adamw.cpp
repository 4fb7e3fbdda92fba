// A step of AdamW (Loshchilov and Hutter 2019) that clips: each number is read and written once.
//
// It rounds as torch's fused kernel does where numbers fill its vectors. Numbers are independent of
// each other, so the number of threads never changes a result.

#include <cmath>
#include <cstdint>

#pragma GCC optimize("fp-contract=off")  // what is fused is written as such

namespace {

struct Rule {  // what all numbers of a tensor share
    float rate, root;  // -lr / (1 - beta1^step), √(1 - beta2^step)
    float shrink, remain;  // what gradients, and weights, are multiplied by
    float new1, beta2, new2, eps;  // new1 and new2 are 1 - beta1 and 1 - beta2
};

inline void change(float& p, float g, float& m, float& v, const Rule& by) {
    const float slope = g * by.shrink;
    const bool near = by.new1 < 0.5f;  // from which end it interpolates
    m = std::fma(near ? by.new1 : by.new1 - 1.0f, slope - m, near ? m : slope);
    const float part = by.new2 * slope;
    v = std::fma(part, slope, v * by.beta2);
    p = p * by.remain + by.rate * m / (std::sqrt(v) / by.root + by.eps);
}

}  // namespace

// Rates and roots differ from tensor to tensor.
extern "C" void adamw(float* const* weights, const float* const* grads, float* const* means,
                      float* const* squares, const int64_t* counts, const float* rates,
                      const float* roots, int64_t tensors, float shrink, float remain, float new1,
                      float beta2, float new2, float eps, int threads) {
#pragma omp parallel num_threads(threads)
    for (int64_t t = 0; t < tensors; ++t) {
        float *p = weights[t], *m = means[t], *v = squares[t];
        const float* g = grads[t];
        const Rule by{rates[t], roots[t], shrink, remain, new1, beta2, new2, eps};
#pragma omp for simd schedule(static) nowait
        for (int64_t i = 0; i < counts[t]; ++i) change(p[i], g[i], m[i], v[i], by);
    }
}
