// Ranks of held-out items among the scores of a row, and the best of a row.
#pragma once
#include "buffer.hpp"
#include "simd.hpp"

namespace considerate::CONSIDERATE_ISA {

constexpr int kHeldTogether = 4;  // held-out items of a row that are counted in one pass over its scores

// Count the scores above each of the limits, and those equal to it. Compilers vectorise these plain loops.
template <class T, class Count>
static inline void count_above(const T* scores, std::int64_t n, const T* limits, std::int64_t* above,
                               std::int64_t* equal) {
  const T a = limits[0], b = limits[1], c = limits[2], d = limits[3];
  Count over[kHeldTogether] = {0, 0, 0, 0}, same[kHeldTogether] = {0, 0, 0, 0};
  for (std::int64_t i = 0; i < n; ++i) {
    const T s = scores[i];
    over[0] += s > a;
    over[1] += s > b;
    over[2] += s > c;
    over[3] += s > d;
    same[0] += s == a;
    same[1] += s == b;
    same[2] += s == c;
    same[3] += s == d;
  }
  for (int e = 0; e < kHeldTogether; ++e) {
    above[e] = static_cast<std::int64_t>(over[e]);
    equal[e] = static_cast<std::int64_t>(same[e]);
  }
}

template <class T, class Count>
static inline void count_above_one(const T* scores, std::int64_t n, T limit, std::int64_t* above, std::int64_t* equal) {
  Count over = 0, same = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    over += scores[i] > limit;
    same += scores[i] == limit;
  }
  *above = static_cast<std::int64_t>(over);
  *equal = static_cast<std::int64_t>(same);
}

template <class T, class Count>
static inline bool has_nan(const T* scores, std::int64_t n) {
  Count wrong = 0;
  for (std::int64_t i = 0; i < n; ++i) wrong += scores[i] != scores[i];
  return wrong != 0;
}

template <class T, class Count>
static std::int64_t count_ranks_of(const RankRows& task) {
  for (std::int64_t row = 0; row < task.rows; ++row) {
    const T* scores = static_cast<const T*>(task.scores) + row * task.items;
    if (has_nan<T, Count>(scores, task.items)) return row;
    const std::int64_t last = task.starts[row + 1];
    for (std::int64_t first = task.starts[row]; first < last; first += kHeldTogether) {
      const int count = static_cast<int>(least(kHeldTogether, last - first));
      std::int64_t above[kHeldTogether], equal[kHeldTogether];
      T limits[kHeldTogether];
      for (int e = 0; e < kHeldTogether; ++e) limits[e] = scores[task.held[first + (e < count ? e : 0)]];
      if (count == 1) {
        count_above_one<T, Count>(scores, task.items, limits[0], above, equal);
      } else {
        count_above<T, Count>(scores, task.items, limits, above, equal);
      }
      for (int e = 0; e < count; ++e) {
        const std::int32_t own = task.held[first + e];
        std::int64_t seen_above = 0, seen_equal = 1;  // itself
        for (std::int64_t i = task.seen_starts[row]; i < task.seen_starts[row + 1]; ++i) {
          const T s = scores[task.seen[i]];
          seen_above += s > limits[e];
          seen_equal += (s == limits[e]) & (task.seen[i] != own);
        }
        task.above[first + e] = above[e] - seen_above;
        task.ties[first + e] = equal[e] - seen_equal;
      }
    }
  }
  return -1;
}

// Returns the first row with a NaN, or -1. Rows have at most 2^31 items, so that counts fit in lanes of the scores'
// width.
static std::int64_t count_ranks(const RankRows& task) {
  return task.is_double ? count_ranks_of<double, std::int64_t>(task) : count_ranks_of<float, std::int32_t>(task);
}

// Items of one row with their scores: logit + k log pi + theta lift. All scores come from the same operations on whole
// registers, so that items with equal numbers have equal scores in any place.
struct Weighed {
  static constexpr std::int64_t kMost = 1024;  // items at once: the three inputs and the scores stay in the first cache
  const float *logits, *log_pi, *lifts;        // lifts may be null

  template <bool lifted>
  static void scores_of(const float* a, const float* p, const float* l, std::int64_t n, const float* weights,
                        float* out) {
    const v8 k = splat(weights[0]), theta = splat(weights[1]);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const v8 popular = load8(a + i) + k * load8(p + i);
      store8(out + i, lifted ? popular + theta * load8(l + i) : popular);
    }
  }
  // Writes up to seven values beyond n.
  void scores(std::int64_t first, std::int64_t n, const float* weights, float* out) const {
    const auto make = lifts ? scores_of<true> : scores_of<false>;
    const std::int64_t whole = n / kLanes * kLanes;
    make(logits + first, log_pi + first, lifts ? lifts + first : nullptr, whole, weights, out);
    if (whole == n) return;
    float some[3][kLanes] = {};  // a copy of the rest, so that nothing is read beyond its end
    const float* from[3] = {logits, log_pi, lifts};
    for (int which = 0; which < (lifts ? 3 : 2); ++which)
      std::memcpy(some[which], from[which] + first + whole, static_cast<std::size_t>(n - whole) * sizeof(float));
    make(some[0], some[1], some[2], kLanes, weights, out + whole);
  }
};

// Logits, log pi and lifts of a few items, side by side.
struct Gathered {
  Buffer<float> values;
  std::int64_t count;
  bool lifted;

  Gathered(const Weighed& row, const std::int32_t* items, std::int64_t n) : values(3 * n), count(n), lifted(row.lifts) {
    for (std::int64_t i = 0; i < n; ++i) {
      values[i] = row.logits[items[i]];
      values[n + i] = row.log_pi[items[i]];
      if (row.lifts) values[2 * n + i] = row.lifts[items[i]];
    }
  }
  Weighed weighed() const {
    return {values.data(), values.data() + count, lifted ? values.data() + 2 * count : nullptr};
  }
};

