// Random bipartite graphs with given degrees (section 2 of the paper) and popularity draws without replacement.
// The specification, function by function, is tests/helpers/simulate_reference.py.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "random.hpp"

namespace considerate {

// Streams of key64(seed, stream, index) for the draws of this file.
enum SimulateStream : std::uint64_t { kEqualise = 101, kJoin = 102, kConsider = 103 };

// Inverse-CDF draws in O(1) on average: a guide has the place where the search for u starts.
// Equals np.searchsorted(cumulative, u * cumulative[-1], side="right"), held below the size.
class InverseCdf {
 public:
  InverseCdf(const double* cumulative, std::size_t size)
      : cumulative_(cumulative), size_(size), total_(cumulative[size - 1]), guide_(size) {
    std::size_t k = 0;
    for (std::size_t j = 0; j < size; ++j) {
      const double from = total_ * (static_cast<double>(j) / static_cast<double>(size));
      while (k + 1 < size && cumulative[k] <= from) ++k;
      guide_[j] = static_cast<std::uint32_t>(k);
    }
  }

  std::size_t operator()(double u) const {
    const double x = u * total_;
    const auto j = static_cast<std::size_t>(u * static_cast<double>(size_));
    std::size_t k = guide_[std::min(j, size_ - 1)];
    while (k > 0 && cumulative_[k - 1] > x) --k;  // u * size may have been rounded up
    while (k + 1 < size_ && cumulative_[k] <= x) ++k;
    return k;
  }

 private:
  const double* cumulative_;
  std::size_t size_;
  double total_;
  std::vector<std::uint32_t> guide_;
};

struct Equalised {
  std::int64_t redraws = 0;
  std::int64_t gap = 0;  // sum of user degrees - sum of item degrees; 0 unless the limit was hit
};

// Redraw the degrees of one random user and one random item until the sums agree, in place.
// After `free` redraws it keeps only redraws that do not widen the gap; after `free + homing` it gives up.
inline Equalised equalise_degrees(std::int32_t* user_degrees, std::size_t users, std::int32_t* item_degrees,
                                  std::size_t items, const InverseCdf& user_law, std::int64_t user_minimum,
                                  const InverseCdf& item_law, std::int64_t item_minimum, std::uint64_t seed,
                                  std::uint64_t attempt, std::int64_t free, std::int64_t homing) {
  Random random(key64(seed, kEqualise, attempt));
  Equalised out;
  out.gap = std::accumulate(user_degrees, user_degrees + users, std::int64_t{0}) -
            std::accumulate(item_degrees, item_degrees + items, std::int64_t{0});
  for (; out.gap != 0 && out.redraws < free + homing; ++out.redraws) {
    const std::size_t m = random.below(users);
    const std::size_t n = random.below(items);
    const auto d_m = user_minimum + static_cast<std::int64_t>(user_law(random.uniform()));
    const auto d_n = item_minimum + static_cast<std::int64_t>(item_law(random.uniform()));
    const std::int64_t gap = out.gap + (d_m - user_degrees[m]) - (d_n - item_degrees[n]);
    if (out.redraws >= free && std::abs(gap) > std::abs(out.gap)) continue;
    user_degrees[m] = static_cast<std::int32_t>(d_m);
    item_degrees[n] = static_cast<std::int32_t>(d_n);
    out.gap = gap;
  }
  return out;
}

template <class T>
void shuffle(T* values, std::size_t size, Random& random) {
  for (std::size_t i = size; i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

struct Joined {
  std::int64_t repairs = 0;
  bool rebuilt = false;
};

// Joins half-edges; `row` holds the first edge of each user (size users + 1), `edges` the items, to be filled.
class Joiner {
 public:
  Joiner(const std::vector<std::int64_t>& row, const std::int32_t* item_degrees, std::size_t items, std::int32_t* edges,
         std::uint64_t seed, std::uint64_t attempt)
      : row_(row), degrees_(item_degrees), items_(items), edges_(edges), random_(key64(seed, kJoin, attempt)) {}

  Joined run() {
    Joined out;
    shuffle_half_edges();
    const std::vector<std::int64_t> doubles = find_doubles();
    const auto edge_count = static_cast<std::size_t>(row_.back());
    // With many doubles the graph is dense and swaps would rarely be allowed: build it instead.
    if (doubles.size() * 10 > edge_count || !repair(doubles, out)) {
      out.rebuilt = true;
      build();
      for (std::size_t t = 0; t < 10 * users(); ++t) trade();
    }
    for (std::size_t m = 0; m < users(); ++m) std::sort(edges_ + row_[m], edges_ + row_[m + 1]);
    return out;
  }

 private:
  std::size_t users() const { return row_.size() - 1; }

  void shuffle_half_edges() {
    std::int32_t* end = edges_;
    for (std::size_t n = 0; n < items_; ++n) end = std::fill_n(end, degrees_[n], static_cast<std::int32_t>(n));
    shuffle(edges_, static_cast<std::size_t>(row_.back()), random_);
  }

  // Positions of items that occur earlier in the same row.
  std::vector<std::int64_t> find_doubles() const {
    std::vector<std::int64_t> doubles;
    std::vector<std::int64_t> seen(items_, -1);
    for (std::size_t m = 0; m < users(); ++m)
      for (std::int64_t p = row_[m]; p < row_[m + 1]; ++p) {
        std::int64_t& last = seen[static_cast<std::size_t>(edges_[p])];
        if (last == static_cast<std::int64_t>(m)) doubles.push_back(p);
        last = static_cast<std::int64_t>(m);
      }
    return doubles;
  }

  std::int64_t count_in_row(std::size_t m, std::int32_t item) const {
    return std::count(edges_ + row_[m], edges_ + row_[m + 1], item);
  }

  std::size_t user_of(std::int64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(row_.begin(), row_.end(), position) - row_.begin()) - 1;
  }

  // Swap each double with a uniformly drawn edge, if the swap makes no new double. False if tries run out.
  bool repair(const std::vector<std::int64_t>& doubles, Joined& out) {
    std::int64_t tries = 2 * row_.back() + 1000;
    for (const std::int64_t p : doubles) {
      const std::size_t m = user_of(p);
      while (count_in_row(m, edges_[p]) > 1) {
        if (tries-- == 0) return false;
        const auto q = static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(row_.back())));
        if (count_in_row(m, edges_[q]) > 0 || count_in_row(user_of(q), edges_[p]) > 0) continue;
        std::swap(edges_[p], edges_[q]);
        ++out.repairs;
      }
    }
    return true;
  }

