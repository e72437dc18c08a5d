// The rows of the walk's table: from item to item over G.
//
// From item n' go to one of the users who like it, and on to one of that user's likes: W_n'n. Sums over users are
// whole numbers, so that users may be added in any order, by any worker, to the same bits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "random.hpp"
#include "walk.hpp"

namespace considerate {

constexpr double kWalkUnit = 4294967296.0;  // 2^32: a user who is reached spreads so much over the likes
constexpr std::uint64_t kWalkStream = 0x57414C4B;

struct WalkGraph {
  Lists users_of, likes_of;     // the users who like an item, the items that a user likes
  const double* pull;           // [items] a_n: the weight of a like of this item in a user's last step; pi_n / d_n
  std::int64_t items, most;     // a user with more likes than `most` takes a window of `most` of them
  std::int64_t first_user;      // number of the user of row 0 of `likes_of`
  std::int64_t first_item;      // number of the item of row 0 of `users_of`
  const std::int32_t* numbers;  // numbers of the users of `likes_of`; null: they follow `first_user`

  std::int64_t number(std::int64_t user) const { return numbers == nullptr ? first_user + user : numbers[user]; }

  // All likes pull alike, as they do if pi is the degree.
  bool even() const {
    return std::all_of(pull, pull + items, [](double a) { return a == 1.0 || a == 0.0; });
  }
};

// Compute A_m, the sum of the pulls of each user's likes.
inline void add_pulls(const Lists& likes_of, std::int64_t users, const double* pull, double* out) {
  for (std::int64_t user = 0; user < users; ++user) {
    const std::int32_t* liked = likes_of.row(user);
    out[user] = 0.0;
    for (std::int64_t e = 0; e < likes_of.size(user); ++e) out[user] += pull[liked[e]];
  }
}

// Count the steps that the row of each item costs.
inline void count_steps(const WalkGraph& graph, std::int64_t rows, std::int64_t* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t* users = graph.users_of.row(row);
    out[row] = 0;
    for (std::int64_t e = 0; e < graph.users_of.size(row); ++e)
      out[row] += std::min(graph.likes_of.size(users[e]), graph.most);
  }
}

// Sparse rows of sums: items ascend within a row.
struct WalkSums {
  std::vector<std::int64_t> starts{0};
  std::vector<std::int32_t> items;
  std::vector<std::uint64_t> sums;
};

// A view of a row of sums.
struct SumsView {
  const std::int32_t* items;
  const std::uint64_t* sums;
  std::int64_t count;
};

// Sorts items by counting: few passes over the items, without branches that are hard to predict.
class ItemOrder {
 public:
  explicit ItemOrder(std::int64_t items) {
    const int bits = std::max(1, 64 - __builtin_clzll(static_cast<std::uint64_t>(items)));
    passes_ = (bits + 10) / 11;
    digit_ = (bits + passes_ - 1) / passes_;
    counts_.resize(std::size_t{1} << digit_);
  }

  // The places of the items in ascending order of the items: `count` of them.
  const std::int32_t* places(const std::int32_t* items, std::int64_t count) {
    if (places_.size() < static_cast<std::size_t>(count)) {
      places_.resize(static_cast<std::size_t>(2 * count));
      other_.resize(places_.size());
    }
    for (std::int64_t e = 0; e < count; ++e) places_[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(e);
    for (int pass = 0; pass < passes_; ++pass) {
      const int shift = pass * digit_;
      const auto digit = [&](std::int32_t e) {
        return (static_cast<std::uint32_t>(items[e]) >> shift) & ((std::uint32_t{1} << digit_) - 1);
      };
      std::fill(counts_.begin(), counts_.end(), 0);
      for (std::int64_t e = 0; e < count; ++e) ++counts_[digit(static_cast<std::int32_t>(e))];
      std::int32_t before = 0;
      for (std::int32_t& c : counts_) before += std::exchange(c, before);
      for (std::int64_t e = 0; e < count; ++e) {
        const std::int32_t place = places_[static_cast<std::size_t>(e)];
        other_[static_cast<std::size_t>(counts_[digit(place)]++)] = place;
      }
      places_.swap(other_);
    }
    return places_.data();
  }

 private:
  int passes_, digit_;
  std::vector<std::int32_t> counts_, places_, other_;
};

// Sums the steps from one item after the other.
class WalkAdder {
 public:
  // totals: A_m of the users; null: all likes pull alike.
  WalkAdder(const WalkGraph& graph, const double* totals) : graph_(graph), totals_(totals), order_(graph.items) {}

