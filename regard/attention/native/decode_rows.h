// The rows that products read, in the form that a matrix needs: floats, bfloat16, or bytes. A byte
// stands for (byte - zero) · step; zero · Σ W is subtracted in integers. Numbers of 16 bits are two
// rows of bytes. For a matrix of 4 bits, a row is rounded by groups (groups.h).

// The outputs that are computed together.
static inline int64_t outputs_of(const Matrix& m) { return m.kind == NIBBLES ? LANES : OUTPUTS; }

struct Rounding {
    float step;       // the distance of two neighboring values; NaN if x is not all finite
    int32_t zero[2];  // the integer that stands for 0: its upper byte and its lower byte
};

class Rows {
    Room& room;
    std::vector<Rounding> about;
    int64_t count, pitch = 0;  // the pitch is in bytes

    static int64_t planes(int64_t kind) { return kind == BYTES ? 2 : 1; }

    uint8_t* at(int64_t row) const { return reinterpret_cast<uint8_t*>(room.data()) + row * pitch; }

    void set_bytes(int64_t r, const float* x, int64_t in, int64_t planes) {
        float low = 0.0f, high = 0.0f, check = 0.0f;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : check)
        for (int64_t k = 0; k < in; ++k) {
            low = std::min(low, x[k]);
            high = std::max(high, x[k]);
            check += x[k] * 0.0f;
        }
        const float levels = planes == 1 ? 255.0f : 65535.0f, range = high - low;
        const bool told_apart = range > 1e-30f && range < INFINITY;
        const float inverse = told_apart ? levels / range : 0.0f;
        const float zero = told_apart ? std::nearbyint(-low * inverse) : 0.0f;
        uint8_t *upper = at(r * planes), *lower = at(r * planes + planes - 1);
        const int shift = planes == 1 ? 0 : 8;
        for (int64_t k = 0; k < in; ++k) {
            const float q = __builtin_rintf(x[k] * inverse) + zero;
            const int32_t n = int32_t(std::min(levels, std::max(0.0f, q)));
            upper[k] = uint8_t(n >> shift);
        }
        if (planes == 2)
            for (int64_t k = 0; k < in; ++k) {
                const float q = __builtin_rintf(x[k] * inverse) + zero;
                lower[k] = uint8_t(int32_t(std::min(levels, std::max(0.0f, q))));
            }
        std::memset(upper + in, 0, size_t(pitch - in));
        std::memset(lower + in, 0, size_t(pitch - in));
        const int32_t whole = int32_t(zero);
        about[r] = {range / levels + check, {whole >> shift, whole & 255}};
    }

  public:
    Rows(Room& room, int64_t count) : room(room), about(count), count(count) {}

    void fit(int64_t longest) { room.fit(count * ((longest + 63) / 64 * 64)); }

    // Stores row r for a product with this matrix.
    void set(int64_t r, const float* x, const Matrix& m) {
        const int64_t in = m.in, element = m.kind == FLOATS ? 4 : m.kind == HALVES ? 2 : 1;
        pitch = m.kind == NIBBLES ? grouped_pitch(in) : (in * element + LINE - 1) / LINE * LINE;
        if (m.kind == FLOATS) {
            float* to = reinterpret_cast<float*>(at(r));
            std::copy(x, x + in, to);
            std::fill(to + in, to + pitch / 4, 0.0f);
        } else if (m.kind == HALVES) {
            uint16_t* to = reinterpret_cast<uint16_t*>(at(r));
            for (int64_t k = 0; k < in; ++k) to[k] = as_half(x[k]);
            std::fill(to + in, to + pitch / 2, uint16_t(0));
        } else if (m.kind == NIBBLES) {
            round_groups(x, in, at(r));
        } else {
            set_bytes(r, x, in, planes(m.kind));
        }
    }

    // Computes outputs start … end of all rows; write(row, output, mask, values) takes up to four
    // results at once.
    template <class Write>
    void multiply(const Matrix& m, int64_t start, int64_t end, const Write& write) const {
        const auto bias = [&](int64_t o, __mmask8 some) {
            return m.bias ? _mm_maskz_loadu_ps(some, m.bias + o) : _mm_setzero_ps();
        };
        const auto plain = [&](int64_t r, int height, int64_t o, __mmask8 some, auto sums) {
            const __m128 added = bias(o, some);
            for (int i = 0; i < height; ++i)
                write(r + i, o, some, _mm_add_ps(_mm_loadu_ps(sums[i]), added));
        };
        const auto scaled = [&](int64_t r, int height, int64_t o, __mmask8 some, auto sums) {
            const int64_t n = planes(m.kind);
            const __m128 added = bias(o, some), scale = _mm_maskz_loadu_ps(some, m.scale + o);
            const __m128i total = _mm_maskz_loadu_epi32(some, m.total + o);
            const auto whole = [&](const int32_t* sum, int32_t zero) {
                const __m128i own = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sum));
                const __m128i base = _mm_mullo_epi32(_mm_set1_epi32(zero), total);
                return _mm_cvtepi32_ps(_mm_sub_epi32(own, base));
            };
            for (int i = 0; i + n <= height; i += n) {
                const Rounding& row = about[(r + i) / n];
                __m128 sum = whole(sums[i], row.zero[0]);
                if (n == 2)
                    sum = _mm_fmadd_ps(sum, _mm_set1_ps(256.0f), whole(sums[i + 1], row.zero[1]));
                const __m128 unit = _mm_mul_ps(_mm_set1_ps(row.step), scale);
                write((r + i) / n, o, some, _mm_fmadd_ps(sum, unit, added));
            }
        };
        const auto grouped = [&](int64_t r, int64_t o, __mmask16 some, __m512 sums) {
            if (m.bias) sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(some, m.bias + o));
            alignas(64) float values[LANES];
            _mm512_store_ps(values, sums);
            for (int i = 0; i < LANES && (some >> i & 15); i += 4)
                write(r, o + i, __mmask8(some >> i & 15), _mm_load_ps(values + i));
        };
        switch (m.kind) {
            case NIBBLES:
                return grouped_products(at(0), pitch, count, static_cast<const uint8_t*>(m.weight),
                                        m.in, start, end, grouped);
            case FLOATS: return tiles<FloatTile>(m, count, start, end, plain);
#ifdef SMALL_HALVES
            case HALVES: return tiles<HalfTile>(m, count, start, end, plain);
#endif
            default: return tiles<ByteTile>(m, count * planes(m.kind), start, end, scaled);
        }
    }

  private:
    template <class Kind, class Finish>
    void tiles(const Matrix& m, int64_t rows, int64_t start, int64_t end,
               const Finish& finish) const {
        const auto* w = static_cast<const typename Kind::Number*>(m.weight);
        const auto work = [&](int64_t r, int64_t o, auto height, auto wide) {
            typename Kind::Sum sums[ROWS][OUTPUTS];  // those of absent outputs are 0
            if (r == 0) {
                tile<Kind, height.value, wide.value, true>(at(r), pitch, w + o * m.in, m.in, m.in,
                                                           sums);
            } else {
                tile<Kind, height.value, wide.value, false>(at(r), pitch, w + o * m.in, m.in, m.in,
                                                            sums);
            }
            finish(r, height.value, o, __mmask8((1 << wide.value) - 1), sums);
        };
        int64_t o = start;
        for (; o + OUTPUTS <= end; o += OUTPUTS)
            for (int64_t r = 0; r < rows; r += ROWS)
                by_height(rows - r, [&](auto height) {
                    work(r, o, height, std::integral_constant<int, OUTPUTS>());
                });
        for (; o < end; ++o)
            for (int64_t r = 0; r < rows; r += ROWS)
                by_height(rows - r, [&](auto height) {
                    work(r, o, height, std::integral_constant<int, 1>());
                });
    }
};
