// Lift: the ratio of w to p of a user and an item, computed from the user's likes alone.
//
//     ratio_n = w_n / p_n = background + (1 - eps) / d * (sum over n' liked of V_n'n) / p_n
//     V_n'n   = W_n'n, or sharpened (1 - rest_n') W_n'n^s / (sum over n of W_n'n^s)
//
// The likes are added one after the other, so a user's ratios depend neither on other users nor on the division of
// items.
#pragma once
#include "buffer.hpp"
#include "simd.hpp"

namespace considerate::CONSIDERATE_ISA {

constexpr int kStrip = 16;                             // items scored side by side
constexpr float kLeastRatio = 8.673617379884035e-19f;  // 2^-60: the ratio of an item that no walk meets, if eps = 0

constexpr std::int64_t kSearch = 64;  // entries that are added while one is searched for
constexpr std::int64_t kZeros = 8;    // items that are set to zero while one entry is added

// The entries of a row of the table that are not yet added.
struct RowRest {
  std::int64_t next, end;
  float scale;
};

// x^power.
template <class T>
static T sharpened(T x, int power) {
  T found = x;
  for (int i = 1; i < power; ++i) found = found * x;
  return found;
}

// The ratios of one user to one range of items after the other, in ascending order.
class UserRatios {
 public:
  // `rows` has room for one entry per like.
  void start(const LiftTable& table, const std::int32_t* liked, std::int64_t count, RowRest* rows) {
    table_ = &table;
    count_ = count;
    rows_ = rows;
    double rest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t first = table.starts[liked[i]], last = table.starts[liked[i] + 1];
      rows[i] = {first, last, table.sharpness == 1 ? 1.0f : scale(table, first, last, table.rest[liked[i]])};
      rest += static_cast<double>(table.rest[liked[i]]);
    }
    const double share = count == 0 ? 0.0 : (1.0 - table.mix) / static_cast<double>(count);
    unknown_ = 0;
    background_ = count == 0 ? 1.0f : static_cast<float>(table.mix + share * rest);  // who likes nothing: w = p
    share_ = static_cast<float>(share);
  }

  // Add V over the likes to the sums of items first .. last - 1, which are zero before. Set `met` for each strip with
  // an entry.
  void add(std::int64_t first, std::int64_t last, float* sums, std::uint8_t* met) {
    for (std::int64_t i = 0; i < count_; ++i) {
      std::int64_t at = rows_[i].next;
      for (const std::int64_t end = rows_[i].end; at < end && table_->items[at] < last; ++at) {
        const std::int64_t place = table_->items[at] - first;
        sums[place] = with_entry(sums[place], at, i);
        met[place / kStrip] = 1;
      }
      rows_[i].next = at;
    }
    for (; unknown_ < table_->unknown_count && table_->unknown[unknown_] < last; ++unknown_)
      met[(table_->unknown[unknown_] - first) / kStrip] = 1;
  }

  std::int64_t entries() const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < count_; ++i) sum += rows_[i].end - rows_[i].next;
    return sum;
  }

  // The sum of V over the likes for one item, with the bits of `add`: the likes have the same order.
  float sum_of(std::int32_t item) const {
    float sum = 0.0f;
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t at = first_not_below(table_->items, rows_[i].next, rows_[i].end, item);
      if (at < rows_[i].end && table_->items[at] == item) sum = with_entry(sum, at, i);
    }
    return sum;
  }

  // Ratios of eight items from `first` on.
  v8 ratios(v8 sums, std::int64_t first) const { return ratios(sums, load8(table_->inverse + first)); }

  // Ratios of eight items with these inverses of p.
  v8 ratios(v8 sums, v8 inverse) const {
    const v8 ratio = at_least(splat(background_) + splat(share_) * (sums * inverse));
    return select8(inverse < splat(0.0f), splat(1.0f), ratio);
  }

  // The ratio of items that no like leads to.
  v8 background() const { return at_least(splat(background_)); }

 private:
  // The factor of a row's powers that keeps its mass.
  static float scale(const LiftTable& table, std::int64_t first, std::int64_t last, float rest) {
    v8 sums = splat(0.0f);
    for (; first + kLanes <= last; first += kLanes) sums += sharpened(load8(table.shares + first), table.sharpness);
    double sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(sums[lane]);
    for (; first < last; ++first) sum += static_cast<double>(sharpened(table.shares[first], table.sharpness));
    return sum > 0 ? static_cast<float>((1.0 - static_cast<double>(rest)) / sum) : 0.0f;
  }

  float with_entry(float sum, std::int64_t at, std::int64_t like) const {
    return sum + sharpened(table_->shares[at], table_->sharpness) * rows_[like].scale;
  }

  static v8 at_least(v8 ratio) { return select8(ratio > splat(kLeastRatio), ratio, splat(kLeastRatio)); }

  const LiftTable* table_ = nullptr;
  std::int64_t count_ = 0, unknown_ = 0;
  RowRest* rows_ = nullptr;  // [count]
  float background_ = 0, share_ = 0;
};

