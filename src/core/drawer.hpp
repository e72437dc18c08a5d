// Draws of the hidden graph: without replacement, never a liked item, a function of (seed, sweep, user).
#pragma once
#include <cstdint>
#include <vector>

#include "walk.hpp"

namespace considerate {

struct DrawSettings {
  std::uint64_t seed, sweep;
  double rate;            // c, negatives per positive
  const double* weights;  // [N] pi
  AliasTable table;
  std::int64_t support;   // items with pi > 0
  const WalkTable* walk;  // personal weights in place of pi, or nullptr
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
      if (settings_.walk != nullptr && degree > 0) drawn = draw_by_walk(random, liked, degree, count, out);
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
  std::int64_t from_pi() const { return from_pi_; }

 private:
  // By the user's own weights, while there is an item left that has any: how many were drawn.
  std::int64_t draw_by_walk(Random& random, const std::int32_t* liked, std::int64_t degree, std::int64_t count,
                            std::int32_t* out) {
    WalkStream stream(*settings_.walk, settings_.table, random, liked, degree);
    std::int64_t drawn = 0, discarded = 0;
    while (drawn < count && discarded <= 4 * drawn + 64) {
      const std::int32_t n = stream.next();
      if (marked(n)) {
        ++discarded;
      } else {
        mark(n);
        out[drawn++] = n;
      }
    }
    rejected_ += discarded;
    if (drawn == count) return count;
    own_weights_.resize(static_cast<std::size_t>(settings_.table.size));
    settings_.walk->weigh(liked, degree, settings_.weights, settings_.table.size, own_weights_.data());
    for (std::int64_t e = 0; e < degree; ++e) own_weights_[static_cast<std::size_t>(liked[e])] = 0.0;
    for (std::int64_t e = 0; e < drawn; ++e) own_weights_[static_cast<std::size_t>(out[e])] = 0.0;
    WeightedTree tree(own_weights_.data(), settings_.table.size);
    for (; drawn < count && tree.total() > 0.0; ++drawn, ++from_tree_) {
      out[drawn] = tree.draw(random);
      tree.set(out[drawn], 0.0);
      mark(out[drawn]);
    }
    from_pi_ += count - drawn;
    return drawn;
  }

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
  std::vector<double> own_weights_;
  std::int64_t rejected_ = 0, from_tree_ = 0, from_pi_ = 0;
};

}  // namespace considerate
