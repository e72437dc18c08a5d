// The walk from item to item over G: the table that says who considers what, and draws from it.
//
// From item n' go to one of the users who like it, and on to one of that user's likes: W_n'n. Sums over users are
// whole numbers, so that users may be added in any order, by any worker, to the same bits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "draws.hpp"

namespace considerate {

constexpr double kWalkUnit = 4294967296.0;  // 2^32: a user who is reached spreads so much over the likes
constexpr std::uint64_t kWalkStream = 0x57414C4B;

struct Lists {
  const std::int64_t* starts;
  const std::int32_t* indices;

  const std::int32_t* row(std::int64_t i) const { return indices + starts[i]; }
  std::int64_t size(std::int64_t i) const { return starts[i + 1] - starts[i]; }
};

struct WalkGraph {
  Lists users_of, likes_of;  // who likes an item, what a user likes
  const double* pull;        // [items] a_n: how much a like of this item draws a user's last step; pi_n / d_n
  std::int64_t items, most;  // of a user with more likes than `most`, a window of so many is taken
  std::int64_t first_user;   // of row 0 of `likes_of`, among all
  std::int64_t first_item;   // of row 0 of `users_of`, among all

  // Whether all likes pull alike, as where pi is the degree.
  bool even() const {
    return std::all_of(pull, pull + items, [](double a) { return a == 1.0 || a == 0.0; });
  }
};

// A_m: the pull of all that each user likes.
inline void add_pulls(const Lists& likes_of, std::int64_t users, const double* pull, double* out) {
  for (std::int64_t user = 0; user < users; ++user) {
    const std::int32_t* liked = likes_of.row(user);
    out[user] = 0.0;
    for (std::int64_t e = 0; e < likes_of.size(user); ++e) out[user] += pull[liked[e]];
  }
}

// Steps that the row of each item costs.
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

class WalkAdder {
 public:
  // totals: A_m of the users, or nullptr where all likes pull alike.
  WalkAdder(const WalkGraph& graph, const double* totals)
      : graph_(graph),
        totals_(totals),
        sums_(static_cast<std::size_t>(graph.items), 0),
        touched_(static_cast<std::size_t>(graph.items) + 1),
        marks_(static_cast<std::size_t>(graph.items) / 64 + 1, 0) {}

  // Adds a row of `users_of` to the end of `out`.
  void row(std::int64_t row, WalkSums& out) {
    count_ = 0;
    const std::int32_t* users = graph_.users_of.row(row);
    const std::int64_t degree = graph_.users_of.size(row);
    for (std::int64_t e = 0; e < degree; ++e) {
      if (e + 2 * kAhead < degree) __builtin_prefetch(graph_.likes_of.starts + users[e + 2 * kAhead]);
      if (e + kAhead < degree) __builtin_prefetch(graph_.likes_of.row(users[e + kAhead]));
      spread(users[e], graph_.first_item + row);
    }
    sort_touched();
    const std::size_t begin = out.items.size(), end = begin + static_cast<std::size_t>(count_);
    out.items.insert(out.items.end(), touched_.data(), touched_.data() + count_);
    out.sums.resize(end);
    for (std::size_t i = begin; i < end; ++i)
      out.sums[i] = std::exchange(sums_[static_cast<std::size_t>(out.items[i])], 0);
    out.starts.push_back(static_cast<std::int64_t>(end));
  }

 private:
  static constexpr std::int64_t kAhead = 8;  // users whose likes are fetched ahead

