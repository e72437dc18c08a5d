// The sums of rows over their edges (eq. 15, 16, 19), with the closed form's part if H is not drawn.
#pragma once
#include "gather.hpp"
#include "liked.hpp"
#include "logistic.hpp"

namespace considerate::CONSIDERATE_ISA {

// Sums rows, one after the other. The terms of a row come from
//   its edges, liked and unliked, leaf by leaf of the tree (RowEdges, RowPanel),
//   corrections of these edges, if there is a closed form (Corrections),
//   the groups of the closed form (UserGroups, ItemGroups),
// and for blocks of coordinates after the first from what the first has left on a tape.
class RowSummer {
 public:
  explicit RowSummer(const Pass& pass, Tape* tape = nullptr)
      : pass_(pass),
        tape_(tape),
        edges_(pass),
        at_(pass),
        user_groups_(pass, tape),
        item_groups_(pass),
        corrections_(pass, user_groups_),
        z_(pass.expected ? pass.own.factors : 0),
        weighted_(pass.liked.weights || pass.unliked.weights) {}

  std::int64_t edges_of(std::int64_t row) const { return edges_.count(row); }
  bool far() const { return at_.far; }
  double bound() const { return bound_; }

  // The sums of a row over its edges to other[low, high), and with the groups' part if asked for. The caller gets them
  // in exchange for another buffer; null if there is nothing to add.
  float* sum(std::int64_t row, std::int64_t low, std::int64_t high, bool with_groups, float* in_exchange) {
    if (pass_.makes_shares() && !user_groups_.holds(row)) prepare(row, 1);
    at_.begin(row);
    tree_ = &own_tree_;
    add_edges(low, high);
    if (pass_.expected && with_groups) add_groups();
    return own_tree_.take(at_.shape, in_exchange);
  }

  // Add a row's part of the bound, without sums.
  void add_bound(std::int64_t row) {
    if (pass_.expected && !user_groups_.holds(row)) prepare(row, 1);
    at_.begin(row);
    tree_ = nullptr;
    add_edges(0, INT32_MAX);
  }

  // Compute alpha, l and the closed form's sums of some users, at most UserGroups::kTogether.
  void prepare(std::int64_t first, int count) {
    user_groups_.begin(first, count);
    if (user_groups_.again()) return user_groups_.repeat();
    const double* given = pass_.expected->liked;
    const std::int64_t size = pass_.expected->shares.groups;
    for (std::int64_t row = first; row < first + count; ++row) {
      if (given) {
        std::memcpy(user_groups_.liked(row), given + row * size * kLikedSums,
                    static_cast<std::size_t>(size) * sizeof(LikedSums));
      } else {
        add_liked(row, user_groups_.liked(row));
      }
    }
    bound_ += user_groups_.finish();
  }

  // Add the part of the groups' sums that a user's liked items make.
  void add_liked(std::int64_t row, LikedSums* sums) {
    at_.begin(row);
    add_liked_sums(pass_, at_, edges_.all(row), sums);
  }

  // Sum some rows over their edges to other[low, high), which is within one leaf, and call visit(r, tree), which takes
  // the sums of row which[r] from the tree.
  template <class Visit>
  void sum_together(const std::int32_t* which, std::int64_t count, std::int64_t low, std::int64_t high, Visit visit) {
    Batch batch;
    tree_ = &own_tree_;
    const auto sum_one = [&](std::int64_t r, const EdgeRun& edges) {
      at_.begin(which[r]);
      add_leaves(0, edges);
      visit(r, own_tree_);
    };
    for (std::int64_t r = 0; r < count; ++r) {
      const EdgeRun edges = edges_.between(which[r], low, high);
      if (!batch.fits(edges)) batch.flush(pass_, sum_one);
      if (batch.fits(edges)) {
        batch.add(r, edges);
      } else {  // so long that it fetches its own edges ahead
        sum_one(r, edges);
      }
    }
    batch.flush(pass_, sum_one);
  }

 private:
  static constexpr std::uint64_t kGroupsPlace = ~std::uint64_t{0};

