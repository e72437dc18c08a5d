// Lift: how much more likely than by popularity a user is to consider an item, from the likes alone.
//
//     ratio_n = w_n / p_n = background + (1 - eps) / d * sum over n' liked of W_n'n / p_n
//
// The likes are added one after the other, so a user's ratios depend on nobody else and not on how items are divided.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

constexpr float kLeastRatio = 8.673617379884035e-19f;  // 2^-60: what an item counts that no walk meets, eps = 0

// The ratios of one user to one range of items after the other, in ascending order.
class UserRatios {
 public:
  void start(const LiftTable& table, const std::int32_t* liked, std::int64_t count, std::int64_t* places) {
    table_ = &table;
    liked_ = liked;
    count_ = count;
    places_ = places;
    double rest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      places[i] = table.starts[liked[i]];
      rest += static_cast<double>(table.rest[liked[i]]);
    }
    const double share = count == 0 ? 0.0 : (1.0 - table.mix) / static_cast<double>(count);
    background_ = count == 0 ? 1.0f : static_cast<float>(table.mix + share * rest);  // who likes nothing: w = p
    share_ = static_cast<float>(share);
  }

  // The sums over the likes for items first .. last - 1; they are zero before.
  void add(std::int64_t first, std::int64_t last, float* sums) {
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t end = table_->starts[liked_[i] + 1];
      std::int64_t at = places_[i];
      const std::int64_t stop = last >= table_->items_count ? end : first_not_below(table_->items, at, end, last);
      for (; at < stop; ++at) sums[table_->items[at] - first] += table_->gains[at];
      places_[i] = stop;
    }
  }

  v8 ratios(v8 sums) const {
    const v8 ratio = splat(background_) + splat(share_) * sums;
    return select8(ratio > splat(kLeastRatio), ratio, splat(kLeastRatio));
  }

 private:
  const LiftTable* table_ = nullptr;
  const std::int32_t* liked_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t* places_ = nullptr;  // [count] the next entry of each row
  float background_ = 0, share_ = 0;
};

// log(ratio) of some users against all items: [count, items].
static void walk_lifts(const LiftTable& table, const std::int64_t* liked_starts, const std::int32_t* liked,
                       std::int64_t count, float* out) {
  const std::int64_t items = table.items_count, padded_items = (items + 7) / 8 * 8;
  std::int64_t most = 0;
  for (std::int64_t user = 0; user < count; ++user)
    most = least(-most, liked_starts[user] - liked_starts[user + 1]) * -1;
  Buffer<std::int64_t> places(most);
  Buffer<float> sums(padded_items);
  for (std::int64_t user = 0; user < count; ++user) {
    UserRatios ratios;
    ratios.start(table, liked + liked_starts[user], liked_starts[user + 1] - liked_starts[user], places.data());
    sums.zero();
    ratios.add(0, items, sums.data());
    for (std::int64_t n = 0; n < padded_items; n += 8) store8(&sums[n], log8(ratios.ratios(load8(&sums[n]))));
    std::memcpy(out + user * items, sums.data(), static_cast<std::size_t>(items) * sizeof(float));
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