  // One user's step to a like, by its pull. A very active user takes it within a window of the likes that begins at a
  // random one: each like is in it with the same probability, so the sum is right on average.
  void spread(std::int64_t user, std::int64_t item) {
    const std::int32_t* liked = graph_.likes_of.row(user);
    const std::int64_t degree = graph_.likes_of.size(user);
    std::int64_t first = 0, count = degree;
    double scale = kWalkUnit / (totals_ == nullptr ? static_cast<double>(degree) : totals_[user]);
    if (degree > graph_.most) {
      Random random(
          key64(kWalkStream, static_cast<std::uint64_t>(graph_.first_user + user), static_cast<std::uint64_t>(item)));
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

  template <class Part>
  void add_each(const std::int32_t* items, std::int64_t count, Part part) {
    std::uint64_t* sums = sums_.data();
    std::int32_t* touched = touched_.data();
    std::int64_t touched_count = count_;
    for (std::int64_t e = 0; e < count; ++e) {
      const std::int32_t n = items[e];
      touched[touched_count] = n;
      touched_count += sums[n] == 0;
      sums[n] += part(n);
    }
    count_ = touched_count;
  }

  // Many items are sorted by a mark for each; few one with the other.
  void sort_touched() {
    if (count_ * 8 < static_cast<std::int64_t>(marks_.size())) {
      std::sort(touched_.data(), touched_.data() + count_);
      return;
    }
    for (std::int64_t i = 0; i < count_; ++i) {
      const auto n = static_cast<std::uint32_t>(touched_[static_cast<std::size_t>(i)]);
      marks_[n / 64] |= std::uint64_t{1} << n % 64;
    }
    std::int32_t* next = touched_.data();
    for (std::size_t word = 0; word < marks_.size(); ++word)
      for (std::uint64_t left = std::exchange(marks_[word], 0); left != 0; left &= left - 1)
        *next++ = static_cast<std::int32_t>(64 * word) + __builtin_ctzll(left);
  }

  // At least 1, so that an item that was touched shows it; below 2^63 the signed conversion is the faster one.
  static std::uint64_t whole(double x) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<std::int64_t>(x + 0.5)));
  }

  const WalkGraph& graph_;
  const double* totals_;
  std::vector<std::uint64_t> sums_;
  std::vector<std::int32_t> touched_;  // items of the row, `count_` of them and room for one more
  std::vector<std::uint64_t> marks_;
  std::int64_t count_ = 0;
};

// One row of the table: the `keep` entries with the largest W log(W / p), by item, and the mass that is left.
inline double cut_row(const std::int32_t* items, const std::uint64_t* sums, std::int64_t count, const double* p,
                      std::int64_t keep, std::vector<std::int32_t>& items_out, std::vector<float>& shares_out) {
  std::uint64_t total = 0;
  for (std::int64_t e = 0; e < count; ++e) total += sums[e];
  const auto share = [&](std::int64_t e) { return static_cast<double>(sums[e]) / static_cast<double>(total); };
  std::vector<std::int64_t> kept(static_cast<std::size_t>(count));
  for (std::int64_t e = 0; e < count; ++e) kept[static_cast<std::size_t>(e)] = e;
  if (count > keep) {
    std::vector<double> value(static_cast<std::size_t>(count));
    for (std::int64_t e = 0; e < count; ++e) {
      const double w = share(e);
      value[static_cast<std::size_t>(e)] = w * std::log(w / p[items[e]]);
    }
    std::nth_element(kept.begin(), kept.begin() + keep, kept.end(), [&](std::int64_t a, std::int64_t b) {
      const double x = value[static_cast<std::size_t>(a)], y = value[static_cast<std::size_t>(b)];
      return x > y || (x == y && a < b);
    });
    kept.resize(static_cast<std::size_t>(keep));
    std::sort(kept.begin(), kept.end());
  }
  std::uint64_t held = 0;
  for (const std::int64_t e : kept) {
    items_out.push_back(items[e]);
    shares_out.push_back(static_cast<float>(share(e)));
    held += sums[e];
  }
  return total == 0 ? 1.0 : static_cast<double>(total - held) / static_cast<double>(total);
}

// Rows of sums in memory of someone else's.
struct SumsView {
  const std::int32_t* items;
  const std::uint64_t* sums;
  std::int64_t count;

  SumsView(const Lists& rows, const std::uint64_t* all, std::int64_t row)
      : items(rows.row(row)), sums(all + rows.starts[row]), count(rows.size(row)) {}
};

// A row of two parts, added: its entries. There are no branches that depend on the items, which no processor foresees.
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

// --- Draws ---

// A column of a row's alias table. Item -1 stands for pi.
struct WalkSlot {
  std::uint32_t threshold;
  std::int32_t item, alias;
};

