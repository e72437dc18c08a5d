// The passes over rows that Python calls.
#pragma once
#include "few.hpp"
#include "groups.hpp"
#include "logistic.hpp"
#include "solve.hpp"

namespace considerate::CONSIDERATE_ISA {

// A row's sums from the node's form to the packed one; null where there is nothing to add.
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
  for (; triangle(i) + (i + 8) / 8 * 8 <= T; second += ++i)  // the next row overwrites what is too much
    for (std::int64_t j = 0; j <= i; j += 8) store8(second + j, load8(node + i * shape.KP + j));
  for (; i < K; second += ++i)
    std::memcpy(second, node + i * shape.KP, static_cast<std::size_t>(i + 1) * sizeof(float));
  for (std::int64_t k = 0; k < K; ++k) first[k] = node[shape.second() + k];
  for (int b = 0; b < 2; ++b) bias[b] = node[shape.second() + shape.KP + b];
}

// w_mn and w_mn l_mb of an edge, from the alpha, floor and l that a pass over the users made.
static inline void made_correction(const Expected& ex, std::int64_t user, std::int64_t item, float& w, float& wl) {
  const std::int64_t at = user * ex.shares.groups + ex.groups.group_of_item[item];
  const double beta = ex.groups.beta[item];
  const double both =
      beta > 0 ? static_cast<double>(ex.shares.alpha[at]) * beta + static_cast<double>(ex.shares.floor[at]) : 0.0;
  w = static_cast<float>(both);
  wl = static_cast<float>(both * static_cast<double>(ex.shares.curvature[at]));
}

class RowSummer {
 public:
  explicit RowSummer(const Pass& pass, Tape* tape = nullptr)
      : pass_(pass),
        tape_(tape),
        shape_(pass),
        own_(shape_),
        panel_(shape_),
        groups_(pass, tape),
        second_(pass.expected && !pass.own_is_user ? triangle(pass.own.factors) : 0),
        scratch_(pass.expected ? pass.own.factors : 0) {
    if (pass.liked.starts) liked_end_ = pass.liked.indices + pass.liked.starts[pass.own.count];
    if (pass.unliked.starts) unliked_end_ = pass.unliked.indices + pass.unliked.starts[pass.own.count];
    panel_.far = far_ = bytes_of_other() > kNear;
    weighted_ = pass.liked.weights || pass.unliked.weights;
  }

  // The sums of a row over its edges to other[low, high), and with the closed-form part where asked for, in exchange
  // for another buffer; null where there is nothing to add.
  float* sum(std::int64_t row, std::int64_t low, std::int64_t high, bool with_groups, float* in_exchange) {
    if (pass_.expected && pass_.own_is_user && !pass_.expected->shares.given && !groups_.holds(row)) prepare(row, 1);
    begin(row, &own_tree_);
    walk(row, low, high);
    if (pass_.expected && with_groups) add_groups(row);
    return own_tree_.take(shape_, in_exchange);
  }

  // The row's part of the bound alone.
  void add_bound(std::int64_t row) {
    if (pass_.expected && !groups_.holds(row)) prepare(row, 1);
    begin(row, nullptr);
    walk(row, 0, INT32_MAX);
  }

  // alpha, l and the closed-form sums of some users, at most UserGroups::kTogether.
  void prepare(std::int64_t first, int count) {
    groups_.begin(first, count);
    if (groups_.again()) return groups_.repeat();
    const double* given = pass_.expected->liked;
    const std::int64_t size = pass_.expected->shares.groups;
    for (std::int64_t row = first; row < first + count; ++row) {
      if (given) {
        std::memcpy(groups_.liked(row), given + row * size * kLikedSums,
                    static_cast<std::size_t>(size) * sizeof(LikedSums));
      } else {
        add_liked(row, groups_.liked(row));
      }
    }
    bound_ += groups_.finish();
  }

