// The norm of Llama and T5 (Zhang and Sennrich 2019): one pass over a row forward, one backward.
//
// Sums are fp32, by lanes in a fixed order. The gradient of the weight is summed by each thread over
// its own rows, and then thread by thread: it depends on the number of threads, as in torch.

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

inline float inverse_of(const float* x, int64_t width, float eps) {
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < width; ++j) squares += x[j] * x[j];
    return 1.0f / std::sqrt(squares / float(width) + eps);
}

}  // namespace

// y = x · inverse · weight; `inverse` [rows] is kept for the gradient.
extern "C" void rms_norm(float* y, float* inverse, const float* x, const float* weight, double eps,
                         int64_t rows, int64_t width, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
        const float* from = x + r * width;
        float* to = y + r * width;
        const float by = inverse[r] = inverse_of(from, width, float(eps));
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) to[j] = from[j] * by * weight[j];
    }
}

extern "C" void rms_norm_back(float* grad_x, float* grad_weight, const float* grad, const float* x,
                              const float* weight, const float* inverse, int64_t rows,
                              int64_t width, int threads) {
    std::vector<float> sums(size_t(threads) * size_t(width), 0.0f);
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; ++t) {
        float* sum = sums.data() + int64_t(t) * width;
        for (int64_t r = rows * t / threads; r < rows * (t + 1) / threads; ++r) {
            const float *g = grad + r * width, *from = x + r * width;
            float* to = grad_x + r * width;
            const float by = inverse[r];
            float both = 0.0f;
#pragma omp simd reduction(+ : both)
            for (int64_t j = 0; j < width; ++j) both += g[j] * weight[j] * from[j];
            const float share = both * by * by * by / float(width);
#pragma omp simd
            for (int64_t j = 0; j < width; ++j) {
                sum[j] += g[j] * from[j] * by;
                to[j] = g[j] * weight[j] * by - from[j] * share;
            }
        }
    }
    for (int64_t j = 0; j < width; ++j) grad_weight[j] = 0.0f;
    for (int t = 0; t < threads; ++t)
        for (int64_t j = 0; j < width; ++j) grad_weight[j] += sums[int64_t(t) * width + j];
}