// The largest number of likes that one of these users has.
static std::int64_t most_likes(const std::int64_t* liked_starts, std::int64_t count) {
  std::int64_t most = 0;
  for (std::int64_t user = 0; user < count; ++user) most = greatest(most, liked_starts[user + 1] - liked_starts[user]);
  return most;
}

// log(ratio) of some users against all items: [count, items].
static void walk_lifts(const LiftTable& table, const std::int64_t* liked_starts, const std::int32_t* liked,
                       std::int64_t count, float* out) {
  const std::int64_t items = table.items_count, strips = (items + kStrip - 1) / kStrip;
  Buffer<RowRest> rows(most_likes(liked_starts, count));
  Buffer<float> sums(strips * kStrip);
  Buffer<std::uint8_t> met(strips);
  for (std::int64_t user = 0; user < count; ++user) {
    UserRatios ratios;
    ratios.start(table, liked + liked_starts[user], liked_starts[user + 1] - liked_starts[user], rows.data());
    sums.zero();
    ratios.add(0, items, sums.data(), met.data());
    for (std::int64_t n = 0; n < strips * kStrip; n += kLanes)
      store8(&sums[n], log8(ratios.ratios(load8(&sums[n]), n)));
    std::memcpy(out + user * items, sums.data(), static_cast<std::size_t>(items) * sizeof(float));
  }
}

// log(ratio) of listed pairs: the items of each user, in any order. For a user with many pairs the sums of all items
// are computed, with the same bits.
static void walk_lifts_of(const LiftTable& table, const std::int64_t* liked_starts, const std::int32_t* liked,
                          std::int64_t count, const std::int64_t* pair_starts, const std::int32_t* pair_items,
                          float* out) {
  const std::int64_t strips = (table.items_count + kStrip - 1) / kStrip;
  Buffer<RowRest> rows(most_likes(liked_starts, count));
  Buffer<float> sums(strips * kStrip);
  Buffer<std::uint8_t> met(strips);
  for (std::int64_t user = 0; user < count; ++user) {
    const std::int64_t likes = liked_starts[user + 1] - liked_starts[user];
    const std::int64_t first = pair_starts[user], last = pair_starts[user + 1];
    UserRatios ratios;
    ratios.start(table, liked + liked_starts[user], likes, rows.data());
    const bool many = (last - first) * likes * kSearch > ratios.entries() + table.items_count / kZeros;
    if (many) {
      sums.zero();
      ratios.add(0, table.items_count, sums.data(), met.data());
    }
    for (std::int64_t at = first; at < last; at += kLanes) {
      v8 own = splat(0.0f), inverse = splat(0.0f);
      const std::int64_t lanes = least(kLanes, last - at);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int32_t item = pair_items[at + lane];
        own[lane] = many ? sums[item] : ratios.sum_of(item);
        inverse[lane] = table.inverse[item];
      }
      const v8 logs = log8(ratios.ratios(own, inverse));
      for (std::int64_t lane = 0; lane < lanes; ++lane) out[at + lane] = logs[lane];
    }
  }
}

static void logarithms(std::int64_t count, const float* x, float* exact, float* below) {
  for (std::int64_t at = 0; at < count; at += 8) {
    const std::int64_t left = least(8, count - at);
    v8 in = splat(1.0f);
    std::memcpy(&in, x + at, static_cast<std::size_t>(left) * sizeof(float));
    const v8 log = log8(in), bound = log_below8(in);
    std::memcpy(exact + at, &log, static_cast<std::size_t>(left) * sizeof(float));
    std::memcpy(below + at, &bound, static_cast<std::size_t>(left) * sizeof(float));
  }
}

}  // namespace considerate::CONSIDERATE_ISA