  // What the groups' sums hold of a user's liked items is added to `liked`.
  void add_liked(std::int64_t row, LikedSums* liked) {
    begin(row, nullptr);
    sum_liked(row, liked);
  }

  // Whether the other side is so large that its rows are brought near before their use.
  bool far() const { return far_; }

  // The sums of some rows over their edges to other[low, high), all in one leaf. The edges of many rows are put together
  // first, one row's after the other's, so that each looks ahead into the next.
  void sum_together(const std::int32_t* which, std::int64_t count, std::int64_t low, std::int64_t high, SumsOut& out) {
    Batch batch;
    float* spare = new_node(shape_);
    const auto sum_one = [&](std::int64_t r, const Part& part) {
      begin(which[r], &own_tree_);
      leaves(0, part);
      float* node = own_tree_.take(shape_, spare);
      pack(shape_, node, r, out);
      if (node) spare = node;
    };
    const auto sum_batch = [&] {
      const std::int32_t *liked_end = liked_end_, *unliked_end = unliked_end_;
      liked_end_ = unliked_end_ = batch.edges + batch.used;
      for (std::int64_t i = 0; i < batch.count; ++i) {
        const Batch::Leaf& leaf = batch.leaves[i];
        const std::int32_t* edges = batch.edges + leaf.start;
        const float* weights = batch.weights + leaf.start;
        sum_one(leaf.row,
                {edges, edges + leaf.liked_count, leaf.liked_count, leaf.count, pass_.liked.weights ? weights : nullptr,
                 pass_.unliked.weights ? weights + leaf.liked_count : nullptr});
      }
      liked_end_ = liked_end;
      unliked_end_ = unliked_end;
      batch.used = batch.count = 0;
    };
    for (std::int64_t r = 0; r < count; ++r) {
      const Part part = between(which[r], low, high);
      if (!batch.fits(part)) sum_batch();
      if (batch.fits(part)) {
        batch.add(r, part);
      } else {  // so long that it looks ahead to its own edges
        sum_one(r, part);
      }
    }
    sum_batch();
    std::free(spare);
  }

  std::int64_t edges_of(std::int64_t row) const {
    std::int64_t edges = pass_.liked.starts[row + 1] - pass_.liked.starts[row];
    if (pass_.unliked.starts) edges += pass_.unliked.starts[row + 1] - pass_.unliked.starts[row];
    return edges;
  }

  double bound() const { return bound_; }

 private:
  static constexpr std::uint64_t kGroupsPlace = ~std::uint64_t{0};
  static constexpr std::int64_t kAhead = 40;        // edges between a prefetch and its use
  static constexpr std::int64_t kNear = 768 << 10;  // bytes of the other side that need no prefetching

  enum class Reads { rows, biases, corrections };  // of a panel's edges, each with what is before it
  struct Part {                                    // edges of one row to one block
    const std::int32_t* liked;
    const std::int32_t* unliked;
    std::int64_t liked_count, count;
    const float *weights, *unliked_weights;  // of the liked ones and of the others, or null
  };

  // Of consecutive edges, from a row's lists.
  Part part_of(std::int64_t liked, std::int64_t liked_count, std::int64_t unliked, std::int64_t unliked_count) const {
    return {pass_.liked.indices + liked,
            pass_.unliked.indices + unliked,
            liked_count,
            liked_count + unliked_count,
            pass_.liked.weights ? pass_.liked.weights + liked : nullptr,
            pass_.unliked.weights ? pass_.unliked.weights + unliked : nullptr};
  }

  std::int64_t bytes_of_other() const {
    return pass_.other.count * 2 * shape_.row * static_cast<std::int64_t>(sizeof(float));
  }

  // The edges of some rows to one block of the other side, one row's after the other's, in the order of their use.
  struct Batch {
    static constexpr std::int64_t kEdges = 4096, kLeaves = 1024;
    struct Leaf {
      std::int64_t row, start, liked_count, count;
    };
    std::int64_t used = 0, count = 0;
    Leaf leaves[kLeaves];
    std::int32_t edges[kEdges];
    float weights[kEdges];

