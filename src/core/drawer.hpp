// Draws of the hidden graph: without replacement, never a liked item, a function of (seed, sweep, user).
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "known.hpp"
#include "tilt.hpp"
#include "walk.hpp"

namespace considerate {

struct DrawSettings {
  std::uint64_t seed, sweep;
  double rate;            // c, unliked edges per like
  const double* weights;  // [N] pi
  AliasTable table;
  std::int64_t support;   // items with pi > 0
  const WalkTable* walk;  // personal weights in place of pi; null: pi
  const Tilt* tilt = nullptr;
  std::int64_t first_user = 0;  // number of the user of row 0
  Known known;
};

// Number of items that a user may draw: with pi > 0, and not liked, known or impossible.
inline std::int64_t open_items(const DrawSettings& settings, const std::int32_t* liked, std::int64_t degree,
                               std::int64_t row) {
  const Known& known = settings.known;
  std::int64_t open = settings.support;
  if (known.rules != nullptr)
    for (std::int64_t n = 0; n < settings.table.size; ++n)
      open -= settings.weights[n] > 0 && known.rules->forbid(row, static_cast<std::int32_t>(n));
  const ItemList lists[3] = {{liked, degree}, known.considered.of(row), known.impossible.of(row)};
  for (const ItemList& list : lists)
    for (std::int64_t e = 0; e < list.count; ++e)
      open -= settings.weights[list.items[e]] > 0 && !(known.rules && known.rules->forbid(row, list.items[e]));
  return open;
}

// Numbers of a user's unliked edges: the known ones, the further ones that c d asks for, and the items left for these.
struct UnlikedEdges {
  std::int64_t known;
  double wanted;
  std::int64_t available;  // exact if it is less than wanted

  UnlikedEdges(const DrawSettings& settings, const std::int32_t* liked, std::int64_t degree, std::int64_t row)
      : known(settings.known.considered.of(row).count),
        wanted(std::max(0.0, settings.rate * static_cast<double>(degree) - static_cast<double>(known))),
        available(settings.support) {
    if (wanted + 1.0 > static_cast<double>(available - degree - settings.known.most(row)))  // or else there are enough
      available = open_items(settings, liked, degree, row);
  }

  double expected() const { return static_cast<double>(known) + std::min(wanted, static_cast<double>(available)); }
};

// Number of unliked edges of a user in one H. A coin decides about the fraction of the wanted number.
inline std::int64_t negatives_of(const DrawSettings& settings, const std::int32_t* liked, std::int64_t degree,
                                 std::int64_t row) {
  const UnlikedEdges edges(settings, liked, degree, row);
  auto count = static_cast<std::int64_t>(edges.wanted);
  Random coin(key64(settings.seed, settings.sweep * 2 + 1, static_cast<std::uint64_t>(settings.first_user + row)));
  count += coin.uniform() < edges.wanted - static_cast<double>(count);
  return edges.known + std::min(count, edges.available);
}

class Drawer {
 public:
  explicit Drawer(const DrawSettings& settings)
      : settings_(settings), marks_((static_cast<std::size_t>(settings.table.size) + 63) / 64, 0) {
    if (settings.tilt != nullptr) patience_ = std::max(patience_, settings.table.size);  // the tree would cost as much
  }

  // Draw `count` unliked edges for the user of a row: first the known ones, then others in the order of drawing.
  void draw(std::int64_t row, const std::int32_t* liked, std::int64_t degree, std::int64_t count, std::int32_t* out) {
    Random random(key64(settings_.seed, settings_.sweep * 2, static_cast<std::uint64_t>(settings_.first_user + row)));
    row_ = row;
    const ItemList known = settings_.known.considered.of(row);
    impossible_ = settings_.known.impossible.of(row);
    for (std::int64_t e = 0; e < degree; ++e) mark(liked[e]);
    for (std::int64_t e = 0; e < impossible_.count; ++e) mark(impossible_.items[e]);
    std::int64_t drawn = 0;
    for (; drawn < known.count; ++drawn) mark(out[drawn] = known.items[drawn]);
    const bool many = count - drawn + degree + settings_.known.most(row) >= settings_.support;
    if (many && drawn < count && count - drawn == open_items(settings_, liked, degree, row)) {
      for (std::int64_t n = 0; drawn < count; ++n)
        if (settings_.weights[n] > 0 && !closed(static_cast<std::int32_t>(n)))
          out[drawn++] = static_cast<std::int32_t>(n);
    } else if (drawn < count) {
      if (settings_.walk != nullptr && degree > 0) drawn = draw_by_walk(random, liked, degree, count, drawn, out);
      drawn =
          draw_while_cheap(random, count, drawn, 4, out, [&](std::int64_t) { return settings_.table.draw(random); });
      if (drawn < count && settings_.tilt == nullptr && settings_.known.rules == nullptr) {
        draw_from_tree(random, liked, degree, count, drawn, out);
      } else if (drawn < count) {
        own_weights_.assign(settings_.weights, settings_.weights + settings_.table.size);
        draw_by_own_weights(random, liked, degree, count, drawn, out);
      }
    }
    for (std::int64_t e = 0; e < impossible_.count; ++e)
      marks_[static_cast<std::size_t>(impossible_.items[e]) / 64] = 0;
    for (std::int64_t e = 0; e < degree; ++e) marks_[static_cast<std::size_t>(liked[e]) / 64] = 0;
    for (std::int64_t e = 0; e < count; ++e) marks_[static_cast<std::size_t>(out[e]) / 64] = 0;
  }

