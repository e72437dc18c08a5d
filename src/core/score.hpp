// Scores of users against all items, and the best of them, in one pass; moments of the logit for pairs.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

constexpr int kStrip = 16;      // items scored side by side
constexpr int kTileUsers = 6;   // users scored at a time

// The best items so far of one user, best first; of equal scores the lower index, as items come in ascending order.
struct Best {
  float* scores;
  std::int32_t* items;
  std::int64_t size = 0, capacity = 0;
  const std::int32_t* seen = nullptr;  // ascending
  std::int64_t seen_count = 0;
  float threshold = -__builtin_inff();  // what a score must exceed

  void offer(float score, std::int32_t item) {
    const std::int64_t at = first_not_below(seen, 0, seen_count, item);
    if (at < seen_count && seen[at] == item) return;
    std::int64_t low = 0, high = size;
    while (low < high) {  // after those that are as good
      const std::int64_t middle = (low + high) / 2;
      if (scores[middle] >= score) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const std::int64_t moved = (size < capacity ? size : capacity - 1) - low;
    std::memmove(scores + low + 1, scores + low, static_cast<std::size_t>(moved) * sizeof(float));
    std::memmove(items + low + 1, items + low, static_cast<std::size_t>(moved) * sizeof(std::int32_t));
    scores[low] = score;
    items[low] = item;
    if (size < capacity) ++size;
    if (size == capacity) threshold = scores[capacity - 1];
  }
};

// R users against one strip of items: score = base_n + u'v_n.
template <int R>
static inline void score_strip(std::int64_t K, const float* const* users, const float* strip, const float* base,
                               std::int64_t first_item, Best* best) {
  v8 scores[R][2];
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
  for (int r = 0; r < R; ++r) {
    const v8 limit = splat(best[r].threshold);
    for (int half = 0; half < 2; ++half) {
      const i8 over = scores[r][half] > limit;
#if defined(__AVX__)
      if (__builtin_ia32_movmskps256(reinterpret_cast<v8>(over)) == 0) continue;
#endif
      for (int lane = 0; lane < 8; ++lane)
        if (over[lane] && scores[r][half][lane] > best[r].threshold)
          best[r].offer(scores[r][half][lane], static_cast<std::int32_t>(first_item + 8 * half + lane));
    }
  }
}

template <int R>
static void score_users(const TopK& task, const float* const* users, Best* best) {
  for (std::int64_t strip = 0; strip < task.strips; ++strip)
    score_strip<R>(task.factors, users, task.items + strip * task.factors * kStrip, task.base + strip * kStrip,
                   strip * kStrip, best);
}

static void top_items(const TopK& task) {
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
    switch (tile) {
      case 6: score_users<6>(task, users, best); break;
      case 5: score_users<5>(task, users, best); break;
      case 4: score_users<4>(task, users, best); break;
      case 3: score_users<3>(task, users, best); break;
      case 2: score_users<2>(task, users, best); break;
      default: score_users<1>(task, users, best); break;
    }
    for (int r = 0; r < tile; ++r)
      for (std::int64_t i = best[r].size; i < task.k; ++i) {
        best[r].scores[i] = __builtin_nanf("");
        best[r].items[i] = -1;
      }
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
