// The edges of a row: its liked and unliked edges, cut into the blocks of the other side.
#pragma once
#include "buffer.hpp"

namespace considerate::CONSIDERATE_ISA {

// Consecutive edges of one row, the liked ones first.
struct EdgeRun {
  const std::int32_t *liked, *unliked;  // their indices
  std::int64_t liked_count, count;
  const float *liked_weights, *unliked_weights;  // kappa; null: each edge counts once
  const std::int32_t *liked_end, *unliked_end;   // the ends of the lists that the edges are from, to fetch ahead in

  std::int32_t operator[](std::int64_t e) const { return e < liked_count ? liked[e] : unliked[e - liked_count]; }
};

// The edges of all rows of a pass.
class RowEdges {
 public:
  explicit RowEdges(const Pass& pass)
      : pass_(pass),
        liked_end_(pass.liked.starts ? pass.liked.indices + pass.liked.count() : nullptr),
        unliked_end_(pass.unliked.starts ? pass.unliked.indices + pass.unliked.count() : nullptr) {}

  std::int64_t count(std::int64_t row) const { return pass_.liked.count(row) + pass_.unliked.count(row); }

  // All edges of a row.
  EdgeRun all(std::int64_t row) const {
    const std::int64_t liked = pass_.liked.starts ? pass_.liked.starts[row] : 0,
                       unliked = pass_.unliked.starts ? pass_.unliked.starts[row] : 0;
    return run(liked, pass_.liked.count(row), unliked, pass_.unliked.count(row));
  }

  // The edges of a row to other[low, high). The search begins where they would be if they were spread evenly.
  EdgeRun between(std::int64_t row, std::int64_t low, std::int64_t high) const {
    const Edges* edges[2] = {&pass_.liked, &pass_.unliked};
    std::int64_t at[2] = {0, 0}, stop[2] = {0, 0};
    for (int side = 0; side < 2; ++side) {
      if (!edges[side]->starts) continue;
      const std::int64_t begin = edges[side]->starts[row], end = edges[side]->starts[row + 1];
      const std::int32_t* indices = edges[side]->indices;
      std::int64_t guess = begin + (end - begin) * low / pass_.other.count, step = 8;
      while (guess > begin && indices[guess - 1] >= low) {
        guess = guess - step > begin ? guess - step : begin;
        step *= 2;
      }
      at[side] = first_not_below_near(indices, guess, end, low);
      stop[side] = first_not_below_near(indices, at[side], end, high);
    }
    return run(at[0], stop[0] - at[0], at[1], stop[1] - at[1]);
  }

  // Call visit(block, edges) for each block of the other side that a row has edges to within other[low, high), in
  // ascending order. Without blocks there is one call, with all edges.
  template <class Visit>
  void each_block(std::int64_t row, std::int64_t low, std::int64_t high, Visit visit) const {
    if (!pass_.splits) return visit(0, all(row));
    std::int64_t at[2] = {0, 0}, end[2] = {0, 0};
    const Edges* edges[2] = {&pass_.liked, &pass_.unliked};
    for (int side = 0; side < 2; ++side) {
      const std::int32_t* indices = edges[side]->indices;
      if (edges[side]->starts) {
        at[side] = edges[side]->starts[row];
        end[side] = edges[side]->starts[row + 1];
      }
      if (low > 0) at[side] = first_not_below(indices, at[side], end[side], low);
      if (high < INT32_MAX) end[side] = first_not_below(indices, at[side], end[side], high);
    }
    while (at[0] < end[0] || at[1] < end[1]) {
      std::int64_t next = INT64_MAX;
      for (int side = 0; side < 2; ++side)
        if (at[side] < end[side]) next = least(next, edges[side]->indices[at[side]]);
      const std::int64_t block = first_not_below(pass_.splits, 0, pass_.leaves + 1, next + 1) - 1;
      std::int64_t stop[2];
      for (int side = 0; side < 2; ++side) {
        stop[side] = at[side];
        const std::int32_t* indices = edges[side]->indices;
        while (stop[side] < end[side] && indices[stop[side]] < pass_.splits[block + 1]) ++stop[side];
      }
      visit(block, run(at[0], stop[0] - at[0], at[1], stop[1] - at[1]));
      at[0] = stop[0];
      at[1] = stop[1];
    }
  }

 private:
  EdgeRun run(std::int64_t liked, std::int64_t liked_count, std::int64_t unliked, std::int64_t unliked_count) const {
    return {pass_.liked.indices + liked,
            pass_.unliked.indices + unliked,
            liked_count,
            liked_count + unliked_count,
            pass_.liked.weights ? pass_.liked.weights + liked : nullptr,
            pass_.unliked.weights ? pass_.unliked.weights + unliked : nullptr,
            liked_end_,
            unliked_end_};
  }

  const Pass& pass_;
  const std::int32_t *liked_end_, *unliked_end_;
};

// Copies of the edges of many rows, one row after the other, so that a row can fetch the next row's ends ahead.
class Batch {
 public:
  bool fits(const EdgeRun& edges) const { return count_ < kRows && used_ + edges.count <= kEdges; }

  void add(std::int64_t row, const EdgeRun& edges) {
    rows_[count_++] = {row, used_, edges.liked_count, edges.count};
    if (edges.liked_weights)
      for (std::int64_t e = 0; e < edges.liked_count; ++e) weights_[used_ + e] = edges.liked_weights[e];
    if (edges.unliked_weights)
      for (std::int64_t e = edges.liked_count; e < edges.count; ++e)
        weights_[used_ + e] = edges.unliked_weights[e - edges.liked_count];
    for (std::int64_t e = 0; e < edges.liked_count; ++e) indices_[used_++] = edges.liked[e];
    for (std::int64_t e = 0; e < edges.count - edges.liked_count; ++e) indices_[used_++] = edges.unliked[e];
  }

  // Call visit(row, edges) for each row, in the order of adding, and begin a new batch.
  template <class Visit>
  void flush(const Pass& pass, Visit visit) {
    const std::int32_t* end = indices_ + used_;
    for (std::int64_t i = 0; i < count_; ++i) {
      const Row& row = rows_[i];
      const std::int32_t* indices = indices_ + row.start;
      const float* weights = weights_ + row.start;
      visit(row.number, EdgeRun{indices, indices + row.liked_count, row.liked_count, row.count,
                                pass.liked.weights ? weights : nullptr,
                                pass.unliked.weights ? weights + row.liked_count : nullptr, end, end});
    }
    used_ = count_ = 0;
  }

 private:
  static constexpr std::int64_t kEdges = 4096, kRows = 1024;
  struct Row {
    std::int64_t number, start, liked_count, count;
  };
  std::int64_t used_ = 0, count_ = 0;
  Row rows_[kRows];
  std::int32_t indices_[kEdges];
  float weights_[kEdges];
};

}  // namespace considerate::CONSIDERATE_ISA