  // Fetch what the next user's draws will read, from the user's likes.
  void expect(const std::int32_t* liked, std::int64_t degree) const {
    if (settings_.walk != nullptr) settings_.walk->fetch(liked, degree);
  }

  std::int64_t rejected() const { return rejected_; }
  std::int64_t from_tree() const { return from_tree_; }
  std::int64_t from_pi() const { return from_pi_; }

 private:
  // Rejection-sample with next(number still wanted) until there are `count` draws, or until more than `times` as many
  // were discarded as kept: then an exact draw is cheaper. Returns the number of draws. Discarding liked and drawn
  // items is sampling without replacement. The law of the next item does not depend on the number of discarded ones, so
  // leaving the loop for an exact draw is exact too.
  template <class Next>
  std::int64_t draw_while_cheap(Random& random, std::int64_t count, std::int64_t drawn, std::int64_t times,
                                std::int32_t* out, Next next) {
    std::int64_t discarded = 0;
    while (drawn < count && discarded <= times * drawn + patience_) {
      const std::int32_t n = next(count - drawn);
      if (closed(n) || (settings_.tilt != nullptr && random.uniform() >= settings_.tilt->chance(row_, n))) {
        ++discarded;
      } else {
        mark(n);
        out[drawn++] = n;
      }
    }
    rejected_ += discarded;
    return drawn;
  }

  // Draw by the user's own weights while any item is left that has one. Returns the number of draws. The weights are
  // written out, but in a large catalogue the items that the walk leads to are kept apart from pi.
  std::int64_t draw_by_walk(Random& random, const std::int32_t* liked, std::int64_t degree, std::int64_t count,
                            std::int64_t drawn, std::int32_t* out) {
    WalkStream stream(*settings_.walk, settings_.table, random, liked, degree);
    drawn = draw_while_cheap(random, count, drawn, 8, out, [&](std::int64_t wanted) { return stream.next(wanted); });
    if (drawn == count) return count;
    if (settings_.tilt == nullptr && settings_.known.rules == nullptr && settings_.table.size >= kLarge) {
      drawn = draw_by_parts(random, liked, degree, count, drawn, out);
    } else {
      settings_.walk->weigh(liked, degree, settings_.weights, settings_.table.size, walked_, own_weights_);
      drawn = draw_by_own_weights(random, liked, degree, count, drawn, out);
    }
    from_pi_ += count - drawn;
    return drawn;
  }

  // Draw by the same law in two parts, a tree of the items that the walk leads to and pi. The cost does not grow with
  // the catalogue. A draw from pi is repeated while its item is marked.
  std::int64_t draw_by_parts(Random& random, const std::int32_t* liked, std::int64_t degree, std::int64_t count,
                             std::int64_t drawn, std::int32_t* out) {
    const double* pi = settings_.weights;
    if (total_ < 0.0) total_ = std::accumulate(pi, pi + settings_.table.size, 0.0);
    double left = total_;  // mass of pi of the items that are not marked
    for (std::int64_t e = 0; e < degree; ++e) left -= pi[liked[e]];
    for (std::int64_t e = 0; e < drawn; ++e) left -= pi[out[e]];
    for (std::int64_t e = 0; e < impossible_.count; ++e) left -= pi[impossible_.items[e]];
    std::vector<std::int32_t> items;
    std::vector<double> weights;
    const double background = settings_.walk->lead(liked, degree, items, weights) / total_;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (marked(items[i])) weights[i] = 0.0;
    WeightedTree tree(weights.data(), static_cast<std::int64_t>(weights.size()));
    for (; drawn < count; ++drawn, ++from_tree_) {
      const double walked = tree.total(), of_pi = background * std::max(left, 0.0);
      if (walked + of_pi <= 0.0) break;
      std::int32_t n;
      if (random.uniform() * (walked + of_pi) < walked) {
        n = items[static_cast<std::size_t>(tree.draw(random))];
      } else {
        do n = settings_.table.draw(random);
        while (marked(n));
      }
      const auto at = std::lower_bound(items.begin(), items.end(), n);
      if (at != items.end() && *at == n) tree.set(at - items.begin(), 0.0);
      mark(n);
      left -= pi[n];
      out[drawn] = n;
    }
    return drawn;
  }