    bool fits(const Part& part) const { return count < kLeaves && used + part.count <= kEdges; }
    void add(std::int64_t row, const Part& part) {
      leaves[count++] = {row, used, part.liked_count, part.count};
      if (part.weights)
        for (std::int64_t e = 0; e < part.liked_count; ++e) weights[used + e] = part.weights[e];
      if (part.unliked_weights)
        for (std::int64_t e = part.liked_count; e < part.count; ++e)
          weights[used + e] = part.unliked_weights[e - part.liked_count];
      for (std::int64_t e = 0; e < part.liked_count; ++e) edges[used++] = part.liked[e];
      for (std::int64_t e = 0; e < part.count - part.liked_count; ++e) edges[used++] = part.unliked[e];
    }
  };

  void begin(std::int64_t row, Tree* tree) {
    own_.load(shape_, pass_, row);
    row_ = row;
    tree_ = tree;
  }

  // The edges of a row to other[low, high), found from where they would be if they were spread evenly.
  Part between(std::int64_t row, std::int64_t low, std::int64_t high) const {
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
    return part_of(at[0], stop[0] - at[0], at[1], stop[1] - at[1]);
  }

  // Visit the leaves in the order of their places.
  void walk(std::int64_t row, std::int64_t low, std::int64_t high) {
    std::int64_t at[2] = {0, 0}, end[2] = {0, 0};
    const Edges* edges[2] = {&pass_.liked, &pass_.unliked};
    for (int side = 0; side < 2; ++side)
      if (edges[side]->starts) {
        at[side] = edges[side]->starts[row];
        end[side] = edges[side]->starts[row + 1];
      }
    if (!pass_.splits) {
      leaves(0, part_of(at[0], end[0] - at[0], at[1], end[1] - at[1]));
      return;
    }
    for (int side = 0; side < 2; ++side) {
      const std::int32_t* indices = edges[side]->indices;
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
      leaves(block, part_of(at[0], stop[0] - at[0], at[1], stop[1] - at[1]));
      at[0] = stop[0];
      at[1] = stop[1];
    }
  }

  // The edges of one block, first the liked ones, a chunk to a leaf.
  void leaves(std::int64_t block, const Part& part) {
    for (std::int64_t start = 0; start < part.count; start += kChunk) {
      const std::uint64_t place =
          (static_cast<std::uint64_t>(block) << 32) | static_cast<std::uint64_t>(start / kChunk);
      leaf(tree_ ? tree_->leaf(shape_, place) : nullptr, part, start, least(part.count, start + kChunk));
    }
  }

  void leaf(float* node, const Part& part, std::int64_t start, std::int64_t stop) {
    switch (shape_.whole() ? shape_.KP / 8 : 0) {
      case 1:
        return panels<1>(node, part, start, stop);
      case 2:
        return panels<2>(node, part, start, stop);
      case 3:
        return panels<3>(node, part, start, stop);
      case 4:
        return panels<4>(node, part, start, stop);
      case 8:
        return panels<8>(node, part, start, stop);
      default:
        return panels<0>(node, part, start, stop);
    }
  }

  template <int V>
  void panels(float* node, const Part& part, std::int64_t start, std::int64_t stop) {
    const std::int64_t size = shape_.panel();
    for (std::int64_t e = start; e < stop; e += size) {
      const int edges = static_cast<int>(least(size, stop - e));
      float bias_sums[2] = {0, 0};
      weights<V>(part, e, edges, bias_sums);
      if (!node) continue;  // the bound was all that was asked for
      float* bias = node + shape_.second() + shape_.KP;
      if (e == start) {
        panel_.add_to<V, true>(node, edges);
        bias[0] = bias[1] = 0.0f;
      } else {
        panel_.add_to<V, false>(node, edges);
      }
      bias[0] += bias_sums[0];
      bias[1] += bias_sums[1];
    }
  }

