// The most that a core can do: a loop of independent fused multiply-adds, for benchmarks to compare with.
#pragma once
#include "simd.hpp"

namespace considerate::CONSIDERATE_ISA {

// `rounds` times 12 vectors of 8 multiply-adds: 192 flops a round. Returns a value that depends on all of them.
static float fma_loop(std::int64_t rounds) {
  v8 sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = splat(static_cast<float>(i) * 1e-3f);
  v8 a = splat(0.999f), b = splat(1e-3f);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 12; ++i) sums[i] = sums[i] * a + b;
  }
  v8 total = splat(0.0f);
  for (int i = 0; i < 12; ++i) total += sums[i];
  return static_cast<float>(sum_lanes(total));
}

}  // namespace considerate::CONSIDERATE_ISA
