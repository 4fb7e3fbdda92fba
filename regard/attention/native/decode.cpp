// Reads one more token for each of a few rows: all layers of a decoder and its logits in one call.
//
// The threads of one parallel region follow the plan together and wait for each other at light
// barriers. Outputs, heads and rows are divided among them, so their number never changes a result.

#include <omp.h>

#include <utility>

#include "decode_parts.h"

#ifdef SMALL_BYTES

#include "barrier.h"
#include "decode_relative.h"

namespace {

constexpr int64_t LITTLE = 512 * 1024;  // below this many weights one thread is faster than two

// What the threads of one step share.
class Decoder {
    const Plan& plan;
    const Step& step;
    const int64_t batch, width;
    Room &x, &near, &wide, &gated, &read;
    Rows rows;
    Barrier barrier;

    static Room& room(int number) {
        static thread_local Room rooms[6];
        return rooms[number];
    }

  public:
    Decoder(const Plan& plan, const Step& step)
        : plan(plan), step(step), batch(step.batch), width(plan.width), x(room(0)), near(room(1)),
          wide(room(2)), gated(room(3)), read(room(4)), rows(room(5), step.batch) {
        int64_t most = width, inner = 0, gate = 0, longest = width;
        for (int64_t i = 0; i < plan.count; ++i) {
            const Part& part = plan.parts[i];
            most = std::max(most, part.first.out);
            longest = std::max({longest, part.first.in, part.last.in});
            gate = std::max(gate, part.gate.out);
            if (part.kind != NETWORK) inner = std::max(inner, part.heads * part.size);
        }
        x.fit(batch * width);
        near.fit(batch * width);
        wide.fit(batch * most);
        gated.fit(batch * gate);
        read.fit(batch * inner);
        rows.fit(longest);
    }

    // Applies norms and rounds the rows of `from` [batch, m.in] as the matrix needs them.
    void prepare(const float* from, const Matrix& m, int me, int crew) {
        for (int64_t r = me; r < batch; r += crew) rows.set(r, from + r * m.in, m);
    }

    // Does the same with the residual sum: first the norm of the last part, then `norm`.
    void prepare_sum(const Norm* before, const Norm* norm, const Matrix& m, double scale, int me,
                     int crew) {
        for (int64_t r = me; r < batch; r += crew) {
            float *sum = x.data() + r * width, *to = near.data() + r * width;
            if (before) normalize(sum, width, *before, sum);
            if (norm) {
                normalize(sum, width, *norm, to);
            } else {
                std::copy(sum, sum + width, to);
            }
            if (scale != 1.0)
                for (int64_t k = 0; k < width; ++k) to[k] *= float(scale);
            rows.set(r, to, m);
        }
    }

    // Computes this thread's share of the outputs; returns which they are.
    template <class Write>
    std::pair<int64_t, int64_t> through(const Matrix& m, int me, int crew, const Write& write) {
        const int64_t height = outputs_of(m), tiles = (m.out + height - 1) / height;
        const int64_t start = tiles * me / crew * height;
        const int64_t end = std::min(m.out, tiles * (me + 1) / crew * height);
        rows.multiply(m, start, end, write);
        return {start, end};
    }

    auto into(float* y, int64_t out) {
        return [=](int64_t r, int64_t o, __mmask8 some, __m128 values) {
            _mm_mask_storeu_ps(y + r * out + o, some, values);
        };
    }

    void embed(int me, int crew) {
        for (int64_t r = me; r < batch; r += crew) {
            float* to = x.data() + r * width;
            if (step.inputs) {
                std::copy(step.inputs + r * width, step.inputs + (r + 1) * width, to);
                continue;
            }
            look_up(plan.tokens, step.tokens[r], plan.token_scale, to);
            if (!plan.positions) continue;
            const float* at = plan.positions + (column(r) - step.starts[r]) * width;
            for (int64_t k = 0; k < width; ++k) to[k] += at[k];
        }
    }