  // Add the edges of the row, block by block.
  void add_edges(std::int64_t low, std::int64_t high) {
    edges_.each_block(at_.row, low, high,
                      [this](std::int64_t block, const EdgeRun& edges) { add_leaves(block, edges); });
  }

  // Add the edges to one block, a chunk to a leaf.
  void add_leaves(std::int64_t block, const EdgeRun& edges) {
    for (std::int64_t start = 0; start < edges.count; start += kChunk) {
      const std::uint64_t place =
          (static_cast<std::uint64_t>(block) << 32) | static_cast<std::uint64_t>(start / kChunk);
      float* node = tree_ ? tree_->leaf(at_.shape, place) : nullptr;
      const std::int64_t stop = least(edges.count, start + kChunk);
      with_vectors(at_.shape, [&](auto vectors) { add_leaf<vectors.count>(node, edges, start, stop); });
    }
  }

  // Add edges [start, stop) to a node, a panel at a time.
  template <int V>
  void add_leaf(float* node, const EdgeRun& edges, std::int64_t start, std::int64_t stop) {
    const std::int64_t size = at_.shape.panel();
    for (std::int64_t e = start; e < stop; e += size) {
      const int count = static_cast<int>(least(size, stop - e));
      float bias_sums[2] = {0, 0};
      weigh<V>(edges, e, count, bias_sums);
      if (!node) continue;  // the bound is all that is asked for
      float* bias = node + at_.shape.second() + at_.shape.KP;
      if (e == start) {
        at_.panel.add_to<V, true>(node, count);
        bias[0] = bias[1] = 0.0f;
      } else {
        at_.panel.add_to<V, false>(node, count);
      }
      bias[0] += bias_sums[0];
      bias[1] += bias_sums[1];
    }
  }

  // The rows, p and pull of a panel's edges: computed from the rows before any step, or read from the tape where the
  // first block of coordinates has left them. Then they are brought forward to the block that is summed.
  template <int V>
  void weigh(const EdgeRun& edges, std::int64_t start, int count, float* bias_sums) {
    Panel& panel = at_.panel;
    const Shape& shape = at_.shape;
    const bool again = tape_ && shape.first > 0;
    at_.gather_rows(edges, start, count);
    if (!again) {
      at_.gather_biases(edges, start, count);
      if (pass_.expected) at_.gather_corrections(edges, start, count, corrections_);
      if (weighted_) at_.gather_weights(edges, start, count);
      panel.moments<V>(at_.own, count);
      set_coefficients(count, bias_sums);
    }
    if (V > 0 || shape.whole()) return;
    const bool slope = pass_.constants.slope;
    const std::size_t bytes = static_cast<std::size_t>(padded(count)) * sizeof(float);
    if (again) {
      tape_->read(panel.precision, bytes);
      void* pull = tape_->next(bytes);
      std::memcpy(panel.pull, pull, bytes);
      panel.turn_to(shape.first, at_.own, count, slope);
      std::memcpy(pull, panel.pull, bytes);
      return;
    }
    for (std::int64_t first = shape.width; first <= shape.first; first += shape.width)
      panel.turn_to(first, at_.own, count, slope);
    if (!tape_) return;
    tape_->write(panel.precision, bytes);
    tape_->write(panel.pull, bytes);
  }

