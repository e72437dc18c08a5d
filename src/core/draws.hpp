// Draws of the hidden graph: without replacement, never a liked item, a function of (seed, sweep, user).
#pragma once
#include <cstdint>
#include <vector>

#include "random.hpp"

namespace considerate {

// Walker's alias table. One 64-bit draw r: the high word of r * N is a column, the low word a height in it.
struct AliasTable {
  const std::uint64_t* thresholds;  // [N]
  const std::int32_t* aliases;      // [N]
  std::int64_t size;

  std::int32_t draw(Random& random) const {
    const auto product = static_cast<unsigned __int128>(random.next()) * static_cast<std::uint64_t>(size);
    const auto column = static_cast<std::int64_t>(product >> 64);
    return static_cast<std::uint64_t>(product) < thresholds[column] ? static_cast<std::int32_t>(column)
                                                                    : aliases[column];
  }
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
  // What is left is full but for rounding; a weight of zero must stay zero.
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

struct DrawSettings {
  std::uint64_t seed, sweep;
  double rate;            // c, negatives per positive
  const double* weights;  // [N] pi
  AliasTable table;
  std::int64_t support;  // items with pi > 0
};

// How many a user gets: c d, its fraction by a coin, never more than there are.
inline std::int64_t negatives_of(const DrawSettings& settings, const std::int32_t* liked, std::int64_t degree,
                                 std::int64_t user) {
  std::int64_t available = settings.support;
  for (std::int64_t e = 0; e < degree; ++e) available -= settings.weights[liked[e]] > 0;
  const double wanted = settings.rate * static_cast<double>(degree);
  auto count = static_cast<std::int64_t>(wanted);
  Random coin(key64(settings.seed, settings.sweep * 2 + 1, static_cast<std::uint64_t>(user)));
  count += coin.uniform() < wanted - static_cast<double>(count);
  return count < available ? count : available;
}

class Drawer {
 public:
  explicit Drawer(const DrawSettings& settings)
      : settings_(settings), marks_((static_cast<std::size_t>(settings.table.size) + 63) / 64, 0) {}

  // `count` items not liked by the user, in the order of drawing; all that there are if count says so.
  void draw(std::int64_t user, const std::int32_t* liked, std::int64_t degree, std::int64_t count, std::int32_t* out) {
    Random random(key64(settings_.seed, settings_.sweep * 2, static_cast<std::uint64_t>(user)));
    std::int64_t liked_in_support = 0;
    for (std::int64_t e = 0; e < degree; ++e) {
      mark(liked[e]);
      liked_in_support += settings_.weights[liked[e]] > 0;
    }
    std::int64_t drawn = 0;
    if (count == settings_.support - liked_in_support) {
      for (std::int64_t n = 0; drawn < count; ++n)
        if (settings_.weights[n] > 0 && !marked(static_cast<std::int32_t>(n)))
          out[drawn++] = static_cast<std::int32_t>(n);
    } else {
      // Discarding what is liked or drawn already is sampling without replacement. The next item's law does not
      // depend on how many were discarded, so leaving the loop at any time for an exact draw is exact too.
      std::int64_t discarded = 0;
      while (drawn < count && discarded <= 4 * drawn + 64) {
        const std::int32_t n = settings_.table.draw(random);
        if (marked(n)) {
          ++discarded;
        } else {
          mark(n);
          out[drawn++] = n;
        }
      }
      rejected_ += discarded;
      if (drawn < count) draw_from_tree(random, liked, degree, count, drawn, out);
    }
    for (std::int64_t e = 0; e < degree; ++e) marks_[static_cast<std::size_t>(liked[e]) / 64] = 0;
    for (std::int64_t e = 0; e < count; ++e) marks_[static_cast<std::size_t>(out[e]) / 64] = 0;
  }

  std::int64_t rejected() const { return rejected_; }
  std::int64_t from_tree() const { return from_tree_; }

 private:
  void draw_from_tree(Random& random, const std::int32_t* liked, std::int64_t degree, std::int64_t count,
                      std::int64_t drawn, std::int32_t* out) {
    if (tree_.empty()) tree_.emplace_back(settings_.weights, settings_.table.size);
    WeightedTree& tree = tree_.front();
    from_tree_ += count - drawn;
    for (std::int64_t e = 0; e < degree; ++e) tree.set(liked[e], 0.0);
    for (std::int64_t e = 0; e < drawn; ++e) tree.set(out[e], 0.0);
    for (; drawn < count; ++drawn) {
      out[drawn] = tree.draw(random);
      tree.set(out[drawn], 0.0);
    }
    for (std::int64_t e = 0; e < degree; ++e) tree.set(liked[e], settings_.weights[liked[e]]);
    for (std::int64_t e = 0; e < count; ++e) tree.set(out[e], settings_.weights[out[e]]);
  }

  void mark(std::int32_t n) { marks_[static_cast<std::size_t>(n) / 64] |= std::uint64_t{1} << (n % 64); }
  bool marked(std::int32_t n) const { return marks_[static_cast<std::size_t>(n) / 64] >> (n % 64) & 1; }

  DrawSettings settings_;
  std::vector<std::uint64_t> marks_;
  std::vector<WeightedTree> tree_;  // made when first needed
  std::int64_t rejected_ = 0, from_tree_ = 0;
};

}  // namespace considerate