  // The rows, p and pull of a panel's edges: from the rows before any step, or where the first block of coordinates has
  // left them on the tape; then turned to the block that is summed, by way of those before it.
  template <int V>
  void weights(const Part& part, std::int64_t start, int edges, float* bias_sums) {
    const bool again = tape_ && shape_.first > 0;
    gather(part, start, edges, again ? Reads::rows : pass_.expected ? Reads::corrections : Reads::biases);
    if (!again) {
      panel_.moments<V>(own_, edges);
      coefficients(edges, bias_sums);
    }
    if (V > 0 || shape_.whole()) return;
    const std::size_t bytes = static_cast<std::size_t>(padded(edges)) * sizeof(float);
    if (again) {
      tape_->read(panel_.precision, bytes);
      void* pull = tape_->next(bytes);
      std::memcpy(panel_.pull, pull, bytes);
      panel_.turn_to(shape_.first, own_, edges, pass_.constants.slope);
      std::memcpy(pull, panel_.pull, bytes);
      return;
    }
    for (std::int64_t first = shape_.width; first <= shape_.first; first += shape_.width)
      panel_.turn_to(first, own_, edges, pass_.constants.slope);
    if (!tape_) return;
    tape_->write(panel_.precision, bytes);
    tape_->write(panel_.pull, bytes);
  }

  // The rows at the other ends of a panel's edges, the liked ones first; the last eight are filled up with the last edge.
  void gather(const Part& part, std::int64_t start, int edges, Reads reads) {
    const int liked = static_cast<int>(start >= part.liked_count ? 0 : least(edges, part.liked_count - start));
    gather_some(part.liked + start, liked_end_, 0, liked, reads);
    if (liked < edges)
      gather_some(part.unliked + (start + liked - part.liked_count), unliked_end_, liked, edges, reads);
    liked_ = liked;
    if (weighted_ && reads != Reads::rows) {
      const float* unliked_weights = part.unliked_weights ? part.unliked_weights + start - part.liked_count : nullptr;
      for (int e = 0; e < liked; ++e) panel_.kappa[e] = part.weights ? part.weights[start + e] : 1.0f;
      for (int e = liked; e < edges; ++e) panel_.kappa[e] = unliked_weights ? unliked_weights[e] : 1.0f;
    }
    for (int e = edges; e % 8 != 0; ++e) {
      panel_.rows[e] = panel_.rows[edges - 1];
      panel_.bias[e] = panel_.bias_variance[e] = panel_.w[e] = panel_.wl[e] = 0.0f;
    }
  }

  void gather_some(const std::int32_t* indices, const std::int32_t* end, int first, int last, Reads reads) {
    const float* base = pass_.other.rows;
    const std::int64_t stride = 2 * shape_.row;
    for (int e = first; e < last; ++e, ++indices) panel_.rows[e] = base + *indices * stride;
    indices -= last - first;
    if (far_)
      for (int e = first; e < last; ++e) {
        const std::int32_t* ahead = indices + (e - first) + kAhead;
        panel_.soon[e] = base + (ahead < end ? *ahead : *indices) * stride;
      }
    if (pass_.other.bias_mean && reads != Reads::rows)
      for (int e = first; e < last; ++e) {
        panel_.bias[e] = pass_.other.bias_mean[indices[e - first]];
        panel_.bias_variance[e] = pass_.other.bias_variance[indices[e - first]];
      }
    if (pass_.constants.user_offset && !pass_.own_is_user && reads != Reads::rows)
      for (int e = first; e < last; ++e)
        panel_.bias[e] =
            (pass_.other.bias_mean ? panel_.bias[e] : 0.0f) + pass_.constants.user_offset[indices[e - first]];
    if (reads != Reads::corrections) return;
    if (pass_.expected->corrections) {
      const bool liked = end == liked_end_;
      const std::int64_t edge = liked ? indices - pass_.liked.indices
                                      : pass_.liked.starts[pass_.own.count] + (indices - pass_.unliked.indices);
      const float* given = pass_.expected->corrections + 2 * edge;
      for (int e = first; e < last; ++e, given += 2) {
        panel_.w[e] = given[0];
        panel_.wl[e] = given[1];
      }
      return;
    }
    for (int e = first; e < last; ++e) correction(indices[e - first], panel_.w[e], panel_.wl[e]);
  }