  // Sum the steps from the item of a row of `users_of`, in no order. The view is valid until the next row.
  SumsView walk_from(std::int64_t row) {
    const std::int32_t* users = graph_.users_of.row(row);
    const std::int64_t degree = graph_.users_of.size(row);
    make_room(users, degree);
    for (std::int64_t e = 0; e < degree; ++e) {
      if (e + 2 * kAhead < degree) __builtin_prefetch(graph_.likes_of.starts + users[e + 2 * kAhead]);
      if (e + kAhead < degree) __builtin_prefetch(graph_.likes_of.row(users[e + kAhead]));
      spread(users[e], graph_.first_item + row);
    }
    if (dense_)
      gather();
    else
      std::fill(slots_.begin(), slots_.begin() + (std::int64_t{1} << bits_), -1);
    return {items_.data(), sums_.data(), count_};
  }

  // Add a row of `users_of` to the end of `out`.
  void row(std::int64_t row, WalkSums& out) {
    walk_from(row);
    const std::int32_t* places = order_.places(items_.data(), count_);
    for (std::int64_t e = 0; e < count_; ++e) {
      const auto at = static_cast<std::size_t>(places[e]);
      out.items.push_back(items_[at]);
      out.sums.push_back(sums_[at]);
    }
    out.starts.push_back(static_cast<std::int64_t>(out.items.size()));
  }

 private:
  static constexpr std::int64_t kAhead = 8;      // users whose likes are fetched ahead
  static constexpr std::int64_t kManySteps = 2;  // steps per item from which a row has a sum for every item

  // A hash table of the items that a row may meet: small rows stay in the near caches, however many items there are. If
  // it would be as large as the catalogue, an item's own number is its slot. If there are many more steps than items,
  // there is a sum for every item and no table.
  void make_room(const std::int32_t* users, std::int64_t degree) {
    std::int64_t steps = 0;
    for (std::int64_t e = 0; e < degree; ++e) steps += std::min(graph_.likes_of.size(users[e]), graph_.most);
    const std::int64_t most = std::min(steps, graph_.items);
    bits_ = 6;
    while ((std::int64_t{1} << bits_) < 2 * most) ++bits_;
    const bool all = std::int64_t{1} << bits_ >= graph_.items;
    hash_ = all ? 1 : 2654435769u;
    shift_ = all ? 0 : 32 - bits_;
    dense_ = steps >= kManySteps * graph_.items;
    if (dense_) every_.resize(static_cast<std::size_t>(graph_.items));
    const auto slots = std::size_t{1} << bits_;
    if (!dense_ && slots_.size() < slots) slots_.resize(slots, -1);
    if (items_.size() < static_cast<std::size_t>(most)) {
      items_.resize(static_cast<std::size_t>(most));
      sums_.resize(static_cast<std::size_t>(most));
    }
    count_ = 0;
  }