// The alias table of one row: its entries, and last what goes to pi, which is what was cut and what is mixed in.
inline void build_slots(const std::int32_t* items, const float* shares, std::int64_t count, float rest, double mix,
                        WalkSlot* slots) {
  std::vector<double> weights(shares, shares + count);
  weights.push_back(rest);
  for (double& weight : weights) weight *= 1.0 - mix;
  weights.back() += mix;
  std::vector<std::uint64_t> thresholds(weights.size());
  std::vector<std::int32_t> aliases(weights.size());
  build_alias(weights.data(), count + 1, thresholds.data(), aliases.data());
  const auto item_of = [&](std::int64_t e) { return e < count ? items[e] : -1; };
  for (std::int64_t e = 0; e <= count; ++e) {
    const auto at = static_cast<std::size_t>(e);
    slots[e] = {static_cast<std::uint32_t>(thresholds[at] >> 32), item_of(e), item_of(aliases[at])};
  }
}

// w_mn of one user: a draw in O(1), or all weights at once.
struct WalkTable {
  Lists rows;           // kept entries
  const float* shares;  // of the entries
  const float* rest;    // [items] mass of a row that was cut
  const WalkSlot* slots;
  double mix;  // of pi

  // Item n of row n' is slot starts[n'] + n' + its place: each row has one slot more than it has entries.
  const WalkSlot* slots_of(std::int64_t item) const { return slots + rows.starts[item] + item; }
  std::int64_t slot_count(std::int64_t item) const { return rows.size(item) + 1; }

  // w of every item, for an exact draw.
  void weigh(const std::int32_t* liked, std::int64_t degree, const double* pi, std::int64_t items,
             std::vector<float>& walked, std::vector<double>& out) const {
    double total = 0, cut = 0;
    for (std::int64_t n = 0; n < items; ++n) total += pi[n];
    walked.assign(static_cast<std::size_t>(items), 0.0f);
    float* sums = walked.data();
    for (std::int64_t e = 0; e < degree; ++e) {
      cut += static_cast<double>(rest[liked[e]]);
      const std::int64_t end = rows.starts[liked[e] + 1];
      for (std::int64_t i = rows.starts[liked[e]]; i < end; ++i) sums[rows.indices[i]] += shares[i];
    }
    const double each = (1.0 - mix) / static_cast<double>(degree), background = (mix + each * cut) / total;
    out.resize(walked.size());
    for (std::size_t n = 0; n < walked.size(); ++n) out[n] = background * pi[n] + each * static_cast<double>(sums[n]);
  }
};

// Items that a user may meet, in a stream. Slots are fetched ahead: the table is larger than the caches.
class WalkStream {
 public:
  WalkStream(const WalkTable& table, const AliasTable& pi, Random& random, const std::int32_t* liked,
             std::int64_t degree)
      : table_(table), pi_(pi), random_(random), liked_(liked), degree_(static_cast<std::uint64_t>(degree)) {
    for (Step& step : steps_) step = take_step();
  }

  std::int32_t next() {
    const Step step = steps_[at_];
    steps_[at_] = take_step();
    at_ = (at_ + 1) % kAhead;
    const std::int32_t item = step.height < step.slot->threshold ? step.slot->item : step.slot->alias;
    return item < 0 ? pi_.draw(random_) : item;
  }

 private:
  static constexpr unsigned kAhead = 24;
  struct Step {
    const WalkSlot* slot;
    std::uint32_t height;
  };

  // One number of 64 bits is a like, a column of its row and a height there: what a product leaves below its high word
  // is as good as a new number, less the bits that were used.
  Step take_step() {
    const auto like = static_cast<unsigned __int128>(random_.next()) * degree_;
    const std::int32_t from = liked_[static_cast<std::uint64_t>(like >> 64)];
    const auto column = static_cast<unsigned __int128>(static_cast<std::uint64_t>(like)) *
                        static_cast<std::uint64_t>(table_.slot_count(from));
    const WalkSlot* slot = table_.slots_of(from) + static_cast<std::int64_t>(column >> 64);
    __builtin_prefetch(slot);
    __builtin_prefetch(&slot->alias);
    return {slot, static_cast<std::uint32_t>(static_cast<std::uint64_t>(column) >> 32)};
  }

  const WalkTable& table_;
  const AliasTable& pi_;
  Random& random_;
  const std::int32_t* liked_;
  std::uint64_t degree_;
  Step steps_[kAhead];
  unsigned at_ = 0;
};

}  // namespace considerate
