// What an encoder computes between its matrix products, for texts that lie one after the other
// without padding: attention text by text, and one pass over rows that adds, normalizes, activates
// and rounds.
//
// Sums are fp32; weights of bfloat16 rows are rounded to bfloat16 where the processor multiplies
// them. A row is computed by one thread in a fixed order, so neither the number of threads
// nor the other texts of a call change a result.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common.h"

#ifdef SMALL_HALVES
#include <immintrin.h>
#endif

namespace {

constexpr int LANES = 16;            // numbers of a vector
constexpr int ROWS = 6;              // query rows that are computed together
constexpr int ACROSS = 4;            // vectors of a row that stay in registers
constexpr int64_t PART = ACROSS * LANES;

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

inline float widened(float x) { return x; }

inline float widened(uint16_t x) {  // bfloat16: the upper half of a float
    const uint32_t wide = uint32_t(x) << 16;
    float y;
    std::memcpy(&y, &wide, 4);
    return y;
}

inline uint16_t halved(float x) {  // rounds to nearest, ties to even; NaN stays NaN
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    return uint16_t(x == x ? (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16 : 0x7FC0);
}

inline void store(float* to, float x) { *to = x; }
inline void store(uint16_t* to, float x) { *to = halved(x); }

// What one step of a product multiplies, in 32 bits: a number …
struct Floats {
    using Word = float;
    static constexpr int64_t DEPTH = 1;  // numbers of a word
    static Lanes add(Lanes sum, Word x, Lanes line) { return sum + x * line; }
    template <class T>
    static Word word(const T* at, int64_t, int64_t) {
        return widened(*at);
    }
    static const Word* weights(const float* row, int64_t, Word*) { return row; }
};

#ifdef SMALL_HALVES
// … or two of bfloat16, whose products are added in fp32.
struct Halves {
    using Word = uint32_t;
    static constexpr int64_t DEPTH = 2;
    static Lanes add(Lanes sum, Word x, Lanes line) {
        const __m512i pairs = _mm512_set1_epi32(int32_t(x)), others = (__m512i)line;
        return (Lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pairs, (__m512bh)others);
    }
    // The number at `at` and the one `apart` from it, which is 0 if it is not one of `left`.
    static Word word(const uint16_t* at, int64_t apart, int64_t left) {
        return Word(*at) | (left > 1 ? Word(at[apart]) << 16 : 0);
    }
    // Rounds a row of weights.
    static const Word* weights(float* row, int64_t count, Word* to) {
        if (count % 2) row[count] = 0.0f;
        for (int64_t j = 0; j < count; j += 2 * LANES)
            _mm512_storeu_si512(to + j / 2, (__m512i)_mm512_cvtne2ps_pbh(
                                                _mm512_loadu_ps(row + j + LANES),
                                                _mm512_loadu_ps(row + j)));
        return to;
    }
};
#endif

// Multiplies ROWS rows a [ROWS, depth] of words with b [depth, PART] into c [ROWS, PART].
template <class Kind, class Word = typename Kind::Word>
inline void multiply(const Word* a, int64_t a_pitch, const Word* b, int64_t b_pitch, float* c,
                     int64_t c_pitch, int64_t depth) {
    Lanes acc[ROWS][ACROSS];
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; ++j) acc[r][j] = Lanes{};
    for (int64_t k = 0; k < depth; ++k) {
        const Lanes* line = reinterpret_cast<const Lanes*>(b + k * b_pitch);
        const Lanes b0 = line[0], b1 = line[1], b2 = line[2], b3 = line[3];
#pragma GCC unroll 6
        for (int r = 0; r < ROWS; ++r) {
            const Word x = a[r * a_pitch + k];
            acc[r][0] = Kind::add(acc[r][0], x, b0);
            acc[r][1] = Kind::add(acc[r][1], x, b1);
            acc[r][2] = Kind::add(acc[r][2], x, b2);
            acc[r][3] = Kind::add(acc[r][3], x, b3);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; ++j)
            reinterpret_cast<Lanes*>(c + r * c_pitch)[j] = acc[r][j];
}

inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The buffers of a thread, which grow and are used again.
template <class Kind>
struct Room {
    std::vector<typename Kind::Word> kt, v, q, weights;
    std::vector<float> scores, out;
};

// A text's keys and values of one head, and what its rows see: `window` rows to each side (all, if
// it is negative) and the keys at `far`.
struct Text {
    int64_t rows, size, window;
    const int64_t* far;
    int64_t fars;
};

// Returns softmax of a row of scores · scale over the keys [low, high) and the far keys outside of
// them, unscaled, and the inverse of its sum. Numbers in [first, last) outside of the row's keys
// become 0.
inline float softmax(float* s, float scale, int64_t first, int64_t last, int64_t low, int64_t high,
                     float* extra, int64_t extras) {
    float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
    for (int64_t j = low; j < high; ++j) most = s[j] > most ? s[j] : most;
    for (int64_t e = 0; e < extras; ++e) most = std::max(most, extra[e]);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = low; j < high; ++j) {
        s[j] = exponential((s[j] - most) * scale);
        sum += s[j];
    }
    for (int64_t e = 0; e < extras; ++e) {
        extra[e] = exponential((extra[e] - most) * scale);
        sum += extra[e];
    }
    std::fill(s + first, s + low, 0.0f);
    std::fill(s + high, s + last, 0.0f);
    return 1.0f / sum;
}

// One head of one text; q, k, v are its first rows, `apart` numbers apart, as those of y.
template <class Kind, class T>
void head(const T* q, const T* k, const T* v, int64_t apart, T* y, int64_t y_apart, float scale,
          const Text& text, Room<Kind>& room) {
    using Word = typename Kind::Word;
    constexpr int64_t DEPTH = Kind::DEPTH;
    const int64_t rows = text.rows, size = text.size;
    const int64_t columns = up(rows, PART), wide = up(size, PART), deep = up(size, DEPTH) / DEPTH;
    room.kt.resize(deep * columns);
    room.v.resize(up(rows, DEPTH) / DEPTH * wide);
    room.q.resize(ROWS * deep);
    room.weights.resize(ROWS * columns / DEPTH);
    room.scores.resize(ROWS * columns);
    room.out.resize(ROWS * wide);
    Word *kt = room.kt.data(), *values = room.v.data(), *some = room.q.data();
    float *scores = room.scores.data(), *out = room.out.data();
    for (int64_t from = 0; from < columns; from += LANES)  // transposed in blocks of lines
        for (int64_t d = 0; d < deep; ++d)
            for (int64_t j = from; j < from + LANES; ++j)
                kt[d * columns + j] =
                    j < rows ? Kind::word(k + j * apart + d * DEPTH, 1, size - d * DEPTH) : Word(0);
    for (int64_t j = 0; j * DEPTH < rows; ++j) {
        for (int64_t d = 0; d < size; ++d)
            values[j * wide + d] = Kind::word(v + j * DEPTH * apart + d, apart, rows - j * DEPTH);
        std::fill(values + j * wide + size, values + (j + 1) * wide, Word(0));
    }
    std::vector<float> extra(ROWS * text.fars);
    std::vector<int64_t> where(ROWS * text.fars);
    for (int64_t i = 0; i < rows; i += ROWS) {
        const int64_t count = std::min<int64_t>(ROWS, rows - i);
        for (int64_t r = 0; r < ROWS; ++r)
            for (int64_t d = 0; d < deep; ++d)
                some[r * deep + d] = r < count ? Kind::word(q + (i + r) * apart + d * DEPTH, 1,
                                                            size - d * DEPTH) : Word(0);
        const bool near = text.window >= 0;
        const int64_t begin = near ? std::max<int64_t>(0, i - text.window) / PART * PART : 0;
        const int64_t end = near ? std::min(rows, i + count + text.window) : rows;
        for (int64_t j = begin; j < end; j += PART)
            multiply<Kind>(some, deep, kt + j, columns, scores + j, columns, deep);
        float inverse[ROWS] = {};
        int64_t extras[ROWS] = {};
        const Word* shares = nullptr;
        for (int64_t r = 0; r < ROWS; ++r) {
            float* s = scores + r * columns;
            if (r >= count) {
                std::fill(s + begin, s + end, 0.0f);
            } else {
                const int64_t low = near ? std::max<int64_t>(0, i + r - text.window) : 0;
                const int64_t high = near ? std::min(rows, i + r + text.window + 1) : rows;
                for (int64_t e = 0; e < text.fars; ++e) {
                    const int64_t j = text.far[e];
                    if (j >= low && j < high) continue;
                    float dot = 0.0f;
                    for (int64_t d = 0; d < size; ++d)
                        dot += widened(q[(i + r) * apart + d]) * widened(k[j * apart + d]);
                    where[r * text.fars + extras[r]] = j;
                    extra[r * text.fars + extras[r]++] = dot;
                }
                inverse[r] = softmax(s, scale, begin, end, low, high, &extra[r * text.fars],
                                     extras[r]);
            }
            const Word* line = Kind::weights(s + begin, end - begin,
                                             room.weights.data() + r * columns / DEPTH);
            if (r == 0) shares = line;
        }
        for (int64_t d = 0; d < wide; d += PART)
            multiply<Kind>(shares, columns / DEPTH, values + begin / DEPTH * wide + d, wide,
                           out + d, wide, up(end - begin, DEPTH) / DEPTH);
        for (int64_t r = 0; r < count; ++r) {
            for (int64_t e = 0; e < extras[r]; ++e) {
                const float share = extra[r * text.fars + e];
                const T* line = v + where[r * text.fars + e] * apart;
                for (int64_t d = 0; d < size; ++d) out[r * wide + d] += share * widened(line[d]);
            }
            for (int64_t d = 0; d < size; ++d)
                store(y + (i + r) * y_apart + d, out[r * wide + d] * inverse[r]);
        }
    }
}

// qkv [N, 3 · heads · size] holds the rows of all texts; text t has the rows edges[t] … edges[t + 1]
// and the far keys far[far_edges[t]] … far[far_edges[t + 1]], counted from its first row.
template <class Kind, class T>
void attend(T* y, const T* qkv, const int64_t* edges, int64_t texts, int64_t heads, int64_t size,
            float scale, int64_t window, const int64_t* far, const int64_t* far_edges,
            int threads) {
    const int64_t inner = heads * size, apart = 3 * inner;
#pragma omp parallel num_threads(threads)
    {
        Room<Kind> room;
#pragma omp for schedule(dynamic)
        for (int64_t n = 0; n < texts * heads; ++n) {
            const int64_t t = n / heads, h = n % heads, first = edges[t];
            const int64_t fars = far == nullptr ? 0 : far_edges[t + 1] - far_edges[t];
            const Text text{edges[t + 1] - first, size, window,
                            fars ? far + far_edges[t] : nullptr, fars};
            const T* q = qkv + first * apart + h * size;
            head(q, q + inner, q + 2 * inner, apart, y + first * inner + h * size, inner, scale,
                 text, room);
        }
    }
}

inline float tanh_of(float x) {
    const float e = exponential(-2.0f * std::fabs(x));
    return std::copysign((1.0f - e) / (1.0f + e), x);
}

inline float erf_of(float x) {  // Abramowitz and Stegun 7.1.26: within 1.5e-7
    const float a = std::fabs(x), t = 1.0f / (1.0f + 0.3275911f * a);
    const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f +
                    t * (-1.453152027f + t * 1.061405429f))));
    return std::copysign(1.0f - p * exponential(-a * a), x);
}