    int64_t column(int64_t r) const { return step.columns ? step.columns[r] : step.length; }

    // Adds the new keys and values to the memory, and rotates queries and keys.
    template <class Number>
    void remember(const Part& part, const Memory& memory, int64_t n) {
        const int64_t r = n / part.kv_heads, g = n % part.kv_heads, size = part.size;
        const int64_t group = part.heads / part.kv_heads;
        const int64_t place = column(r) * column_size<Number>(size);
        const int64_t at = r * memory.row + g * memory.head + place;
        float* triple = wide.data() + r * part.first.out;
        float* key = triple + (part.heads + g) * size;
        const float* value = triple + (part.heads + part.kv_heads + g) * size;
        if (part.rotary) {
            const int64_t position = column(r) - step.starts[r];
            rotate(triple + g * group * size, group, size, position, plan.frequencies);
            rotate(key, 1, size, position, plan.frequencies);
        }
        store(key, size, static_cast<Number*>(memory.keys) + at);
        store(value, size, static_cast<Number*>(memory.values) + at);
    }

    // The heads that share keys stay with one thread. Rows may be of one text (`columns`): then all
    // keys are there before one is read.
    template <class Number>
    void attend_as(const Part& part, const Memory& memory, int me, int crew) {
        static thread_local Room scratch, distances;
        const bool own = part.kind == SELF;
        const int64_t group = part.heads / part.kv_heads, size = part.size;
        const int64_t units = batch * part.kv_heads;
        const int64_t first = units * me / crew, last = units * (me + 1) / crew;
        if (own)
            for (int64_t n = first; n < last; ++n) remember<Number>(part, memory, n);
        if (own && step.columns) barrier.wait(crew);
        for (int64_t n = first; n < last; ++n) {
            const int64_t r = n / part.kv_heads, g = n % part.kv_heads;
            const int64_t at = r * memory.row + g * memory.head;
            float* query = wide.data() + r * part.first.out + g * group * size;
            Reading<Number> job{query,
                                static_cast<const Number*>(memory.keys) + at,
                                static_cast<const Number*>(memory.values) + at, 0,
                                own ? column(r) + 1 : step.sources[r]};
            if (own) job.start = step.starts[r];
            if (own && part.band) job.start = std::max(job.start, job.end - part.band);
            float* to = read.data() + (r * part.heads + g * group) * size;
            if (part.far) {  // every head has keys of its own
                const int64_t keys = job.end - job.start;
                attend(with_distances(part, g, keys, query, distances), job, 0, to, scratch);
            } else {
                attend(part, job, g * group, to, scratch);
            }
        }
    }

    void attend_all(const Part& part, const Memory& memory, int me, int crew) {
        switch (memory.kind) {
            case HALF_CACHE: return attend_as<uint16_t>(part, memory, me, crew);
            case BYTE_CACHE: return attend_as<int8_t>(part, memory, me, crew);
            default: return attend_as<float>(part, memory, me, crew);
        }
    }

    // Writes the hidden states themselves.
    void finish(const Norm* before, int me, int crew) {
        for (int64_t r = me; r < batch; r += crew) {
            float *sum = x.data() + r * width, *to = step.logits + r * width;
            if (before) normalize(sum, width, *before, sum);
            normalize(sum, width, plan.norm, to);
        }
    }

