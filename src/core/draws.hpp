// Draws from weights: Walker's alias table, and a tree with weights that may change.
#pragma once
#include <cstdint>
#include <vector>

#include "random.hpp"

namespace considerate {

// Fetch a line of memory into the second cache, which has more lines on their way at a time than the first.
inline void fetch_far(const void* line) { __builtin_prefetch(line, 0, 2); }

// Walker's alias table. One 64-bit draw r: the high word of r * N is a column, the low word a height in it.
struct AliasTable {
  const std::uint64_t* thresholds;  // [N]
  const std::int32_t* aliases;      // [N]
  std::int64_t size;

  struct Place {
    std::int64_t column;
    std::uint64_t height;
  };

  Place place(Random& random) const {
    const auto product = static_cast<unsigned __int128>(random.next()) * static_cast<std::uint64_t>(size);
    return {static_cast<std::int64_t>(product >> 64), static_cast<std::uint64_t>(product)};
  }
  void fetch(const Place& place) const {
    fetch_far(thresholds + place.column);
    fetch_far(aliases + place.column);
  }
  std::int32_t at(const Place& place) const {
    return place.height < thresholds[place.column] ? static_cast<std::int32_t>(place.column) : aliases[place.column];
  }
  std::int32_t draw(Random& random) const { return at(place(random)); }
};

// Vose's construction, in the order of the indices.
inline void build_alias(const double* weights, std::int64_t size, std::uint64_t* thresholds, std::int32_t* aliases) {
  double total = 0;
  for (std::int64_t n = 0; n < size; ++n) total += weights[n];
  std::vector<double> height(static_cast<std::size_t>(size));
  std::vector<std::int32_t> small, large;
  for (std::int64_t n = 0; n < size; ++n) {
    height[static_cast<std::size_t>(n)] = weights[n] * static_cast<double>(size) / total;
    (height[static_cast<std::size_t>(n)] < 1.0 ? small : large).push_back(static_cast<std::int32_t>(n));
  }
  std::int32_t heaviest = 0;
  for (std::int64_t n = 1; n < size; ++n)
    if (weights[n] > weights[heaviest]) heaviest = static_cast<std::int32_t>(n);
  while (!small.empty() && !large.empty()) {
    const std::int32_t s = small.back(), l = large.back();
    small.pop_back();
    thresholds[s] = static_cast<std::uint64_t>(height[static_cast<std::size_t>(s)] * 0x1.0p64);
    aliases[s] = l;
    height[static_cast<std::size_t>(l)] -= 1.0 - height[static_cast<std::size_t>(s)];
    if (height[static_cast<std::size_t>(l)] < 1.0) {
      large.pop_back();
      small.push_back(l);
    }
  }
  // The columns that are left are full up to rounding. A weight of zero must stay zero.
  for (const auto& rest : {small, large})
    for (std::int32_t n : rest) {
      thresholds[n] = weights[n] > 0 ? ~std::uint64_t{0} : 0;
      aliases[n] = weights[n] > 0 ? n : heaviest;
    }
}

// A weighted binary tree over the items: a draw, or a change of one weight, in O(log N).
class WeightedTree {
 public:
  WeightedTree(const double* weights, std::int64_t size) {
    while (leaves_ < size) leaves_ *= 2;
    sums_.assign(static_cast<std::size_t>(2 * leaves_), 0.0);
    for (std::int64_t n = 0; n < size; ++n) sums_[static_cast<std::size_t>(leaves_ + n)] = weights[n];
    for (std::int64_t i = leaves_ - 1; i >= 1; --i) refresh(i);
  }

  void set(std::int64_t n, double weight) {
    std::int64_t i = leaves_ + n;
    sums_[static_cast<std::size_t>(i)] = weight;
    for (i /= 2; i >= 1; i /= 2) refresh(i);
  }

  double total() const { return sums_[1]; }

  std::int32_t draw(Random& random) const {
    double x = random.uniform() * sums_[1];
    std::int64_t i = 1;
    while (i < leaves_) {
      const double left = sums_[static_cast<std::size_t>(2 * i)], right = sums_[static_cast<std::size_t>(2 * i + 1)];
      if (right == 0.0 || (x < left && left > 0.0)) {
        i = 2 * i;
      } else {
        x -= left;
        i = 2 * i + 1;
      }
    }
    return static_cast<std::int32_t>(i - leaves_);
  }

 private:
  void refresh(std::int64_t i) {
    sums_[static_cast<std::size_t>(i)] =
        sums_[static_cast<std::size_t>(2 * i)] + sums_[static_cast<std::size_t>(2 * i + 1)];
  }
  std::int64_t leaves_ = 1;
  std::vector<double> sums_;
};

}  // namespace considerate