  // p and y - p b of each edge: P gets p v v', z gets (y - p b) v, the row's own bias p and y - p (a - b_own), with b the
  // biases, and what coordinates outside the block add to the logit, and
  //   p = rho (kappa 2 lambda - w l),    y = rho (kappa (g - 1/2) + w / 2)
  void coefficients(int edges, float* bias_sums) {
    const v8 own_bias = splat(own_.bias), shift = splat(own_.bias + own_.offset),
             rho = splat(pass_.constants.likelihood_weight);
    const v8 own_variance = splat(own_.bias_variance);
    v8 precision_sum = splat(0.0f), pull_sum = splat(0.0f), heights = splat(0.0f);
    for (int e = 0; e < edges; e += 8) {
      const v8 bias = load8(panel_.bias + e) + shift;
      const v8 half = select8(i8{0, 1, 2, 3, 4, 5, 6, 7} < (liked_ - e), splat(0.5f), splat(-0.5f));
      const v8 logit = load8(panel_.mean + e) + bias;
      const LogisticBound8 bound(logit * logit + load8(panel_.variance + e) + load8(panel_.bias_variance + e) +
                                 own_variance);
      v8 p = bound.curvature(), y = half;
      if (weighted_) {
        p *= load8(panel_.kappa + e);
        y *= load8(panel_.kappa + e);
      }
      if (pass_.expected) {
        p -= load8(panel_.wl + e);
        y += splat(0.5f) * load8(panel_.w + e);
      }
      p *= rho;
      y *= rho;
      v8 height = pass_.own_is_user ? bound.height() + half * logit : splat(0.0f);
      if (weighted_) height *= load8(panel_.kappa + e);
      if (e + 8 > edges) {
        const i8 live = i8{0, 1, 2, 3, 4, 5, 6, 7} < (edges - e);
        p = select8(live, p, splat(0.0f));
        y = select8(live, y, splat(0.0f));
        height = select8(live, height, splat(0.0f));
      }
      store8(panel_.precision + e, p);
      store8(panel_.pull + e, pass_.constants.slope ? p : y - p * (bias + load8(panel_.rest_of_mean + e)));
      precision_sum += p;
      pull_sum += y - p * (logit - own_bias);
      heights += height;
    }
    bias_sums[0] = static_cast<float>(sum_lanes(precision_sum));
    bias_sums[1] = static_cast<float>(sum_lanes(pull_sum));
    if (pass_.own_is_user) bound_ += sum_lanes(heights);
  }

  // w_mn and w_mn l_mb of a liked edge, which the group sums hold and must give back.
  void correction(std::int32_t index, float& w, float& wl) const {
    const Expected& ex = *pass_.expected;
    const std::int64_t user = pass_.own_is_user ? row_ : index, item = pass_.own_is_user ? index : row_;
    if (pass_.own_is_user && !ex.shares.given) {
      const std::int64_t group = ex.groups.group_of_item[item];
      w = static_cast<float>(groups_.w(row_, group, ex.groups.beta[item]));
      wl = static_cast<float>(groups_.wl(row_, group, ex.groups.beta[item]));
    } else {
      made_correction(ex, user, item, w, wl);
    }
  }