enum Activation { NONE, RELU, GELU, GELU_TANH };

inline void activate(float* x, int64_t width, int kind) {
    if (kind == RELU) {
        for (int64_t j = 0; j < width; ++j) x[j] = x[j] > 0.0f ? x[j] : 0.0f;
    } else if (kind == GELU) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) x[j] *= 0.5f * (1.0f + erf_of(x[j] * 0.70710678f));
    } else if (kind == GELU_TANH) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
            const float u = 0.79788456f * (x[j] + 0.044715f * x[j] * x[j] * x[j]);
            x[j] *= 0.5f * (1.0f + tanh_of(u));
        }
    }
}

inline void normalize(float* x, int64_t width, const float* weight, const float* bias, float eps) {
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < width; ++j) sum += x[j];
    const float mean = sum / width;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < width; ++j) squares += (x[j] - mean) * (x[j] - mean);
    const float inverse = 1.0f / std::sqrt(squares / width + eps);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) x[j] = (x[j] - mean) * inverse * weight[j] + bias[j];
}

// Rounds a row to bytes; a byte stands for (byte - zero) · step, and 0 is one of the values.
inline void round_row(const float* x, int64_t width, uint8_t* to, float* step, int32_t* zero) {
    float low = 0.0f, high = 0.0f, check = 0.0f;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : check)
    for (int64_t j = 0; j < width; ++j) {
        low = std::min(low, x[j]);
        high = std::max(high, x[j]);
        check += x[j] * 0.0f;
    }
    const float range = high - low;
    const bool told_apart = range > 1e-30f && range < INFINITY;
    const float inverse = told_apart ? 255.0f / range : 0.0f;
    const float origin = told_apart ? std::nearbyint(-low * inverse) : 0.0f;
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
        const float q = __builtin_rintf(x[j] * inverse) + origin;
        to[j] = uint8_t(int32_t(std::min(255.0f, std::max(0.0f, q))));
    }
    *step = range / 255.0f + check;  // NaN if x is not all finite
    *zero = int32_t(origin);
}

}  // namespace