  // Add one user's step to a like, by its pull. A very active user steps within a window of likes that begins at a
  // random one: each like is in it with the same probability, so the sum is right on average.
  void spread(std::int64_t user, std::int64_t item) {
    const std::int32_t* liked = graph_.likes_of.row(user);
    const std::int64_t degree = graph_.likes_of.size(user);
    std::int64_t first = 0, count = degree;
    double scale = kWalkUnit / (totals_ == nullptr ? static_cast<double>(degree) : totals_[user]);
    if (degree > graph_.most) {
      Random random(
          key64(kWalkStream, static_cast<std::uint64_t>(graph_.number(user)), static_cast<std::uint64_t>(item)));
      first = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(degree)));
      count = graph_.most;
      scale *= static_cast<double>(degree) / static_cast<double>(count);
    }
    const std::int64_t to_end = std::min(count, degree - first);
    add(liked + first, to_end, scale);
    add(liked, count - to_end, scale);
  }

  void add(const std::int32_t* items, std::int64_t count, double scale) {
    if (totals_ == nullptr)
      add_each(items, count, [part = whole(scale)](std::int32_t) { return part; });
    else
      add_each(items, count, [pull = graph_.pull, scale](std::int32_t n) { return whole(scale * pull[n]); });
  }

  // Collect the sums of all items that were met, and set them to zero.
  void gather() {
    for (std::int64_t n = 0; n < graph_.items; ++n) {
      if (every_[static_cast<std::size_t>(n)] == 0) continue;
      items_[static_cast<std::size_t>(count_)] = static_cast<std::int32_t>(n);
      sums_[static_cast<std::size_t>(count_++)] = std::exchange(every_[static_cast<std::size_t>(n)], 0);
    }
  }

  template <class Part>
  void add_each(const std::int32_t* items, std::int64_t count, Part part) {
    if (dense_) {
      std::uint64_t* every = every_.data();
      for (std::int64_t e = 0; e < count; ++e) every[items[e]] += part(items[e]);
      return;
    }
    const std::uint32_t last = (std::uint32_t{1} << bits_) - 1;
    std::int32_t* slots = slots_.data();
    std::int32_t* met = items_.data();
    std::uint64_t* sums = sums_.data();
    for (std::int64_t e = 0; e < count; ++e) {
      const std::int32_t n = items[e];
      std::uint32_t slot = static_cast<std::uint32_t>(n) * hash_ >> shift_;
      while (slots[slot] >= 0 && met[slots[slot]] != n) slot = (slot + 1) & last;
      if (slots[slot] >= 0) {
        sums[slots[slot]] += part(n);
      } else {
        slots[slot] = static_cast<std::int32_t>(count_);
        met[count_] = n;
        sums[count_++] = part(n);
      }
    }
  }

  // At least 1, so that an item that was touched shows it; below 2^63 the signed conversion is the faster one.
  static std::uint64_t whole(double x) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<std::int64_t>(x + 0.5)));
  }

  const WalkGraph& graph_;
  const double* totals_;
  ItemOrder order_;
  std::vector<std::int32_t> slots_;  // 2^bits_ in use: the place of the item met, or -1
  std::vector<std::int32_t> items_;
  std::vector<std::uint64_t> sums_;
  std::vector<std::uint64_t> every_;  // [items], zero between rows
  bool dense_ = false;
  std::int64_t count_ = 0;
  int bits_ = 6, shift_ = 0;
  std::uint32_t hash_ = 1;
};

// Cuts rows of sums: keeps the `keep` entries with the largest W log(W / p), by item.
class RowCutter {
 public:
  RowCutter(const double* p, std::int64_t items, std::int64_t keep)
      : p_(p), keep_(keep), per_p_(static_cast<std::size_t>(items)), order_(items), bins_(kBins) {
    for (std::int64_t n = 0; n < items; ++n) per_p_[static_cast<std::size_t>(n)] = static_cast<float>(1.0 / p[n]);
  }

  // Cut a row of entries in any order, and add it to the outputs in the order of the items. Returns the mass cut.
  double cut(SumsView row, std::vector<std::int32_t>& items_out, std::vector<float>& shares_out) {
    std::uint64_t total = 0, held = 0;
    for (std::int64_t e = 0; e < row.count; ++e) total += row.sums[e];
    if (row.count > keep_) {
      choose(row, total);
      row = {kept_items_.data(), kept_sums_.data(), keep_};
    }
    const std::int32_t* places = order_.places(row.items, row.count);
    for (std::int64_t e = 0; e < row.count; ++e) {
      items_out.push_back(row.items[places[e]]);
      shares_out.push_back(static_cast<float>(share(row.sums[places[e]], total)));
      held += row.sums[e];
    }
    return total == 0 ? 1.0 : static_cast<double>(total - held) / static_cast<double>(total);
  }

 private:
  struct Value {
    double value;
    std::int32_t item;
    std::uint64_t sum;

    bool operator<(const Value& other) const {
      return value > other.value || (value == other.value && item < other.item);
    }
  };

  static double share(std::uint64_t sum, std::uint64_t total) {
    return static_cast<double>(sum) / static_cast<double>(total);
  }