  // Each user takes the items with the most half-edges left (Gale and Ryser). `order` stays sorted by what is
  // left: of the block of equals that is taken in part, the last ones are taken.
  void build() {
    std::vector<std::int32_t> order(items_);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return degrees_[a] > degrees_[b]; });
    std::vector<std::int32_t> left(items_);
    for (std::size_t k = 0; k < items_; ++k) left[k] = degrees_[order[k]];
    for (std::size_t m = 0; m < users(); ++m) {
      const auto taken = static_cast<std::size_t>(row_[m + 1] - row_[m]);
      if (taken == 0) continue;
      const std::int32_t last = left[taken - 1];
      const auto descending = [](std::int32_t a, std::int32_t b) { return a > b; };
      const auto block = std::equal_range(left.begin(), left.end(), last, descending);
      const auto before = static_cast<std::size_t>(block.first - left.begin());
      const auto end = static_cast<std::size_t>(block.second - left.begin());
      std::int32_t* edge = edges_ + row_[m];
      const auto take = [&](std::size_t k) {
        *edge++ = order[k];
        --left[k];
      };
      for (std::size_t k = 0; k < before; ++k) take(k);
      for (std::size_t k = end - (taken - before); k < end; ++k) take(k);
    }
  }

  // Two random users pool the items that only one of them has, and deal them out again (a curveball trade).
  void trade() {
    const std::size_t a = random_.below(users());
    const std::size_t b = random_.below(users());
    if (a == b) return;
    in_a_.resize(items_, 0);
    in_b_.resize(items_, 0);
    ++trade_;
    for (auto p = row_[a]; p < row_[a + 1]; ++p) in_a_[static_cast<std::size_t>(edges_[p])] = trade_;
    for (auto p = row_[b]; p < row_[b + 1]; ++p) in_b_[static_cast<std::size_t>(edges_[p])] = trade_;
    places_.clear();
    pool_.clear();
    const auto collect = [&](std::size_t m, const std::vector<std::uint64_t>& other) {
      for (auto p = row_[m]; p < row_[m + 1]; ++p)
        if (other[static_cast<std::size_t>(edges_[p])] != trade_) {
          places_.push_back(p);
          pool_.push_back(edges_[p]);
        }
    };
    collect(a, in_b_);
    collect(b, in_a_);
    shuffle(pool_.data(), pool_.size(), random_);
    for (std::size_t k = 0; k < pool_.size(); ++k) edges_[places_[k]] = pool_[k];
  }

  const std::vector<std::int64_t>& row_;
  const std::int32_t* degrees_;
  std::size_t items_;
  std::int32_t* edges_;
  Random random_;
  std::uint64_t trade_ = 0;
  std::vector<std::uint64_t> in_a_, in_b_;
  std::vector<std::int64_t> places_;
  std::vector<std::int32_t> pool_;
};

// User m considers row[m+1] - row[m] items, drawn without replacement in proportion to `weights`; items ascend.
// Repeats are thrown away; if that takes too long the rest have the smallest keys Exp(1) / weight, which is the
// same distribution. At least that many weights must be positive.
inline void draw_considered(const std::vector<std::int64_t>& row, const double* weights, std::size_t items,
                            std::int32_t* edges, std::uint64_t seed) {
  std::vector<double> cumulative(items);
  std::partial_sum(weights, weights + items, cumulative.begin());
  const InverseCdf popularity(cumulative.data(), items);
  std::vector<std::int64_t> drawn(items, -1);
  std::vector<std::pair<double, std::int32_t>> keys;
  for (std::size_t m = 0; m + 1 < row.size(); ++m) {
    Random random(key64(seed, kConsider, m));
    const auto user = static_cast<std::int64_t>(m);
    const std::int64_t wanted = row[m + 1] - row[m];
    std::int32_t* const begin = edges + row[m];
    std::int64_t have = 0;
    for (std::int64_t tries = 4 * wanted + 16; have < wanted && tries > 0; --tries) {
      const std::size_t n = popularity(random.uniform());
      if (drawn[n] == user || !(weights[n] > 0)) continue;
      drawn[n] = user;
      begin[have++] = static_cast<std::int32_t>(n);
    }
    if (have < wanted) {
      keys.clear();
      for (std::size_t n = 0; n < items; ++n)
        if (drawn[n] != user && weights[n] > 0)
          keys.emplace_back(-std::log1p(-random.uniform()) / weights[n], static_cast<std::int32_t>(n));
      std::partial_sort(keys.begin(), keys.begin() + (wanted - have), keys.end());
      for (std::int64_t k = 0; have < wanted; ++k) begin[have++] = keys[static_cast<std::size_t>(k)].second;
    }
    std::sort(begin, begin + wanted);
  }
}

}  // namespace considerate
