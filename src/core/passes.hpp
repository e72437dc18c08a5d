// The passes over rows that Python calls.
#pragma once
#include "few.hpp"
#include "row_sums.hpp"
#include "solve.hpp"

namespace considerate::CONSIDERATE_ISA {

// Pack a row's sums from a node; zeros if the node is null.
static void pack(const Shape& shape, const float* node, std::int64_t r, const SumsOut& out) {
  const std::int64_t K = shape.K, T = triangle(K);
  float *second = out.second + r * T, *first = out.first + r * K, *bias = out.bias + r * 2;
  if (!node) {
    std::memset(second, 0, static_cast<std::size_t>(T) * sizeof(float));
    std::memset(first, 0, static_cast<std::size_t>(K) * sizeof(float));
    bias[0] = bias[1] = 0.0f;
    return;
  }
  std::int64_t i = 0;
  for (; triangle(i) + (i + 8) / 8 * 8 <= T; second += ++i)  // the next row overwrites the excess
    for (std::int64_t j = 0; j <= i; j += 8) store8(second + j, load8(node + i * shape.KP + j));
  for (; i < K; second += ++i)
    std::memcpy(second, node + i * shape.KP, static_cast<std::size_t>(i + 1) * sizeof(float));
  for (std::int64_t k = 0; k < K; ++k) first[k] = node[shape.second() + k];
  for (int b = 0; b < 2; ++b) bias[b] = node[shape.second() + shape.KP + b];
}

static void update_block(const Pass& pass, RowsOut& out, Tape* tape) {
  RowSummer summer(pass, tape);
  Solver solver(pass, out);
  const bool groups = pass.expected && pass.own_is_user;
  Pass whole = pass;  // rows of few edges are stepped in all coordinates, with the first block
  whole.block_size = 0;
  FewEdges few(whole, out, solver);
  const std::int64_t width = 2 * padded(pass.own.factors), most = FewEdges::most(pass);
  for (std::int64_t r = pass.first; r < pass.last; ++r) {
    constexpr int together = UserGroups::kTogether;
    const std::int64_t row = pass.row(r);
    if (groups && (r - pass.first) % together == 0)
      summer.prepare(row, static_cast<int>(least(together, pass.last - r)));
    const float* soon = pass.own.rows + pass.row(least(r + 8, pass.last - 1)) * width;
    for (std::int64_t k = 0; k < width; k += 16) __builtin_prefetch(soon + k);
    if (summer.edges_of(row) <= most) {
      if (pass.block_first == 0) few.push(row);
    } else {
      solver.push(row, summer.sum(row, 0, INT32_MAX, true, solver.spare()));
    }
  }
  few.finish();
  solver.finish();
  out.bound = pass.constants.likelihood_weight * (summer.bound() + few.bound());
}

static void add_bounds(const Pass& pass, RowsOut& out) {
  RowSummer summer(pass);
  constexpr int together = UserGroups::kTogether;
  for (std::int64_t row = pass.first; row < pass.last; ++row) {
    if (pass.expected && (row - pass.first) % together == 0)
      summer.prepare(row, static_cast<int>(least(together, pass.last - row)));
    summer.add_bound(row);
  }
  out.bound = pass.constants.likelihood_weight * summer.bound();
}

// Sum and step rows, or compute their bound alone. A row depends on itself and the other side alone, so each block of
// coordinates reads the rows that the blocks before wrote. xi is computed from the rows before the first block: an edge
// has one p for all blocks, and its pull is brought forward.
static void update_rows(const Pass& pass, RowsOut& out) {
  const std::int64_t blocks = block_count(pass.own.factors);
  if (!out.rows) return add_bounds(nth_block(pass, 0, nullptr, nullptr, nullptr), out);
  if (blocks == 1) return update_block(nth_block(pass, 0, nullptr, nullptr, nullptr), out, nullptr);
  Tape tape;
  double bound = 0, moments[4] = {0, 0, 0, 0};
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Pass part = nth_block(pass, block, block ? out.rows : nullptr, out.bias_mean, out.bias_variance);
    for (double& moment : out.moments) moment = 0;
    tape.rewind();
    update_block(part, out, &tape);
    if (block == 0) bound = out.bound;
    for (int i = 0; i < 4; ++i) moments[i] += out.moments[i];
  }
  out.bound = bound;
  for (int i = 0; i < 4; ++i) out.moments[i] = moments[i];
}

// other[low, high) is within one leaf of the tree.
static bool in_one_leaf(const Pass& pass, std::int64_t low, std::int64_t high) {
  if (!pass.splits || low >= high || high > pass.other.count) return false;
  return high <= pass.splits[first_not_below(pass.splits, 0, pass.leaves + 1, low + 1)];
}

static void sum_rows_of(const Pass& pass, const std::int32_t* which, std::int64_t count, std::int64_t low,
                        std::int64_t high, bool with_groups, SumsOut& out) {
  RowSummer summer(pass);
  const Shape shape(pass);
  float* spare = new_node(shape);
  const auto write = [&](std::int64_t r, float* node) {
    pack(shape, node, r, out);
    if (node) spare = node;
  };
  if (summer.far() && !with_groups && in_one_leaf(pass, low, high)) {
    summer.sum_together(which, count, low, high,
                        [&](std::int64_t r, Tree& tree) { write(r, tree.take(shape, spare)); });
  } else {
    for (std::int64_t r = 0; r < count; ++r) write(r, summer.sum(which[r], low, high, with_groups, spare));
  }
  out.bound = pass.constants.likelihood_weight * summer.bound();
  std::free(spare);
}

static void liked_sums(const Pass& pass, double* out) {
  RowSummer summer(pass);
  const std::int64_t groups = pass.expected->shares.groups;
  Buffer<LikedSums> liked(groups);
  for (std::int64_t row = pass.first; row < pass.last; ++row, out += groups * kLikedSums) {
    liked.zero();
    summer.add_liked(row, liked.data());
    std::memcpy(out, liked.data(), static_cast<std::size_t>(groups) * sizeof(LikedSums));
  }
}

static void edge_corrections(const Expected& expected, std::int64_t users, const std::int32_t* counts,
                             const std::int32_t* items, float* out) {
  for (std::int64_t m = 0; m < users; ++m)
    for (std::int32_t e = 0; e < counts[m]; ++e, ++items, out += 2)
      correction_by_shares(expected, m, *items, out[0], out[1]);
}

static void solve_rows_of(const Pass& pass, const std::int32_t* which, std::int64_t count, const SumsIn& sums,
                          RowsOut& out) {
  Solver solver(pass, out);
  const std::int64_t K = Shape(pass).K, T = triangle(K);
  for (std::int64_t r = 0; r < count; ++r)
    solver.push_packed(which[r], sums.second + r * T, sums.first + r * K, sums.bias + r * 2);
  solver.finish();
}

static void logistic_of_squares(std::int64_t count, const float* xi_squared, float* curvature_out, float* height) {
  for (std::int64_t e = 0; e < count; e += 8) {
    float buffer[8] = {0};
    const std::int64_t live = least(8, count - e);
    for (std::int64_t lane = 0; lane < live; ++lane) buffer[lane] = xi_squared[e + lane];
    const LogisticBound8 bound(load8(buffer));
    const v8 curvature = bound.curvature(), heights = bound.height();
    for (std::int64_t lane = 0; lane < live; ++lane) {
      curvature_out[e + lane] = curvature[lane];
      height[e + lane] = heights[lane];
    }
  }
}

}  // namespace considerate::CONSIDERATE_ISA