  // Choose the best entries. Values in float32 decide about nearly all of them, exact ones about the rest.
  void choose(const SumsView& row, std::uint64_t total) {
    const auto [items, sums, count] = row;
    values_.resize(static_cast<std::size_t>(count));
    const auto per_total = static_cast<float>(1.0 / static_cast<double>(total));
    float most = 0.0f, largest = 0.0f;
    for (std::int64_t e = 0; e < count; ++e) {
      __builtin_prefetch(&per_p_[static_cast<std::size_t>(items[std::min(e + kAhead, count - 1)])]);
      const auto sum = static_cast<float>(static_cast<std::int64_t>(sums[e]));
      const float ratio = sum * per_total * per_p_[static_cast<std::size_t>(items[e])];
      const float value = ratio < HUGE_VALF ? sum * log2_of(ratio) : HUGE_VALF;
      values_[static_cast<std::size_t>(e)] = value;
      most = std::max(most, value);
      largest = std::max(largest, sum);
    }
    const auto [low, high] = band(most);
    const float error = 1e-4f * largest;  // of two values, with room to spare
    std::int64_t kept = 0, close = 0;
    kept_items_.resize(values_.size() + 1);
    kept_sums_.resize(values_.size() + 1);
    close_places_.resize(values_.size() + 1);
    for (std::int64_t e = 0; e < count; ++e) {  // without branches, as no processor could predict them
      const float value = values_[static_cast<std::size_t>(e)];
      const bool above = value > high + error, below = value < low - error;
      kept_items_[static_cast<std::size_t>(kept)] = items[e];
      kept_sums_[static_cast<std::size_t>(kept)] = sums[e];
      close_places_[static_cast<std::size_t>(close)] = e;
      kept += above;
      close += !(above | below);
    }
    close_.clear();
    for (std::int64_t i = 0; i < close; ++i) {
      const std::int64_t e = close_places_[static_cast<std::size_t>(i)];
      const double w = share(sums[e], total);
      close_.push_back({w * std::log(w / p_[items[e]]), items[e], sums[e]});
    }
    std::nth_element(close_.begin(), close_.begin() + (keep_ - kept), close_.end());
    for (std::size_t i = 0; kept < keep_; ++i, ++kept) {
      kept_items_[static_cast<std::size_t>(kept)] = close_[i].item;
      kept_sums_[static_cast<std::size_t>(kept)] = close_[i].sum;
    }
  }

  // Two numbers, near one another, with the `keep`-th largest value between them.
  std::pair<float, float> band(float most) {
    const std::uint32_t top = bin_of(most);
    std::fill(bins_.begin(), bins_.end(), 0);
    for (const float value : values_) ++bins_[std::min(kBins - 1, top - bin_of(value))];
    std::uint32_t bin = 0;
    for (std::int64_t above = bins_[0]; above < keep_; above += bins_[bin]) ++bin;
    const bool lowest = bin + 1 == kBins || bin == top;  // it contains everything below too
    return {lowest ? -HUGE_VALF : edge(top - bin), edge(top - bin + 1)};
  }

  // Bins of 1 / 128 of an octave; values up to 0 are in the lowest.
  static std::uint32_t bin_of(float value) { return value > 0.0f ? bits_of(value) >> 16 : 0; }
  static float edge(std::uint32_t bin) {
    const std::uint32_t bits = bin << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  static std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }

  // log2 of a normal number above 0, to within 1e-6 of 1.
  static float log2_of(float x) {
    const std::uint32_t bits = bits_of(x), shifted = bits - 0x3F3504F3u;  // the mantissa from sqrt(1/2) to sqrt(2)
    const auto exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
    const std::uint32_t mantissa = bits - (shifted & 0xFF800000u);
    float m;
    std::memcpy(&m, &mantissa, sizeof m);
    const float z = (m - 1.0f) / (m + 1.0f), square = z * z;
    return exponent + z * (2.8853901f + square * (0.9617967f + square * (0.57707802f + square * 0.41219859f)));
  }

  static constexpr std::uint32_t kBins = 2048;
  static constexpr std::int64_t kAhead = 32;
  const double* p_;
  std::int64_t keep_;
  std::vector<float> per_p_, values_;
  ItemOrder order_;
  std::vector<std::int32_t> bins_;
  std::vector<std::int64_t> close_places_;
  std::vector<Value> close_;  // entries about which the exact value decides
  std::vector<std::int32_t> kept_items_;
  std::vector<std::uint64_t> kept_sums_;
};

// Add a row of two parts; returns the number of entries. No branch depends on the items: none could be predicted.
inline std::int64_t add_row(const SumsView& a, const SumsView& b, std::int32_t* items, std::uint64_t* sums) {
  std::int64_t i = 0, j = 0, k = 0;
  for (; i < a.count && j < b.count; ++k) {
    const std::int32_t x = a.items[i], y = b.items[j];
    const std::int64_t left = x <= y, right = y <= x;
    items[k] = std::min(x, y);
    sums[k] = (a.sums[i] & static_cast<std::uint64_t>(-left)) + (b.sums[j] & static_cast<std::uint64_t>(-right));
    i += left;
    j += right;
  }
  const SumsView& longer = i < a.count ? a : b;
  const std::int64_t done = i < a.count ? i : j;
  std::copy(longer.items + done, longer.items + longer.count, items + k);
  std::copy(longer.sums + done, longer.sums + longer.count, sums + k);
  return k + longer.count - done;
}

}  // namespace considerate
