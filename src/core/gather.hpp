// The other ends of a panel's edges, gathered into the panel.
#pragma once
#include "edges.hpp"
#include "groups.hpp"

namespace considerate::CONSIDERATE_ISA {

// w_mn and w_mn l_mb of an edge, from the alpha, floor and l of an earlier pass over the users.
static inline void correction_by_shares(const Expected& expected, std::int64_t user, std::int64_t item, float& w,
                                        float& wl) {
  const Shares& shares = expected.shares;
  const std::int64_t at = user * shares.groups + expected.groups.group_of_item[item];
  const double beta = expected.groups.beta[item];
  const double both =
      beta > 0 ? static_cast<double>(shares.alpha[at]) * beta + static_cast<double>(shares.floor[at]) : 0.0;
  w = static_cast<float>(both);
  wl = static_cast<float>(both * static_cast<double>(shares.curvature[at]));
}

// Corrections of edges: w and w l of their pairs, which the sums over groups contain and the edges take back.
class Corrections {
 public:
  Corrections(const Pass& pass, const UserGroups& groups) : pass_(pass), groups_(groups) {}

  // The corrections of a row's edges with these indices, into panel places [first, last).
  void read(std::int64_t row, const std::int32_t* indices, bool liked, int first, int last, Panel& panel) const {
    const Expected& expected = *pass_.expected;
    if (expected.corrections) {
      const std::int64_t edge =
          liked ? indices - pass_.liked.indices : pass_.liked.count() + (indices - pass_.unliked.indices);
      const float* given = expected.corrections + 2 * edge;
      for (int e = first; e < last; ++e, given += 2) {
        panel.w[e] = given[0];
        panel.wl[e] = given[1];
      }
      return;
    }
    for (int e = first; e < last; ++e) read_one(row, indices[e - first], panel.w[e], panel.wl[e]);
  }

 private:
  void read_one(std::int64_t row, std::int32_t index, float& w, float& wl) const {
    const Expected& expected = *pass_.expected;
    const std::int64_t user = pass_.own_is_user ? row : index, item = pass_.own_is_user ? index : row;
    if (pass_.own_is_user && !expected.shares.given) {
      const std::int64_t group = expected.groups.group_of_item[item];
      const double beta = expected.groups.beta[item];
      w = static_cast<float>(groups_.w(row, group, beta));
      wl = static_cast<float>(groups_.wl(row, group, beta));
    } else {
      correction_by_shares(expected, user, item, w, wl);
    }
  }

  const Pass& pass_;
  const UserGroups& groups_;
};

// A row and a panel of its edges.
class RowPanel {
 public:
  explicit RowPanel(const Pass& pass) : shape(pass), own(shape), panel(shape), pass_(pass) {
    panel.far = far = pass.other.count * 2 * shape.row * static_cast<std::int64_t>(sizeof(float)) > kNear;
  }

  void begin(std::int64_t number) {
    row = number;
    own.load(shape, pass_, number);
  }

  // The rows at the other ends of `edges` edges from `start` on. The last eight are filled up with the last edge.
  void gather_rows(const EdgeRun& run, std::int64_t start, int edges) {
    liked = static_cast<int>(start >= run.liked_count ? 0 : least(edges, run.liked_count - start));
    each_list(run, start, edges, [&](const std::int32_t* indices, bool is_liked, int first, int last) {
      const float* base = pass_.other.rows;
      const std::int64_t stride = 2 * shape.row;
      for (int e = first; e < last; ++e) panel.rows[e] = base + indices[e - first] * stride;
      if (!far) return;
      const std::int32_t* end = is_liked ? run.liked_end : run.unliked_end;
      for (int e = first; e < last; ++e, ++indices)
        panel.soon[e] = base + (indices + kAhead < end ? indices[kAhead] : *indices) * stride;
    });
    for (int e = edges; e % 8 != 0; ++e) {
      panel.rows[e] = panel.rows[edges - 1];
      panel.bias[e] = panel.bias_variance[e] = panel.w[e] = panel.wl[e] = 0.0f;
    }
  }

  // Their biases, with the users' own offsets.
  void gather_biases(const EdgeRun& run, std::int64_t start, int edges) {
    const Side& other = pass_.other;
    const float* offset = pass_.own_is_user ? nullptr : pass_.constants.user_offset;
    if (!other.bias_mean && !offset) return;
    each_list(run, start, edges, [&](const std::int32_t* indices, bool, int first, int last) {
      if (other.bias_mean)
        for (int e = first; e < last; ++e) {
          panel.bias[e] = other.bias_mean[indices[e - first]];
          panel.bias_variance[e] = other.bias_variance[indices[e - first]];
        }
      if (offset)
        for (int e = first; e < last; ++e)
          panel.bias[e] = (other.bias_mean ? panel.bias[e] : 0.0f) + offset[indices[e - first]];
    });
  }

  // The weights of the edges, 1 of those that have none.
  void gather_weights(const EdgeRun& run, std::int64_t start, int edges) {
    const float* unliked_weights = run.unliked_weights ? run.unliked_weights + start - run.liked_count : nullptr;
    for (int e = 0; e < liked; ++e) panel.kappa[e] = run.liked_weights ? run.liked_weights[start + e] : 1.0f;
    for (int e = liked; e < edges; ++e) panel.kappa[e] = unliked_weights ? unliked_weights[e] : 1.0f;
  }

  void gather_corrections(const EdgeRun& run, std::int64_t start, int edges, const Corrections& corrections) {
    each_list(run, start, edges, [&](const std::int32_t* indices, bool is_liked, int first, int last) {
      corrections.read(row, indices, is_liked, first, last, panel);
    });
  }

  Shape shape;
  Own own;
  Panel panel;
  std::int64_t row = 0;
  int liked = 0;     // number of liked edges in the panel
  bool far = false;  // the other side is so large that its rows are fetched ahead of their use

 private:
  static constexpr std::int64_t kAhead = 40;        // edges between a fetch and its use
  static constexpr std::int64_t kNear = 768 << 10;  // bytes of the other side that need no fetching

  // Call visit(indices, is_liked, first, last) for the panel's liked edges, and for its unliked ones.
  template <class Visit>
  void each_list(const EdgeRun& run, std::int64_t start, int edges, Visit visit) const {
    visit(run.liked + start, true, 0, liked);
    if (liked < edges) visit(run.unliked + (start + liked - run.liked_count), false, liked, edges);
  }

  const Pass& pass_;
};

}  // namespace considerate::CONSIDERATE_ISA
