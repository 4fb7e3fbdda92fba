// Transformer-XL's scores (Dai et al. 2019, 3.3): (q + u)·k + (q + v)·far[distance], for a head of its
// own keys. `far` [heads, reach, size] are the projected sinusoids of the distances 0, 1, …

#pragma once

#include "decode_parts.h"

#ifdef SMALL_BYTES

// Adds u to the query of a head, and returns the part with the head's scores of distances as its
// bias. They stay in `room`.
static inline Part with_distances(const Part& part, int64_t head, int64_t keys, float* q,
                                  Room& room) {
    const int64_t size = part.size, pitch = (size + 15) / 16 * 16;
    const int64_t count = std::min(keys, part.reach);
    room.fit(pitch + count);
    float *row = room.data(), *bias = row + pitch;
    const float *u = part.u + head * size, *v = part.v + head * size;
    for (int64_t k = 0; k < size; ++k) {
        row[k] = (q[k] + v[k]) * float(part.scale);
        q[k] += u[k];
    }
    std::fill(row + size, row + pitch, 0.0f);
    const float* far = part.far + head * part.reach * size;
    const auto score = [&](int64_t d, auto wide) {
        float sums[ROWS][OUTPUTS];
        tile<FloatTile, 1, wide.value, false>(row, pitch * 4, far + d * size, size,
                                             size, sums);
        std::copy(sums[0], sums[0] + wide.value, bias + d);
    };
    int64_t d = 0;
    for (; d + OUTPUTS <= count; d += OUTPUTS) score(d, std::integral_constant<int, OUTPUTS>());
    for (; d < count; ++d) score(d, std::integral_constant<int, 1>());
    Part placed = part;
    placed.bias = bias;
    placed.reach = count;
    return placed;
}

#endif
