// Scores of users against all items, and the best of them, in one pass; moments of the logit for pairs.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

constexpr int kStrip = 16;                 // items scored side by side
constexpr int kTileUsers = 6;              // users scored at a time
constexpr std::int64_t kLiftStrips = 256;  // whose lift is summed at a time: 16 KB of a user

// The best items so far of one user: unordered until there are `capacity`, then a heap with the worst at the root.
// Of equal scores the lower index is the better, and stays, as items come in ascending order.
struct Best {
  float* scores;
  std::int32_t* items;
  std::int64_t size = 0, capacity = 0;
  const std::int32_t* seen = nullptr;  // ascending
  std::int64_t seen_count = 0;
  float threshold = -__builtin_inff();  // what a score must exceed

  static bool worse(float score, std::int32_t item, float other_score, std::int32_t other_item) {
    return score < other_score || (score == other_score && item > other_item);
  }

  // Puts an entry at `at`, or below it in the heap of the first `count` entries.
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

  // Best first; NaN and -1 where there are fewer than `capacity`.
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

// Offers those of eight items that are above the threshold.
static inline void offer_above(v8 scores, std::int64_t first_item, Best& best) {
  const i8 over = scores > splat(best.threshold);
  if (!any_lane(over)) return;
  for (int lane = 0; lane < 8; ++lane)
    if (over[lane] && scores[lane] > best.threshold)
      best.offer(scores[lane], static_cast<std::int32_t>(first_item + lane));
}

// The same with lift, which is bounded before it is computed: few items come near the threshold.
static inline void offer_lifted(v8 scores, v8 ratios, float lift, std::int64_t first_item, Best& best) {
  const v8 most = splat(lift) * log_below8(ratios) + splat(lift > 0 ? lift * kLogGap : 0.0f);
  if (any_lane(scores + most > splat(best.threshold)))
    offer_above(scores + splat(lift) * log8(ratios), first_item, best);
}

// R users against one strip of items: score = base_n + u'v_n.
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

template <int R>
static void score_users(const TopK& task, const float* const* users, Best* best) {
  for (std::int64_t strip = 0; strip < task.strips; ++strip) {
    v8 scores[R][2];
    score_strip<R>(task.factors, users, task.items + strip * task.factors * kStrip, task.base + strip * kStrip, scores);
    for (int r = 0; r < R; ++r)
      for (int half = 0; half < 2; ++half) offer_above(scores[r][half], strip * kStrip + 8 * half, best[r]);
  }
}

// The same with lift, for a range of items at a time: the users' sums over their likes first, then the strips.
template <int R>
static void score_lifted(const TopK& task, const float* const* users, UserRatios* ratios, float* sums, Best* best) {
  for (std::int64_t first = 0; first < task.strips; first += kLiftStrips) {
    const std::int64_t last = least(first + kLiftStrips, task.strips);
    std::memset(sums, 0, sizeof(float) * R * kLiftStrips * kStrip);
    for (int r = 0; r < R; ++r) ratios[r].add(first * kStrip, last * kStrip, sums + r * kLiftStrips * kStrip);
    for (std::int64_t strip = first; strip < last; ++strip) {
      v8 scores[R][2];
      score_strip<R>(task.factors, users, task.items + strip * task.factors * kStrip, task.base + strip * kStrip,
                     scores);
      for (int r = 0; r < R; ++r)
        for (int half = 0; half < 2; ++half) {
          const v8 walked = load8(sums + (r * kLiftStrips + strip - first) * kStrip + 8 * half);
          offer_lifted(scores[r][half], ratios[r].ratios(walked), task.lift, strip * kStrip + 8 * half, best[r]);
        }
    }
  }
}

static void top_items(const TopK& task) {
  UserRatios ratios[kTileUsers];
  Buffer<float> sums(task.lift_table ? kTileUsers * kLiftStrips * kStrip : 0);
  Buffer<std::int64_t> places(task.lift_table ? task.liked_starts[task.count] - task.liked_starts[0] : 0);
  for (std::int64_t first = 0; first < task.count; first += kTileUsers) {
    const int tile = static_cast<int>(least(kTileUsers, task.count - first));
    Best best[kTileUsers];
    const float* users[kTileUsers];
    for (int r = 0; r < tile; ++r) {
      const std::int64_t at = first + r;
      users[r] = task.users + task.rows[at] * task.user_stride;
      best[r].scores = task.scores_out + at * task.k;
      best[r].items = task.items_out + at * task.k;
      best[r].capacity = task.k;
      if (task.seen_starts) {
        best[r].seen = task.seen + task.seen_starts[at];
        best[r].seen_count = task.seen_starts[at + 1] - task.seen_starts[at];
      }
    }
    if (task.lift_table) {
      std::int64_t* place = places.data();
      for (int r = 0; r < tile; ++r) {
        const std::int64_t begin = task.liked_starts[first + r], count = task.liked_starts[first + r + 1] - begin;
        ratios[r].start(*task.lift_table, task.liked + begin, count, place);
        place += count;
      }
    }
    switch (tile) {
      case 6:
        task.lift_table ? score_lifted<6>(task, users, ratios, sums.data(), best) : score_users<6>(task, users, best);
        break;
      case 5:
        task.lift_table ? score_lifted<5>(task, users, ratios, sums.data(), best) : score_users<5>(task, users, best);
        break;
      case 4:
        task.lift_table ? score_lifted<4>(task, users, ratios, sums.data(), best) : score_users<4>(task, users, best);
        break;
      case 3:
        task.lift_table ? score_lifted<3>(task, users, ratios, sums.data(), best) : score_users<3>(task, users, best);
        break;
      case 2:
        task.lift_table ? score_lifted<2>(task, users, ratios, sums.data(), best) : score_users<2>(task, users, best);
        break;
      default:
        task.lift_table ? score_lifted<1>(task, users, ratios, sums.data(), best) : score_users<1>(task, users, best);
        break;
    }
    for (int r = 0; r < tile; ++r) best[r].finish();
  }
}

// E[u'v] and var[u'v] of pairs of packed rows; a pair with item -1 gets NaN.
static void pair_moments(const Pass& pass, std::int64_t count, const std::int64_t* own, const std::int32_t* other,
                         float* mean, float* variance) {
  const std::int64_t KP = padded(pass.factors);
  for (std::int64_t e = 0; e < count; ++e) {
    if (other[e] < 0) {
      mean[e] = variance[e] = __builtin_nanf("");
      continue;
    }
    const float *u = pass.own.rows + own[e] * 2 * KP, *v = pass.other.rows + other[e] * 2 * KP;
    v8 dot = splat(0.0f), spread = splat(0.0f);
    for (std::int64_t k = 0; k < KP; k += 8) {
      const v8 um = load8(u + k), us = load8(u + KP + k), vm = load8(v + k), vs = load8(v + KP + k);
      dot += um * vm;
      spread += (um * um + us) * vs + vm * vm * us;
    }
    double a = sum_lanes(dot), s = sum_lanes(spread);
    if (pass.own.bias_mean) a += pass.own.bias_mean[own[e]], s += pass.own.bias_variance[own[e]];
    if (pass.other.bias_mean) a += pass.other.bias_mean[other[e]], s += pass.other.bias_variance[other[e]];
    mean[e] = static_cast<float>(a);
    variance[e] = static_cast<float>(s);
  }
}
