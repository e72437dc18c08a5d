// Half-edges joined at random around a given graph, without double edges: the first scheme for H of section 4.1.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "random.hpp"
#include "simulate.hpp"

namespace considerate {

constexpr std::uint64_t kJoinAround = 104;  // a stream of key64, after the ones of SimulateStream

// Pairs of a user and an item, by linear probing.
class PairSet {
 public:
  PairSet(std::size_t pairs, std::uint64_t items) : items_(items) {
    std::size_t size = 64;
    while (size < 4 * pairs) size *= 2;
    slots_.assign(size, kEmpty);
    mask_ = size - 1;
  }

  bool has(std::int32_t user, std::int32_t item) const {
    const std::uint64_t key = key_of(user, item);
    for (std::size_t at = mix64(key) & mask_; slots_[at] != kEmpty; at = (at + 1) & mask_)
      if (slots_[at] == key) return true;
    return false;
  }
  void insert(std::int32_t user, std::int32_t item) {
    std::size_t at = mix64(key_of(user, item)) & mask_;
    while (slots_[at] > kErased) at = (at + 1) & mask_;
    slots_[at] = key_of(user, item);
  }
  void erase(std::int32_t user, std::int32_t item) {
    const std::uint64_t key = key_of(user, item);
    std::size_t at = mix64(key) & mask_;
    while (slots_[at] != key) at = (at + 1) & mask_;
    slots_[at] = kErased;
  }

 private:
  static constexpr std::uint64_t kEmpty = 0, kErased = 1;
  std::uint64_t key_of(std::int32_t user, std::int32_t item) const {
    return static_cast<std::uint64_t>(user) * items_ + static_cast<std::uint64_t>(item) + 2;
  }
  std::vector<std::uint64_t> slots_;
  std::uint64_t items_;
  std::size_t mask_ = 0;
};

struct JoinedAround {
  std::vector<std::int32_t> users, items;  // of the pairs, in no order
  std::int64_t redraws = 0;                // pairs that were exchanged with another's
  std::int64_t left_out = 0;               // half-edges of either side that found no partner
};

// Shuffle the half-edges of both sides and join them one by one. The rest of the longer side has no partner. A pair
// that is in the graph or was made before exchanges its item with a random other pair, unless one of them is then
// double. After `tries` it is left out.
inline JoinedAround join_around(const std::int32_t* user_counts, std::int64_t users, const std::int32_t* item_counts,
                                std::int64_t items, const std::int64_t* liked_starts, const std::int32_t* liked,
                                std::uint64_t seed, std::uint64_t sweep, int tries) {
  JoinedAround out;
  for (std::int32_t m = 0; m < users; ++m)
    out.users.insert(out.users.end(), static_cast<std::size_t>(user_counts[m]), m);
  for (std::int32_t n = 0; n < items; ++n)
    out.items.insert(out.items.end(), static_cast<std::size_t>(item_counts[n]), n);
  Random random(key64(seed, kJoinAround, sweep));
  shuffle(out.users.data(), out.users.size(), random);
  shuffle(out.items.data(), out.items.size(), random);
  const std::size_t pairs = std::min(out.users.size(), out.items.size());
  out.left_out = static_cast<std::int64_t>(std::max(out.users.size(), out.items.size()) - pairs);
  out.users.resize(pairs);
  out.items.resize(pairs);

  PairSet taken(pairs + static_cast<std::size_t>(liked_starts[users]), static_cast<std::uint64_t>(items));
  for (std::int32_t m = 0; m < users; ++m)
    for (std::int64_t e = liked_starts[m]; e < liked_starts[m + 1]; ++e) taken.insert(m, liked[e]);
  std::vector<std::size_t> stuck;
  std::vector<bool> waits(pairs, false);
  for (std::size_t p = 0; p < pairs; ++p) {
    if (taken.has(out.users[p], out.items[p])) {
      stuck.push_back(p);
      waits[p] = true;
    } else {
      taken.insert(out.users[p], out.items[p]);
    }
  }
  for (const std::size_t p : stuck) {
    for (int left = tries; left > 0 && waits[p]; --left) {
      const std::size_t q = random.below(pairs);
      if (waits[q] || taken.has(out.users[p], out.items[q]) || taken.has(out.users[q], out.items[p])) continue;
      taken.erase(out.users[q], out.items[q]);
      std::swap(out.items[p], out.items[q]);
      taken.insert(out.users[p], out.items[p]);
      taken.insert(out.users[q], out.items[q]);
      waits[p] = false;
      ++out.redraws;
    }
  }
  std::size_t kept = 0;
  for (std::size_t p = 0; p < pairs; ++p)
    if (!waits[p]) {
      out.users[kept] = out.users[p];
      out.items[kept++] = out.items[p];
    }
  out.left_out += 2 * static_cast<std::int64_t>(pairs - kept);
  out.users.resize(kept);
  out.items.resize(kept);
  return out;
}

}  // namespace considerate
