// The loss of rows of logits and its gradient, without tables of probabilities in between.
//
// A row is read twice while it is in the cache, and overwritten by its gradient. Sums are fp32 over
// short pieces and fp64 over a row. Rows are independent, so the number of threads never changes a
// result.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common.h"

namespace {

constexpr int64_t PIECE = 1024;

// The loss of a row is own · s_target + other · Σ s_k + z · (log Z)² with s_k = -log p_k; the sum
// leaves out the word `without` (-1: none).
struct Soft {
    double own, other, z;
    int64_t without;
};

template <class T>
void surprisal(T* scores, int64_t pitch, const int64_t* targets, const float* shares, float* costs,
               const Soft& soft, int64_t rows, int64_t words, int learn, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < rows; ++n) {
        T* s = scores + n * pitch;
        float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
        for (int64_t j = 0; j < words; ++j) most = get(s[j]) > most ? get(s[j]) : most;
        double sum = 0.0, all = 0.0;
        for (int64_t from = 0; from < words; from += PIECE) {
            const int64_t to = std::min(words, from + PIECE);
            float part = 0.0f, plain = 0.0f;
#pragma omp simd reduction(+ : part, plain)
            for (int64_t j = from; j < to; ++j) {
                const float x = get(s[j]) - most;
                plain += x;
                part += exponential(x);
            }
            sum += part;
            all += plain;
        }
        const int64_t target = targets[n];
        const double log_sum = std::log(sum), log_z = log_sum + most;
        const double own = get(s[target]) - most - log_sum;  // log p of the target
        const float share = shares ? shares[n] : 1.0f;
        double cost = soft.z * log_z * log_z - soft.own * own;
        if (soft.other != 0.0) {
            double rest = all - words * log_sum;
            if (soft.without >= 0) rest -= get(s[soft.without]) - most - log_sum;
            cost -= soft.other * rest;
        }
        costs[n] = float(cost * share);
        if (!learn) continue;
        const int64_t counted = words - (soft.without >= 0);
        const double weight = soft.own + soft.other * counted + 2.0 * soft.z * log_z;
        const float factor = float(weight * share / sum), less = float(soft.other) * share;
        for (int64_t j = 0; j < words; ++j)
            put(s[j], exponential(get(s[j]) - most) * factor - less);
        // These two are computed from the exact numbers, not from the rounded results.
        const auto slope = [&](int64_t word, double log_p) {
            const double p = std::exp(log_p);
            return p * weight - (word == soft.without ? 0.0 : soft.other) -
                   (word == target ? soft.own : 0.0);
        };
        put(s[target], float(slope(target, own) * share));
        if (soft.without >= 0 && soft.without != target)
            put(s[soft.without], get(s[soft.without]) + less);
    }
}

}  // namespace

#define EXPORT(NAME, TYPE)                                                                        \
    extern "C" void surprisal_##NAME(TYPE* scores, int64_t pitch, const int64_t* targets,         \
                                     const float* shares, float* costs, double own, double other, \
                                     double z, int64_t without, int64_t rows, int64_t words,      \
                                     int learn, int threads) {                                    \
        surprisal(scores, pitch, targets, shares, costs, Soft{own, other, z, without}, rows,      \
                  words, learn, threads);                                                         \
    }

EXPORT(fp32, float)
EXPORT(bf16, Brain)