  // Draw from a tree of the user's own weights. Returns the number of draws.
  std::int64_t draw_by_own_weights(Random& random, const std::int32_t* liked, std::int64_t degree, std::int64_t count,
                                   std::int64_t drawn, std::int32_t* out) {
    for (std::int64_t e = 0; e < degree; ++e) own_weights_[static_cast<std::size_t>(liked[e])] = 0.0;
    for (std::int64_t e = 0; e < drawn; ++e) own_weights_[static_cast<std::size_t>(out[e])] = 0.0;
    for (std::int64_t e = 0; e < impossible_.count; ++e)
      own_weights_[static_cast<std::size_t>(impossible_.items[e])] = 0.0;
    if (settings_.known.rules != nullptr)
      for (std::int64_t n = 0; n < settings_.table.size; ++n)
        if (settings_.known.rules->forbid(row_, static_cast<std::int32_t>(n)))
          own_weights_[static_cast<std::size_t>(n)] = 0.0;
    if (settings_.tilt != nullptr) settings_.tilt->lean(row_, own_weights_.data(), settings_.table.size);
    WeightedTree tree(own_weights_.data(), settings_.table.size);
    for (; drawn < count && tree.total() > 0.0; ++drawn, ++from_tree_) {
      out[drawn] = tree.draw(random);
      tree.set(out[drawn], 0.0);
      mark(out[drawn]);
    }
    return drawn;
  }

  void draw_from_tree(Random& random, const std::int32_t* liked, std::int64_t degree, std::int64_t count,
                      std::int64_t drawn, std::int32_t* out) {
    if (tree_.empty()) tree_.emplace_back(settings_.weights, settings_.table.size);
    WeightedTree& tree = tree_.front();
    from_tree_ += count - drawn;
    for (std::int64_t e = 0; e < degree; ++e) tree.set(liked[e], 0.0);
    for (std::int64_t e = 0; e < drawn; ++e) tree.set(out[e], 0.0);
    for (std::int64_t e = 0; e < impossible_.count; ++e) tree.set(impossible_.items[e], 0.0);
    for (; drawn < count; ++drawn) {
      out[drawn] = tree.draw(random);
      tree.set(out[drawn], 0.0);
    }
    for (std::int64_t e = 0; e < degree; ++e) tree.set(liked[e], settings_.weights[liked[e]]);
    for (std::int64_t e = 0; e < count; ++e) tree.set(out[e], settings_.weights[out[e]]);
    for (std::int64_t e = 0; e < impossible_.count; ++e)
      tree.set(impossible_.items[e], settings_.weights[impossible_.items[e]]);
  }

  void mark(std::int32_t n) { marks_[static_cast<std::size_t>(n) / 64] |= std::uint64_t{1} << (n % 64); }
  bool marked(std::int32_t n) const { return marks_[static_cast<std::size_t>(n) / 64] >> (n % 64) & 1; }

  // Whether an item may not be drawn for the user at work.
  bool closed(std::int32_t n) const {
    return marked(n) || (settings_.known.rules != nullptr && settings_.known.rules->forbid(row_, n));
  }

  DrawSettings settings_;
  ItemList impossible_{};  // of the user at work
  std::vector<std::uint64_t> marks_;
  std::vector<WeightedTree> tree_;  // made when first needed
  std::vector<float> walked_;
  std::vector<double> own_weights_;
  std::int64_t rejected_ = 0, from_tree_ = 0, from_pi_ = 0;
  static constexpr std::int64_t kLarge = 65536;  // items
  double total_ = -1.0;                          // sum of pi, computed when it is first needed
  std::int64_t row_ = 0;                         // of the user at work
  std::int64_t patience_ = 64;                   // draws that may be discarded before the first
};

}  // namespace considerate