// One pass over rows. Every address may be null: what it stands for is then left out.
struct Pass {
    const float* full;        // the rows: fp32 …
    const uint16_t* half;     // … or bfloat16
    const float* step;        // sums of bytes: the step and the zero of each row, …
    const int32_t* zero;
    const int32_t* total;     // … the sum of the weights, the scale and the bias of each output
    const float* scale;
    const float* bias;
    const float* residual;    // is added
    const float* weight;      // of the norm
    const float* offset;
    float* to_full;           // the results
    uint16_t* to_half;
    uint8_t* to_bytes;
    float* to_step;
    int32_t* to_zero;
    int64_t rows, width, activation;
    double eps;
};

extern "C" void rows_pass(const Pass* pass, int threads) {
    const Pass& p = *pass;
    const int64_t width = p.width;
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> room(width);
        float* x = room.data();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < p.rows; ++r) {
            const int64_t at = r * width;
            if (p.half) {
#pragma omp simd
                for (int64_t j = 0; j < width; ++j) x[j] = widened(p.half[at + j]);
            } else if (p.step) {
                const float step = p.step[r], zero = float(p.zero[r]);
#pragma omp simd
                for (int64_t j = 0; j < width; ++j)
                    x[j] = (p.full[at + j] - zero * float(p.total[j])) * (step * p.scale[j]);
                if (p.bias)
#pragma omp simd
                    for (int64_t j = 0; j < width; ++j) x[j] += p.bias[j];
            } else
                std::memcpy(x, p.full + at, size_t(width) * sizeof(float));
            activate(x, width, int(p.activation));
            if (p.residual)
#pragma omp simd
                for (int64_t j = 0; j < width; ++j) x[j] += p.residual[at + j];
            if (p.weight) normalize(x, width, p.weight, p.offset, float(p.eps));
            if (p.to_full) std::memcpy(p.to_full + at, x, size_t(width) * sizeof(float));
            if (p.to_half)
#pragma omp simd
                for (int64_t j = 0; j < width; ++j) p.to_half[at + j] = halved(x[j]);
            if (p.to_bytes) round_row(x, width, p.to_bytes + at, p.to_step + r, p.to_zero + r);
        }
    }
}

extern "C" void attend_texts_fp32(float* y, const float* qkv, const int64_t* edges, int64_t texts,
                                  int64_t heads, int64_t size, float scale, int64_t window,
                                  const int64_t* far, const int64_t* far_edges, int threads) {
    attend<Floats>(y, qkv, edges, texts, heads, size, scale, window, far, far_edges, threads);
}

#ifdef SMALL_HALVES
using Quickest = Halves;
#else
using Quickest = Floats;
#endif

extern "C" void attend_texts_bf16(uint16_t* y, const uint16_t* qkv, const int64_t* edges,
                                  int64_t texts, int64_t heads, int64_t size, float scale,
                                  int64_t window, const int64_t* far, const int64_t* far_edges,
                                  int threads) {
    attend<Quickest>(y, qkv, edges, texts, heads, size, scale, window, far, far_edges, threads);
}
