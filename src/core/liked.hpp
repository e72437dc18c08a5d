// The part of the groups' sums that a user's liked items make.
#pragma once
#include "gather.hpp"

namespace considerate::CONSIDERATE_ISA {

// Calls visit with a Vectors<V>, where V is the number of vectors of eight in a row if there is a version for it, else
// 0.
template <int V>
struct Vectors {
  static constexpr int count = V;
};
template <class Visit>
static inline void with_vectors(const Shape& shape, Visit visit) {
  switch (shape.whole() ? shape.KP / 8 : 0) {
    case 1:
      return visit(Vectors<1>());
    case 2:
      return visit(Vectors<2>());
    case 3:
      return visit(Vectors<3>());
    case 4:
      return visit(Vectors<4>());
    case 8:
      return visit(Vectors<8>());
    default:
      return visit(Vectors<0>());
  }
}

// Add to `sums` the mass, weights and moments of the liked items of a row, and of the items that have unliked edges of
// their own. The row is the panel's.
static void add_liked_sums(const Pass& pass, RowPanel& at, const EdgeRun& edges, LikedSums* sums) {
  const Groups& groups = pass.expected->groups;
  const double T = pass.expected->shares.temperature[at.row];
  const v8 shift = splat(at.own.bias + at.own.offset), own_variance = splat(at.own.bias_variance);
  const Panel& panel = at.panel;
  alignas(32) float beta[kPanel], mass[kPanel], logit[kPanel], square[kPanel];
  const int size = at.shape.panel();
  for (std::int64_t start = 0; start < edges.count; start += size) {
    const int count = static_cast<int>(least(size, edges.count - start));
    at.gather_rows(edges, start, count);
    at.gather_biases(edges, start, count);
    with_vectors(at.shape, [&](auto vectors) { at.panel.moments<vectors.count>(at.own, count); });
    for (int e = 0; e < count; ++e) beta[e] = static_cast<float>(T * groups.beta[edges[start + e]]);
    for (int e = count; e % 8 != 0; ++e) beta[e] = 0.0f;
    for (int e = 0; e < count; e += 8) {
      const v8 a = load8(panel.mean + e) + load8(panel.bias + e) + shift;
      store8(logit + e, a);
      store8(square + e, a * a + load8(panel.variance + e) + load8(panel.bias_variance + e) + own_variance);
      store8(mass + e, one_minus_exp(load8(beta + e)));
    }
    for (int e = 0; e < count; ++e) {
      const std::int32_t item = edges[start + e];
      const double weight = groups.beta[item];
      if (!(weight > 0)) continue;
      LikedSums& of = sums[groups.group_of_item[item]];
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

}  // namespace considerate::CONSIDERATE_ISA
