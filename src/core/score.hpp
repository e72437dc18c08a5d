// Scores of users against all items with the best items of each, in one pass; and moments of the logit for pairs.
#pragma once
#include "lift.hpp"

namespace considerate::CONSIDERATE_ISA {

constexpr int kTileUsers = 6;               // users scored at a time
constexpr std::int64_t kBlockStrips = 256;  // strips that stay in a near cache while all users are scored against them

// The best items so far of one user: unordered until there are `capacity`, then a heap with the worst at the root. Of
// equal scores the lower index is better. It stays, as items come in ascending order.
struct Best {
  float* scores;
  std::int32_t* items;
  std::int64_t size = 0, capacity = 0;
  const std::int32_t* seen = nullptr;  // ascending
  std::int64_t seen_count = 0;
  float threshold = -__builtin_inff();  // a score must exceed it

  static bool worse(float score, std::int32_t item, float other_score, std::int32_t other_item) {
    return score < other_score || (score == other_score && item > other_item);
  }

  // Put an entry at `at`, or below it in the heap of the first `count` entries.
  void sink(std::int64_t at, std::int64_t count, float score, std::int32_t item) {
    for (std::int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
      if (child + 1 < count && worse(scores[child + 1], items[child + 1], scores[child], items[child])) ++child;
      if (!worse(scores[child], items[child], score, item)) break;
      scores[at] = scores[child];
      items[at] = items[child];
      at = child;
    }
    scores[at] = score;
    items[at] = item;
  }

  void make_heap() {
    for (std::int64_t at = size / 2; at-- > 0;) sink(at, size, scores[at], items[at]);
  }

  void offer(float score, std::int32_t item) {
    const std::int64_t at = first_not_below(seen, 0, seen_count, item);
    if (at < seen_count && seen[at] == item) return;
    if (size == capacity) {
      sink(0, size, score, item);
    } else {
      scores[size] = score;
      items[size++] = item;
      if (size < capacity) return;
      make_heap();
    }
    threshold = scores[0];
  }

  // Sort best first, and fill up to `capacity` with NaN and -1.
  void finish() {
    if (size < capacity) make_heap();
    for (std::int64_t last = size - 1; last > 0; --last) {
      const float score = scores[last];
      const std::int32_t item = items[last];
      scores[last] = scores[0];
      items[last] = items[0];
      sink(0, last, score, item);
    }
    for (std::int64_t i = size; i < capacity; ++i) {
      scores[i] = __builtin_nanf("");
      items[i] = -1;
    }
  }
};

// Offer the items of a strip that are above the threshold.
static inline void offer_above(const v8* scores, std::int64_t first_item, Best& best) {
  const v8 threshold = splat(best.threshold);
  if (!any_lane((scores[0] > threshold) | (scores[1] > threshold))) return;
  for (int i = 0; i < kStrip; ++i) {
    const float score = scores[i / kLanes][i % kLanes];
    if (score > best.threshold) best.offer(score, static_cast<std::int32_t>(first_item + i));
  }
}

// Score R users against one strip of items: base_n + u'v_n.
template <int R>
static inline void score_strip(std::int64_t K, const float* const* users, const float* strip, const float* base,
                               v8 (*scores)[2]) {
  for (int r = 0; r < R; ++r) {
    scores[r][0] = load8(base);
    scores[r][1] = load8(base + 8);
  }
  for (std::int64_t k = 0; k < K; ++k) {
    const v8 a = load8(strip + k * kStrip), b = load8(strip + k * kStrip + 8);
    for (int r = 0; r < R; ++r) {
      const v8 u = splat(users[r][k]);
      scores[r][0] += u * a;
      scores[r][1] += u * b;
    }
  }
}

// A user of a batch.
struct RankedUser {
  const float* vector;
  Best best;
  UserRatios ratios;
  v8 unmet;  // lift * log(ratio) of items that no like leads to
};

// Sums of the walk from the likes of a tile of users to a block of items; all zeros between blocks.
struct TileSums {
  Buffer<float> sums{kTileUsers * kBlockStrips * kStrip};
  Buffer<std::uint8_t> met{kTileUsers * kBlockStrips};

