// The table of the walk from item to item, and draws from it. `walk_rows.hpp` makes its rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "draws.hpp"

namespace considerate {

struct Lists {
  const std::int64_t* starts;
  const std::int32_t* indices;

  const std::int32_t* row(std::int64_t i) const { return indices + starts[i]; }
  std::int64_t size(std::int64_t i) const { return starts[i + 1] - starts[i]; }
};

// A column of a row's alias table. Item -1 stands for pi.
struct WalkSlot {
  std::uint32_t threshold;
  std::int32_t item, alias;
};

// Build the alias table of one row: its entries, and last the mass that goes to pi, both cut and mixed in.
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
  double mix;  // share of pi
  std::int64_t items = 0;

  // Item n of row n' is slot starts[n'] + n' + its place: each row has one slot more than it has entries.
  const WalkSlot* slots_of(std::int64_t item) const { return slots + rows.starts[item] + item; }
  std::int64_t slot_count(std::int64_t item) const { return rows.size(item) + 1; }

  // Fetch the starts of the rows of a user's likes.
  void fetch(const std::int32_t* liked, std::int64_t degree) const {
    for (std::int64_t e = 0; e < degree; ++e) fetch_far(rows.starts + liked[e]);
  }

  // Find the items that the walk leads to, ascending, and their weights in w. Returns the rest of w, which goes to pi.
  double lead(const std::int32_t* liked, std::int64_t degree, std::vector<std::int32_t>& items,
              std::vector<double>& weights) const {
    const double each = (1.0 - mix) / static_cast<double>(degree);
    std::vector<std::pair<std::int32_t, float>> met;
    double cut = 0;
    for (std::int64_t e = 0; e < degree; ++e) {
      cut += static_cast<double>(rest[liked[e]]);
      for (std::int64_t i = rows.starts[liked[e]]; i < rows.starts[liked[e] + 1]; ++i)
        met.emplace_back(rows.indices[i], shares[i]);
    }
    std::sort(met.begin(), met.end());
    for (const auto& [item, share] : met) {
      if (items.empty() || items.back() != item) {
        items.push_back(item);
        weights.push_back(0.0);
      }
      weights.back() += each * static_cast<double>(share);
    }
    return mix + each * cut;
  }

  // Compute w of every item, for an exact draw.
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

// A stream of items that a user may meet. The tables are larger than the caches and fetched ahead: the slot of a step,
// and a column of pi if the slot leads to pi.
class WalkStream {
 public:
  WalkStream(const WalkTable& table, const AliasTable& pi, Random& random, const std::int32_t* liked,
             std::int64_t degree)
      : table_(table), pi_(pi), random_(random), liked_(liked), degree_(static_cast<std::uint64_t>(degree)) {}

  // The next item. Steps are taken ahead, but hardly more than the items that are still `wanted`.
  std::int32_t next(std::int64_t wanted) {
    const auto ahead = static_cast<unsigned>(std::min<std::int64_t>(kAhead, wanted + kSpare));
    while (taken_ - used_ < ahead) take_step(steps_[taken_++ % kAhead]);
    while (read_ < taken_ && read_ - used_ <= kSoon) read_slot(steps_[read_++ % kAhead]);
    const Step& step = steps_[used_++ % kAhead];
    return step.item < 0 ? pi_.at(step.place) : step.item;
  }

 private:
  static constexpr unsigned kAhead = 32, kSoon = 12, kSpare = 2;
  struct Step {
    const WalkSlot* slot;
    std::uint32_t height;
    std::int32_t item;        // once the slot was read; -1 stands for pi
    AliasTable::Place place;  // in the alias table of pi
  };

  // One number of 64 bits gives a like, a column of its row and a height there: the low word of a product is as good as
  // a new number, less the bits that were used.
  void take_step(Step& step) {
    const auto like = static_cast<unsigned __int128>(random_.next()) * degree_;
    const std::int32_t from = liked_[static_cast<std::uint64_t>(like >> 64)];
    const auto column = static_cast<unsigned __int128>(static_cast<std::uint64_t>(like)) *
                        static_cast<std::uint64_t>(table_.slot_count(from));
    step.slot = table_.slots_of(from) + static_cast<std::int64_t>(column >> 64);
    step.height = static_cast<std::uint32_t>(static_cast<std::uint64_t>(column) >> 32);
    fetch_far(step.slot);
    fetch_far(&step.slot->alias);
  }

  void read_slot(Step& step) {
    step.item = step.height < step.slot->threshold ? step.slot->item : step.slot->alias;
    if (step.item >= 0) return;
    step.place = pi_.place(random_);
    pi_.fetch(step.place);
  }

  const WalkTable& table_;
  const AliasTable& pi_;
  Random& random_;
  const std::int32_t* liked_;
  std::uint64_t degree_;
  Step steps_[kAhead];
  unsigned taken_ = 0, read_ = 0, used_ = 0;
};

}  // namespace considerate
