// Eight floats side by side, in the compilers' own vector types: AVX2 registers, or pairs of SSE or NEON registers.
#pragma once
#include "isa.hpp"

namespace considerate::CONSIDERATE_ISA {

typedef float v8 __attribute__((vector_size(32)));
typedef std::int32_t i8 __attribute__((vector_size(32)));
typedef double d4 __attribute__((vector_size(32)));

constexpr int kLanes = 8;

// Lanes of a (0-7) and b (8-15) in any order. GCC has Clang's builtin since 12.
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE8(a, b, ...) __builtin_shuffle(a, b, i8{__VA_ARGS__})
#endif

static inline v8 load8(const float* p) {
  v8 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
static inline void store8(float* p, v8 x) { std::memcpy(p, &x, sizeof x); }
static inline d4 load4(const double* p) {
  d4 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
static inline v8 splat(float x) { return v8{x, x, x, x, x, x, x, x}; }

// Lane e is the sum of the eight lanes of rows[e].
static inline v8 sum_rows(const v8* rows) {
  v8 half[4], quarter[2];
  for (int e = 0; e < 4; ++e) {
    const v8 a = rows[2 * e], b = rows[2 * e + 1];
    half[e] = SHUFFLE8(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLE8(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int e = 0; e < 2; ++e) {
    const v8 a = half[2 * e], b = half[2 * e + 1];
    quarter[e] = SHUFFLE8(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE8(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  return SHUFFLE8(quarter[0], quarter[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         SHUFFLE8(quarter[0], quarter[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

static inline double sum_lanes(v8 x) {
  double total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += static_cast<double>(x[lane]);
  return total;
}

#if defined(__AVX__)
static inline v8 sqrt8(v8 x) { return __builtin_ia32_sqrtps256(x); }
#else
static inline v8 sqrt8(v8 x) {
  v8 y;
  for (int lane = 0; lane < kLanes; ++lane) y[lane] = __builtin_sqrtf(x[lane]);
  return y;
}
#endif

// Eight rows of eight become eight columns.
static inline void transpose8(v8* r) {
  v8 a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = SHUFFLE8(r[2 * i], r[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    a[2 * i + 1] = SHUFFLE8(r[2 * i], r[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + j] = SHUFFLE8(a[i + j], a[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      b[i + j + 2] = SHUFFLE8(a[i + j], a[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    r[i] = SHUFFLE8(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = SHUFFLE8(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

static inline v8 select8(i8 mask, v8 yes, v8 no) {
  return reinterpret_cast<v8>((mask & reinterpret_cast<i8>(yes)) | (~mask & reinterpret_cast<i8>(no)));
}

static inline bool any_lane(i8 mask) {
#if defined(__AVX__)
  return __builtin_ia32_movmskps256(reinterpret_cast<v8>(mask)) != 0;
#else
  std::int32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= mask[lane];
  return any != 0;
#endif
}

// exp(-x) for x >= 0, to float32's accuracy; 0 past 87.
static inline v8 exp_minus(v8 x) {
  const v8 y = -x;
  const v8 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const v8 n = (y * splat(1.44269504088896341f) + magic) - magic;
  v8 r = y - n * splat(0.693145751953125f);
  r = r - n * splat(1.42860682030941723212e-6f);
  v8 p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * r * r + r + splat(1.0f);
  const i8 exponent = (__builtin_convertvector(n, i8) + 127) << 23;
  return select8(x < splat(87.0f), p * reinterpret_cast<v8>(exponent), splat(0.0f));
}

// 1 - exp(-x) for x >= 0, to an absolute accuracy of float32.
static inline v8 one_minus_exp(v8 x) {
  const v8 near = x * (splat(1.0f) - x * (splat(0.5f) - x * splat(1.0f / 6)));
  return select8(x < splat(0.03f), near, splat(1.0f) - exp_minus(x));
}

// log(1 + t) for 0 <= t <= 1: 2 atanh(t / (2 + t)).
static inline v8 log1p_unit(v8 t) {
  const v8 s = t / (splat(2.0f) + t), s2 = s * s;
  v8 p = splat(1.0f / 13);
  p = p * s2 + splat(1.0f / 11);
  p = p * s2 + splat(1.0f / 9);
  p = p * s2 + splat(1.0f / 7);
  p = p * s2 + splat(1.0f / 5);
  p = p * s2 + splat(1.0f / 3);
  return splat(2.0f) * s * (p * s2 + splat(1.0f));
}

// log(x) of positive numbers from 2^-126 on, to float32's accuracy: Cephes's polynomial for the mantissa between
// sqrt(1/2) and sqrt(2).
static inline v8 log8(v8 x) {
  const i8 bits = reinterpret_cast<i8>(x) - 0x3f3504f3;  // from sqrt(1/2) on
  const v8 e = __builtin_convertvector(bits >> 23, v8);
  const v8 m = reinterpret_cast<v8>((bits & 0x007fffff) + 0x3f3504f3) - splat(1.0f);
  v8 p = splat(7.0376836292e-2f);
  p = p * m - splat(1.1514610310e-1f);
  p = p * m + splat(1.1676998740e-1f);
  p = p * m - splat(1.2420140846e-1f);
  p = p * m + splat(1.4249322787e-1f);
  p = p * m - splat(1.6668057665e-1f);
  p = p * m + splat(2.0000714765e-1f);
  p = p * m - splat(2.4999993993e-1f);
  p = p * m + splat(3.3333331174e-1f);
  const v8 m2 = m * m;
  v8 y = p * m * m2;
  y = y + e * splat(-2.12194440e-4f) - splat(0.5f) * m2;
  return m + y + e * splat(0.693359375f);
}

// A lower bound of log(x), at most kLogGap below it: the bits of a number are close to its logarithm.
static inline v8 log_below8(v8 x) {
  return __builtin_convertvector(reinterpret_cast<i8>(x), v8) * splat(8.262958e-8f) - splat(88.0299f);
}
constexpr float kLogGap = 0.0601f;  // 0.0597, and room for rounding on both sides

}  // namespace considerate::CONSIDERATE_ISA
