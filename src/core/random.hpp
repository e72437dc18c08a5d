// Draws as a function of a key: (seed, stream, counter) -> bits. No state is shared between vertices.
#pragma once
#include <cmath>
#include <cstdint>

namespace considerate {

// The finaliser of splitmix64: a bijection on 64 bits that avalanches.
inline std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// One key from three numbers; each is mixed in before the next is added.
inline std::uint64_t key64(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t key = mix64(seed + golden);
  key = mix64(key + (stream + 1) * golden);
  return mix64(key + (index + 1) * golden);
}

// splitmix64 started at a key.
class Random {
 public:
  explicit Random(std::uint64_t key) : state_(key) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix64(state_);
  }

  // Uniform on [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // Uniform on 0 .. n-1, without bias worth the name: the high word of a 64 x 64 product.
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace considerate