  float* of(int r, std::int64_t strip) { return sums.data() + (r * kBlockStrips + strip) * kStrip; }
  std::uint8_t* met_by(int r) { return met.data() + r * kBlockStrips; }
};

// Add lift to a strip's scores if they come near the threshold: the logarithm is bounded before it is computed.
static inline bool add_lift(v8* scores, const RankedUser& user, float lift, float* sums, std::int64_t first_item) {
  v8 ratios[2], over = splat(0.0f);
  for (int half = 0; half < 2; ++half) {
    ratios[half] = user.ratios.ratios(load8(sums + kLanes * half), first_item + kLanes * half);
    store8(sums + kLanes * half, splat(0.0f));
    const v8 most = splat(lift) * log_below8(ratios[half]) + splat(lift > 0 ? lift * kLogGap : 0.0f);
    over = select8(scores[half] + most > splat(user.best.threshold), splat(-1.0f), over);
  }
  if (!any_lane(over < splat(0.0f))) return false;
  for (int half = 0; half < 2; ++half) scores[half] += splat(lift) * log8(ratios[half]);
  return true;
}

// Score R users against the strips of a block. A user's scores come from the same operations for any R, so that they do
// not depend on the other users of the batch.
template <int R>
static void score_tile(const TopK& task, RankedUser* users, std::int64_t first, std::int64_t last, TileSums* lifts) {
  const float* vectors[R];
  for (int r = 0; r < R; ++r) {
    vectors[r] = users[r].vector;
    if (lifts) users[r].ratios.add(first * kStrip, last * kStrip, lifts->of(r, 0), lifts->met_by(r));
  }
  for (std::int64_t strip = first; strip < last; ++strip) {
    v8 scores[R][2];
    score_strip<R>(task.factors, vectors, task.items + strip * task.factors * kStrip, task.base + strip * kStrip,
                   scores);
    for (int r = 0; r < R; ++r) {
      if (lifts) {
        std::uint8_t& met = lifts->met_by(r)[strip - first];
        if (met) {
          met = 0;
          if (!add_lift(scores[r], users[r], task.lift, lifts->of(r, strip - first), strip * kStrip)) continue;
        } else {
          scores[r][0] += users[r].unmet;
          scores[r][1] += users[r].unmet;
        }
      }
      offer_above(scores[r], strip * kStrip, users[r].best);
    }
  }
}

using ScoreTile = void (*)(const TopK&, RankedUser*, std::int64_t, std::int64_t, TileSums*);

static void top_items(const TopK& task) {
  static constexpr ScoreTile tiles[kTileUsers] = {score_tile<1>, score_tile<2>, score_tile<3>,
                                                  score_tile<4>, score_tile<5>, score_tile<6>};
  Buffer<RankedUser> users(task.count);
  Buffer<RowRest> rows(task.lift_table ? task.liked_starts[task.count] - task.liked_starts[0] : 0);
  for (std::int64_t i = 0; i < task.count; ++i) {
    RankedUser& user = users[i] = RankedUser{};
    user.vector = task.users + task.rows[i] * task.user_stride;
    user.best.scores = task.scores_out + i * task.k;
    user.best.items = task.items_out + i * task.k;
    user.best.capacity = task.k;
    if (task.seen_starts) {
      user.best.seen = task.seen + task.seen_starts[i];
      user.best.seen_count = task.seen_starts[i + 1] - task.seen_starts[i];
    }
    if (task.lift_table) {
      const std::int64_t begin = task.liked_starts[i] - task.liked_starts[0];
      const std::int64_t count = task.liked_starts[i + 1] - task.liked_starts[i];
      user.ratios.start(*task.lift_table, task.liked + task.liked_starts[i], count, rows.data() + begin);
      user.unmet = splat(task.lift) * log8(user.ratios.background());
    }
  }
  TileSums sums;
  for (std::int64_t first = 0; first < task.strips; first += kBlockStrips) {
    const std::int64_t last = least(first + kBlockStrips, task.strips);
    for (std::int64_t tile = 0; tile < task.count; tile += kTileUsers)
      tiles[least(kTileUsers, task.count - tile) - 1](task, users.data() + tile, first, last,
                                                      task.lift_table ? &sums : nullptr);
  }
  for (std::int64_t i = 0; i < task.count; ++i) users[i].best.finish();
}

// E[a] and var[a] of pairs of rows, without the offset; NaN if the row of the other side is -1.
static void pair_moments(const Side& own, const Side& other, std::int64_t count, const std::int64_t* own_rows,
                         const std::int32_t* other_rows, float* mean, float* variance) {
  const std::int64_t KP = padded(own.factors);
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t m = own_rows[e], n = other_rows[e];
    if (n < 0) {
      mean[e] = variance[e] = __builtin_nanf("");
      continue;
    }
    const float *u = own.rows + m * 2 * KP, *v = other.rows + n * 2 * KP;
    v8 dot = splat(0.0f), spread = splat(0.0f);
    for (std::int64_t k = 0; k < KP; k += 8) {
      const v8 um = load8(u + k), us = load8(u + KP + k), vm = load8(v + k), vs = load8(v + KP + k);
      dot += um * vm;
      spread += (um * um + us) * vs + vm * vm * us;
    }
    double a = sum_lanes(dot), s = sum_lanes(spread);
    if (own.bias_mean) a += own.bias_mean[m], s += own.bias_variance[m];
    if (other.bias_mean) a += other.bias_mean[n], s += other.bias_variance[n];
    mean[e] = static_cast<float>(a);
    variance[e] = static_cast<float>(s);
  }
}

}  // namespace considerate::CONSIDERATE_ISA