// Count the ranks of one row for every pair of weights. Seen items are counted with the others, then taken off.
static void count_weighted_row(const WeightedRows& task, const Weighed& row, std::int64_t number) {
  const RankRows& rows = task.rows;
  const std::int64_t first = rows.starts[number], held = rows.starts[number + 1] - first;
  const std::int64_t all_held = rows.starts[rows.rows], seen_first = rows.seen_starts[number];
  const std::int32_t *own = rows.held + first, *seen_items = rows.seen + seen_first;
  const Gathered limits_of(row, own, held), seen(row, seen_items, rows.seen_starts[number + 1] - seen_first);
  Buffer<float> limits(task.pairs * (held + kLanes));
  for (std::int64_t pair = 0; pair < task.pairs; ++pair)
    limits_of.weighed().scores(0, held, task.weights + 2 * pair, limits.data() + pair * (held + kLanes));
  alignas(64) float scores[Weighed::kMost];
  const auto count = [&](const Weighed& some, std::int64_t total, std::int64_t sign) {
    for (std::int64_t at = 0; at < total; at += Weighed::kMost) {
      const std::int64_t n = least(Weighed::kMost, total - at);
      for (std::int64_t pair = 0; pair < task.pairs; ++pair) {
        some.scores(at, n, task.weights + 2 * pair, scores);
        for (std::int64_t e = 0; e < held; ++e) {
          std::int64_t above, equal;
          const float limit = limits[pair * (held + kLanes) + e];
          count_above_one<float, std::int32_t>(scores, n, limit, &above, &equal);
          rows.above[pair * all_held + first + e] += sign * above;
          rows.ties[pair * all_held + first + e] += sign * equal;
        }
      }
    }
  };
  for (std::int64_t pair = 0; pair < task.pairs; ++pair)
    for (std::int64_t e = 0; e < held; ++e) {
      rows.above[pair * all_held + first + e] = 0;
      rows.ties[pair * all_held + first + e] = -1;  // itself
    }
  count(row, task.items, 1);
  count(seen.weighed(), seen.count, -1);
}

// Returns the first row with a NaN, or -1.
static std::int64_t count_weighted_ranks(const WeightedRows& task) {
  for (std::int64_t number = 0; number < task.rows.rows; ++number) {
    const std::int64_t at = number * task.items;
    const Weighed row{task.logits + at, task.log_pi, task.lifts ? task.lifts + at : nullptr};
    if (has_nan<float, std::int32_t>(row.logits, task.items)) return number;
    if (row.lifts && has_nan<float, std::int32_t>(row.lifts, task.items)) return number;
    count_weighted_row(task, row, number);
  }
  return -1;
}

// The best k of a row in a heap, with the worst of them at the root. Of equal scores the lower index is better.
template <class T>
struct Heap {
  const T* scores;
  std::int32_t* items;
  std::int64_t size = 0;

  bool worse(std::int32_t a, std::int32_t b) const {
    return scores[a] < scores[b] || (scores[a] == scores[b] && a > b);
  }
  void down(std::int64_t at) {
    const std::int32_t moved = items[at];
    for (std::int64_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && worse(items[child + 1], items[child])) ++child;
      if (!worse(items[child], moved)) break;
      items[at] = items[child];
      at = child;
    }
    items[at] = moved;
  }
};

constexpr int kSkip = 64;  // scores that are skipped at once if none is above the limit

template <class T, class Count>
static inline bool none_above(const T* scores, T limit) {
  Count over = 0;
  for (int i = 0; i < kSkip; ++i) over += scores[i] > limit;
  return over == 0;
}

template <class T, class Count>
static std::int64_t best_of_rows_of(const RankRows& task) {
  for (std::int64_t row = 0; row < task.rows; ++row) {
    const T* scores = static_cast<const T*>(task.scores) + row * task.items;
    if (has_nan<T, Count>(scores, task.items)) return row;
    Heap<T> heap{scores, task.best + row * task.k};
    const std::int32_t *seen = task.seen + task.seen_starts[row], *seen_end = task.seen + task.seen_starts[row + 1];
    std::int64_t item = 0;
    for (; item < task.items && heap.size < task.k; ++item) {
      while (seen < seen_end && *seen < item) ++seen;
      if (seen < seen_end && *seen == item) continue;
      heap.items[heap.size++] = static_cast<std::int32_t>(item);
    }
    for (std::int64_t at = heap.size / 2 - 1; at >= 0; --at) heap.down(at);
    for (; item < task.items; ++item) {  // later items must be above the worst: of equals the lower index stays
      while (item + kSkip <= task.items && none_above<T, Count>(scores + item, scores[heap.items[0]])) item += kSkip;
      if (item == task.items) break;
      if (!(scores[item] > scores[heap.items[0]])) continue;
      while (seen < seen_end && *seen < item) ++seen;
      if (seen < seen_end && *seen == item) continue;
      heap.items[0] = static_cast<std::int32_t>(item);
      heap.down(0);
    }
    const std::int64_t found = heap.size;
    while (heap.size > 1) {  // the worst to the end
      const std::int32_t worst = heap.items[0];
      --heap.size;
      heap.items[0] = heap.items[heap.size];
      heap.down(0);
      heap.items[heap.size] = worst;
    }
    for (std::int64_t at = found; at < task.k; ++at) heap.items[at] = -1;
  }
  return -1;
}

static std::int64_t best_of_rows(const RankRows& task) {
  return task.is_double ? best_of_rows_of<double, std::int64_t>(task) : best_of_rows_of<float, std::int32_t>(task);
}

}  // namespace considerate::CONSIDERATE_ISA