  // What the group sums hold of a user's liked items, and of those that have unliked edges of their own.
  void sum_liked(std::int64_t row, LikedSums* liked) {
    const Expected& ex = *pass_.expected;
    const std::int64_t begin = pass_.liked.starts[row], end = pass_.liked.starts[row + 1];
    const double T = ex.shares.temperature[row];
    std::int64_t known = 0;
    const std::int32_t* unliked = nullptr;
    if (pass_.unliked.starts) {
      unliked = pass_.unliked.indices + pass_.unliked.starts[row];
      known = pass_.unliked.starts[row + 1] - pass_.unliked.starts[row];
    }
    const Part part{pass_.liked.indices + begin, unliked, end - begin, end - begin + known, nullptr, nullptr};
    const auto item_of = [&part](std::int64_t e) {
      return e < part.liked_count ? part.liked[e] : part.unliked[e - part.liked_count];
    };
    const v8 shift = splat(own_.bias + own_.offset), own_variance = splat(own_.bias_variance);
    alignas(32) float beta[kPanel], mass[kPanel], logit[kPanel], square[kPanel];
    const int size = shape_.panel();
    for (std::int64_t start = 0; start < part.count; start += size) {
      const int edges = static_cast<int>(least(size, part.count - start));
      gather(part, start, edges, Reads::biases);
      switch (shape_.whole() ? shape_.KP / 8 : 0) {
        case 1:
          panel_.moments<1>(own_, edges);
          break;
        case 2:
          panel_.moments<2>(own_, edges);
          break;
        case 3:
          panel_.moments<3>(own_, edges);
          break;
        case 4:
          panel_.moments<4>(own_, edges);
          break;
        case 8:
          panel_.moments<8>(own_, edges);
          break;
        default:
          panel_.moments<0>(own_, edges);
          break;
      }
      for (int e = 0; e < edges; ++e) beta[e] = static_cast<float>(T * ex.groups.beta[item_of(start + e)]);
      for (int e = edges; e % 8 != 0; ++e) beta[e] = 0.0f;
      for (int e = 0; e < edges; e += 8) {
        const v8 a = load8(panel_.mean + e) + load8(panel_.bias + e) + shift;
        store8(logit + e, a);
        store8(square + e, a * a + load8(panel_.variance + e) + load8(panel_.bias_variance + e) + own_variance);
        store8(mass + e, one_minus_exp(load8(beta + e)));
      }
      for (int e = 0; e < edges; ++e) {
        const std::int32_t item = item_of(start + e);
        const double weight = ex.groups.beta[item];
        if (!(weight > 0)) continue;
        LikedSums& of = liked[ex.groups.group_of_item[item]];
        of.mass += static_cast<double>(mass[e]);
        for (int by = 0; by < 2; ++by) {
          const double times = by ? 1.0 : weight;
          of.by[by].weight += times;
          of.by[by].square += times * static_cast<double>(square[e]);
          of.by[by].mean += times * static_cast<double>(logit[e]);
        }
      }
    }
  }