  // Set p and y - p b of each edge: P gets p v v', z gets (y - p b) v, and the row's own bias p and y - p (a - b_own).
  // b is the biases plus the part of the logit that comes from coordinates outside the block, and
  //   p = rho (kappa 2 lambda - w l),    y = rho (kappa (g - 1/2) + w / 2)
  void set_coefficients(int edges, float* bias_sums) {
    Panel& panel = at_.panel;
    const Own& own = at_.own;
    const v8 own_bias = splat(own.bias), shift = splat(own.bias + own.offset),
             rho = splat(pass_.constants.likelihood_weight);
    const v8 own_variance = splat(own.bias_variance);
    v8 precision_sum = splat(0.0f), pull_sum = splat(0.0f), heights = splat(0.0f);
    for (int e = 0; e < edges; e += 8) {
      const v8 bias = load8(panel.bias + e) + shift;
      const v8 half = select8(i8{0, 1, 2, 3, 4, 5, 6, 7} < (at_.liked - e), splat(0.5f), splat(-0.5f));
      const v8 logit = load8(panel.mean + e) + bias;
      const LogisticBound8 bound(logit * logit + load8(panel.variance + e) + load8(panel.bias_variance + e) +
                                 own_variance);
      v8 p = bound.curvature(), y = half;
      if (weighted_) {
        p *= load8(panel.kappa + e);
        y *= load8(panel.kappa + e);
      }
      if (pass_.expected) {
        p -= load8(panel.wl + e);
        y += splat(0.5f) * load8(panel.w + e);
      }
      p *= rho;
      y *= rho;
      v8 height = pass_.own_is_user ? bound.height() + half * logit : splat(0.0f);
      if (weighted_) height *= load8(panel.kappa + e);
      if (e + 8 > edges) {
        const i8 live = i8{0, 1, 2, 3, 4, 5, 6, 7} < (edges - e);
        p = select8(live, p, splat(0.0f));
        y = select8(live, y, splat(0.0f));
        height = select8(live, height, splat(0.0f));
      }
      store8(panel.precision + e, p);
      store8(panel.pull + e, pass_.constants.slope ? p : y - p * (bias + load8(panel.rest_of_mean + e)));
      precision_sum += p;
      pull_sum += y - p * (logit - own_bias);
      heights += height;
    }
    bias_sums[0] = static_cast<float>(sum_lanes(precision_sum));
    bias_sums[1] = static_cast<float>(sum_lanes(pull_sum));
    if (pass_.own_is_user) bound_ += sum_lanes(heights);
  }

  // Add the groups' part. It includes liked pairs: their edges take that back by corrections.
  void add_groups() {
    const Shape& shape = at_.shape;
    const std::int64_t K = pass_.own.factors, KP = shape.KP, low = shape.first, high = low + shape.K;
    float* node = tree_->leaf(shape, kGroupsPlace);
    double bias[2] = {0, 0};
    const double *second, *first;
    if (pass_.own_is_user) {
      second = user_groups_.second(at_.row);
      user_groups_.first(at_.row, z_.data(), bias);
      first = z_.data();
    } else {
      item_groups_.sum(at_.row, at_.own);
      second = item_groups_.second();
      first = item_groups_.first();
      for (int b = 0; b < 2; ++b) bias[b] = item_groups_.bias[b];
    }
    std::memset(node, 0, static_cast<std::size_t>(shape.size()) * sizeof(float));
    const double rho = pass_.constants.likelihood_weight,
                 off = pass_.own_is_user ? 0.5 * rho : rho;  // off the diagonal the items' sums are doubled
    for (std::int64_t i = low; i < high; ++i) {
      const double* from = second + triangle(i);
      float* to = node + (i - low) * KP;
      for (std::int64_t j = low; j < i; ++j) to[j - low] = static_cast<float>(off * from[j]);
      to[i - low] = static_cast<float>(rho * from[i]);
      double pull = rho * first[i];  // less the part of the coordinates outside the block
      for (std::int64_t j = 0; j < K; ++j)
        if (j < low || j >= high) pull -= off * second[j < i ? triangle(i) + j : triangle(j) + i] * at_.own.stepped[j];
      node[shape.second() + i - low] = static_cast<float>(pull);
    }
    node[shape.second() + KP] = static_cast<float>(pass_.constants.likelihood_weight * bias[0]);
    node[shape.second() + KP + 1] = static_cast<float>(pass_.constants.likelihood_weight * bias[1]);
  }

  const Pass& pass_;
  Tape* tape_;
  RowEdges edges_;
  RowPanel at_;
  Tree own_tree_;
  Tree* tree_ = nullptr;  // of the row that is being summed; null: the bound alone
  UserGroups user_groups_;
  ItemGroups item_groups_;
  Corrections corrections_;
  Buffer<double> z_;
  bool weighted_;  // some edges have weights
  double bound_ = 0;
};

}  // namespace considerate::CONSIDERATE_ISA