    void follow(int me, int crew) {
        const auto wait = [&] { barrier.wait(crew); };
        const Memory* memory = step.memories;
        const Norm* before = nullptr;
        embed(me, crew);
        for (int64_t i = 0; i < plan.count; ++i) {
            const Part& part = plan.parts[i];
            const bool network = part.kind == NETWORK;
            prepare_sum(before, part.post ? nullptr : &part.norm, part.first, 1.0, me, crew);
            before = part.post ? &part.norm : nullptr;
            wait();
            const auto own = through(part.first, me, crew, into(wide.data(), part.first.out));
            if (network) {
                if (part.gate.out) through(part.gate, me, crew, into(gated.data(), part.gate.out));
                for (int64_t r = 0; r < batch; ++r)
                    activate(part, wide.data() + r * part.first.out,
                             part.gate.out ? gated.data() + r * part.gate.out : nullptr, own.first,
                             own.second);
            } else {
                wait();
                attend_all(part, *memory++, me, crew);
            }
            wait();
            prepare(network ? wide.data() : read.data(), part.last, me, crew);
            wait();
            through(part.last, me, crew,
                    [this](int64_t r, int64_t o, __mmask8 some, __m128 values) {
                        float* sum = x.data() + r * width + o;
                        values = _mm_add_ps(_mm_maskz_loadu_ps(some, sum), values);
                        _mm_mask_storeu_ps(sum, some, values);
                    });
            wait();
        }
        if (!plan.output.out) return finish(before, me, crew);
        prepare_sum(before, &plan.norm, plan.output, plan.output_scale, me, crew);
        wait();
        through(plan.output, me, crew, into(step.logits, plan.output.out));
    }
};

constexpr int64_t PART = 8192;  // logits of a row that one thread looks through at a time

struct Peak {
    float most;
    int64_t best;
    float sum;  // of exp(logit - most)
};

Peak peak_of(const float* row, int64_t start, int64_t end) {
    float most = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : most)
    for (int64_t k = start; k < end; ++k) most = std::max(most, row[k]);
    int64_t best = start;
    while (best + 1 < end && !(row[best] == most)) ++best;
    if (most == -INFINITY) return {most, best, 0.0f};
#pragma omp simd reduction(+ : sum)
    for (int64_t k = start; k < end; ++k) sum += exponential(row[k] - most);
    return {most, best, sum};
}

}  // namespace

// Finds the largest number of each row (the first of equal ones), and log Σ exp of the row.
extern "C" void decode_peaks(const float* logits, int64_t rows, int64_t width, int64_t* best,
                             float* total, int threads) {
    const int64_t parts = (width + PART - 1) / PART;
    std::vector<Peak> peaks(rows * parts);
#pragma omp parallel for schedule(static) num_threads(rows * parts < 4 ? 1 : threads)
    for (int64_t n = 0; n < rows * parts; ++n) {
        const int64_t start = n % parts * PART;
        peaks[n] = peak_of(logits + n / parts * width, start, std::min(width, start + PART));
    }
    for (int64_t r = 0; r < rows; ++r) {
        Peak whole = peaks[r * parts];
        for (int64_t i = 1; i < parts; ++i) {
            const Peak& part = peaks[r * parts + i];
            const bool higher = part.most > whole.most;
            const float sum = higher ? part.sum + whole.sum * std::exp(whole.most - part.most)
                                     : whole.sum + (part.sum > 0.0f
                                           ? part.sum * std::exp(part.most - whole.most) : part.sum);
            whole = {higher ? part.most : whole.most, higher ? part.best : whole.best, sum};
        }
        best[r] = whole.best;
        total[r] = whole.most + std::log(whole.sum);
    }
}

// Returns 0, or 1 if a token is outside the vocabulary: then nothing is read.
extern "C" int decode_step(const Plan* plan, const Step* step, int threads) {
    for (int64_t r = 0; r < step->batch && !step->inputs; ++r)
        if (step->tokens[r] < 0 || step->tokens[r] >= plan->tokens.out) return 1;
    Decoder decoder(*plan, *step);
    int64_t weights = plan->output.in * plan->output.out;
    for (int64_t i = 0; i < plan->count; ++i)
        weights += plan->parts[i].first.in * plan->parts[i].first.out;
    const int most = weights * step->batch < LITTLE ? 1 : threads;
#pragma omp parallel num_threads(most)
    decoder.follow(omp_get_thread_num(), omp_get_num_threads());
    return 0;
}

#endif
