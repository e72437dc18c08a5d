// Ranks of held-out items among the scores of a row, and the best of a row.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

constexpr int kHeldTogether = 4;  // held-out items of a row that are counted in one pass over its scores

// How many of n scores are above each of the limits, and how many equal it. Plain loops, which compilers make SIMD of.
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

// The first row with a NaN, or -1. Rows of at most 2^31 items, so that counts fit in lanes as wide as the scores.
static std::int64_t count_ranks(const RankRows& task) {
  return task.is_double ? count_ranks_of<double, std::int64_t>(task) : count_ranks_of<float, std::int32_t>(task);
}

// The best k of a row by a heap whose root is the worst of them, a lower index being better where scores tie.
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

constexpr int kSkip = 64;  // scores that are passed over at once where none is above the limit

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