  // What the groups add to a row: the closed-form sums, liked pairs included (their part is taken back per edge).
  void add_groups(std::int64_t row) {
    const Expected& ex = *pass_.expected;
    const std::int64_t K = pass_.own.factors, KP = shape_.KP, low = shape_.first, high = low + shape_.K;
    float* node = tree_->leaf(shape_, kGroupsPlace);
    double bias[2] = {0, 0};
    const double* second;
    if (pass_.own_is_user) {
      second = groups_.second(row);
      groups_.first(row, scratch_.data(), bias);
    } else {
      const double constant = static_cast<double>(own_.stepped_bias) + pass_.constants.offset;
      second_.zero();
      scratch_.zero();
      for (int by = 0; by < 2; ++by) {
        const std::int64_t b = ex.groups.group_of_item[row] + by * ex.shares.groups;
        const double weight = by ? (ex.groups.beta[row] > 0 ? 1.0 : 0.0) : ex.groups.beta[row];
        const double* of = ex.users.second + b * triangle(K);
        for (std::int64_t i = 0; i < triangle(K); ++i) second_[i] += weight * of[i];
        const double *plain = ex.users.first + b * 3 * K, *curved = plain + K, *biased = curved + K;
        double dot = 0;
        for (std::int64_t k = 0; k < K; ++k) {
          scratch_[k] -= weight * (0.5 * plain[k] + constant * curved[k] + biased[k]);
          dot += curved[k] * own_.mean[k];
        }
        const double* scalars = ex.users.scalars + 3 * b;
        bias[0] += weight * scalars[1];
        bias[1] -= weight * (0.5 * scalars[0] + dot + pass_.constants.offset * scalars[1] + scalars[2]);
      }
      second = second_.data();
    }
    std::memset(node, 0, static_cast<std::size_t>(shape_.size()) * sizeof(float));
    const double rho = pass_.constants.likelihood_weight,
                 off = pass_.own_is_user ? 0.5 * rho : rho;  // the items' sums are doubled there
    for (std::int64_t i = low; i < high; ++i) {
      const double* from = second + triangle(i);
      float* to = node + (i - low) * KP;
      for (std::int64_t j = low; j < i; ++j) to[j - low] = static_cast<float>(off * from[j]);
      to[i - low] = static_cast<float>(rho * from[i]);
      double pull = rho * scratch_[i];  // less what the coordinates outside the block take
      for (std::int64_t j = 0; j < K; ++j)
        if (j < low || j >= high) pull -= off * second[j < i ? triangle(i) + j : triangle(j) + i] * own_.stepped[j];
      node[shape_.second() + i - low] = static_cast<float>(pull);
    }
    node[shape_.second() + KP] = static_cast<float>(pass_.constants.likelihood_weight * bias[0]);
    node[shape_.second() + KP + 1] = static_cast<float>(pass_.constants.likelihood_weight * bias[1]);
  }

  const Pass& pass_;
  Tape* tape_;
  Shape shape_;
  Own own_;
  Panel panel_;
  Tree own_tree_;
  Tree* tree_ = nullptr;  // of the row that is being summed
  UserGroups groups_;
  Buffer<double> second_, scratch_;
  const std::int32_t *liked_end_ = nullptr, *unliked_end_ = nullptr;
  std::int64_t row_ = 0;
  int liked_ = 0;          // of the panel's edges
  bool far_ = false;       // whether the other side is larger than the second cache
  bool weighted_ = false;  // whether any edges have weights
  double bound_ = 0;
};

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

// A row depends on itself and the other side alone, so the blocks of coordinates after the first read what the ones before
// wrote. xi is that of the rows before the first: p of an edge is one for all of them, and its pull is brought forward.
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

// Whether other[low, high) is within one leaf of the tree.
static bool in_one_leaf(const Pass& pass, std::int64_t low, std::int64_t high) {
  if (!pass.splits || low >= high || high > pass.other.count) return false;
  return high <= pass.splits[first_not_below(pass.splits, 0, pass.leaves + 1, low + 1)];
}

static void sum_rows_of(const Pass& pass, const std::int32_t* which, std::int64_t count, std::int64_t low,
                        std::int64_t high, bool with_groups, SumsOut& out) {
  RowSummer summer(pass);
  const Shape shape(pass);
  if (summer.far() && !with_groups && in_one_leaf(pass, low, high)) {
    summer.sum_together(which, count, low, high, out);
    out.bound = pass.constants.likelihood_weight * summer.bound();
    return;
  }
  float* spare = new_node(shape);
  for (std::int64_t r = 0; r < count; ++r) {
    float* node = summer.sum(which[r], low, high, with_groups, spare);
    pack(shape, node, r, out);
    if (node) spare = node;
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

static void edge_corrections(const Expected& ex, std::int64_t users, const std::int32_t* counts,
                             const std::int32_t* items, float* out) {
  for (std::int64_t m = 0; m < users; ++m)
    for (std::int32_t e = 0; e < counts[m]; ++e, ++items, out += 2) made_correction(ex, m, *items, out[0], out[1]);
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
