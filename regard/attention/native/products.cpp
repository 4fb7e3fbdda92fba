// Products of many small fp32 matrices, c = a · b for each of a batch, with any strides: for
// processors on which torch's library computes them with half of the vector's length.
//
// Columns of b are packed side by side, rows of a below each other, and a tile of the result stays
// in registers. A matrix of the batch belongs to one thread, so the number of threads never changes
// a result.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int LANES = 16;          // numbers of a vector
constexpr int ROWS = 6;            // rows of a tile
constexpr int ACROSS = 4;          // its vectors per row
constexpr int64_t PART = ACROSS * LANES;
constexpr int64_t DEPTH = 384;     // inner numbers per pass: a panel of b stays in the L2 cache

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

// Adds a [depth][ROWS] times b [depth][PART] to `rows` rows of c, or sets them.
inline void tile(const float* a, const float* b, int64_t depth, float* c, int64_t pitch,
                 int64_t rows, int64_t columns, bool add) {
    Lanes acc[ROWS][ACROSS];
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; ++j) acc[r][j] = Lanes{};
    for (int64_t k = 0; k < depth; ++k) {
        const Lanes* line = reinterpret_cast<const Lanes*>(b + k * PART);
        const Lanes b0 = line[0], b1 = line[1], b2 = line[2], b3 = line[3];
#pragma GCC unroll 6
        for (int r = 0; r < ROWS; ++r) {
            const float x = a[k * ROWS + r];
            acc[r][0] += x * b0;
            acc[r][1] += x * b1;
            acc[r][2] += x * b2;
            acc[r][3] += x * b3;
        }
    }
    if (rows == ROWS && columns == PART) {
#pragma GCC unroll 6
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int j = 0; j < ACROSS; ++j) {
                Lanes* at = reinterpret_cast<Lanes*>(c + r * pitch) + j;
                *at = add ? *at + acc[r][j] : acc[r][j];
            }
        return;
    }
    float room[ROWS * PART];
    std::memcpy(room, acc, sizeof(room));
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < columns; ++j) {
            float& at = c[r * pitch + j];
            at = room[r * PART + j] + (add ? at : 0.0f);
        }
}

// Packs b[k][n] for depth x columns, columns rounded up to PART with zeros; panel after panel.
inline void pack_columns(const float* b, int64_t by_row, int64_t by_column, int64_t depth,
                         int64_t columns, float* to) {
    for (int64_t from = 0; from < columns; from += PART, to += depth * PART) {
        const int64_t count = std::min(PART, columns - from);
        if (by_column == 1 || count < PART) {
            for (int64_t k = 0; k < depth; ++k) {
                const float* line = b + k * by_row + from * by_column;
                for (int64_t j = 0; j < count; ++j) to[k * PART + j] = line[j * by_column];
                std::fill(to + k * PART + count, to + (k + 1) * PART, 0.0f);
            }
            continue;
        }
        for (int64_t some = 0; some < PART; some += LANES)  // transposed in blocks of lines
            for (int64_t k = 0; k < depth; ++k)
                for (int64_t j = some; j < some + LANES; ++j)
                    to[k * PART + j] = b[k * by_row + (from + j) * by_column];
    }
}

inline void pack_rows(const float* a, int64_t by_row, int64_t by_column, int64_t rows,
                      int64_t depth, float* to) {
    if (rows < ROWS) std::fill(to, to + depth * ROWS, 0.0f);
    if (by_row == 1) {  // a is transposed: its rows lie side by side
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t r = 0; r < rows; ++r) to[k * ROWS + r] = a[r + k * by_column];
        return;
    }
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < depth; ++k) to[k * ROWS + r] = a[r * by_row + k * by_column];
}

}  // namespace

// c [batch, m, n] is contiguous; the strides of a [batch, m, k] and b [batch, k, n] count numbers.
extern "C" void products_fp32(float* c, const float* a, const float* b, const int64_t* a_strides,
                              const int64_t* b_strides, int64_t batch, int64_t m, int64_t k,
                              int64_t n, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const int64_t panels = (n + PART - 1) / PART;
        std::vector<float> b_room(panels * PART * std::min(k, DEPTH));
        std::vector<float> a_room(ROWS * std::min(k, DEPTH));
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < batch; ++i) {
            float* out = c + i * m * n;
            if (k == 0) std::fill(out, out + m * n, 0.0f);
            for (int64_t from = 0; from < k; from += DEPTH) {
                const int64_t depth = std::min(DEPTH, k - from);
                pack_columns(b + i * b_strides[0] + from * b_strides[1], b_strides[1],
                             b_strides[2], depth, n, b_room.data());
                for (int64_t r = 0; r < m; r += ROWS) {
                    const int64_t rows = std::min<int64_t>(ROWS, m - r);
                    pack_rows(a + i * a_strides[0] + r * a_strides[1] + from * a_strides[2],
                              a_strides[1], a_strides[2], rows, depth, a_room.data());
                    for (int64_t p = 0; p < panels; ++p)
                        tile(a_room.data(), b_room.data() + p * depth * PART, depth,
                             out + r * n + p * PART, n, rows, std::min(PART, n - p * PART),
                             from > 0);
                }
            }
        }
    }
}
