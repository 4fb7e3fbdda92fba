// Code that all kernels share.

#pragma once

#include <cstdint>
#include <cstring>

// SMALL_BYTES: the processor multiplies bytes. SMALL_HALVES: it multiplies bfloat16, too.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define SMALL_BYTES
#if defined(__AVX512BF16__)
#define SMALL_HALVES
#endif
#endif

struct Brain {  // bfloat16: the upper half of a float
    uint16_t bits;
};

static inline float get(float x) { return x; }

static inline float get(Brain x) {
    uint32_t wide = uint32_t(x.bits) << 16;
    float y;
    std::memcpy(&y, &wide, 4);
    return y;
}

static inline void put(float& to, float x) { to = x; }

static inline void put(Brain& to, float x) {  // rounds to nearest, ties to even; NaN stays NaN
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    uint32_t rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
    to.bits = uint16_t(x == x ? rounded : 0x7FC0);
}

// Returns exp(x) for x <= 0 within two units of the last place; 0 where it would be denormal.
static inline float exponential(float x) {
    float whole = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the fraction is rounded away
    uint32_t shift;
    std::memcpy(&shift, &whole, 4);
    whole -= 12582912.0f;
    float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    uint32_t power = (shift + 127) << 23;
    float scale;
    std::memcpy(&scale, &power, 4);
    return x < -87.0f ? 0.0f : y * scale;
}
