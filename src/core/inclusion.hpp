// How likely a user is to consider an item: inclusion probabilities of draws by the user's own weights.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "walk.hpp"

namespace considerate {

// F(T), the sum over some weights of 1 - exp(-T w), and its slope, for T up to 2 T0.
//
// Where T0 w is small the sum is a power series, whose moments are added once; the few weights above are kept.
class InclusionSum {
 public:
  void split(const std::vector<float>& weights, double start) {
    start_ = start;
    heavy_.clear();
    Pair sums[kTerms] = {};
    for (std::size_t n = 0; n + 1 < weights.size(); n += 2) {  // an even number
      Pair x = {start * static_cast<double>(weights[n]), start * static_cast<double>(weights[n + 1])};
      if (x[0] > kSmall || x[1] > kSmall)
        for (int lane = 0; lane < 2; ++lane)
          if (x[lane] > kSmall) {
            heavy_.push_back(x[lane] / start);
            x[lane] = 0.0;
          }
      Pair power = x;
      for (int k = 0; k < kTerms; ++k, power *= x) sums[k] += power;
    }
    for (int k = 0; k < kTerms; ++k) moments_[k] = sums[k][0] + sums[k][1];
  }

  bool covers(double temperature) const { return temperature <= 2.0 * start_; }

  void at(double temperature, double& value, double& slope) const {
    const double ratio = temperature / start_;
    double term = 1.0;  // (-1)^k ratio^k / k!
    value = slope = 0.0;
    for (int k = 0; k < kTerms; ++k) {
      slope += term * moments_[k] / start_;
      term *= ratio / static_cast<double>(k + 1);
      value += term * moments_[k];
      term = -term;
    }
    for (const double w : heavy_) {
      const double decay = std::exp(-temperature * w);
      value += 1.0 - decay;
      slope += w * decay;
    }
  }

 private:
  using Pair = double __attribute__((vector_size(16)));
  static constexpr int kTerms = 6;
  static constexpr double kSmall = 0.2;  // up to T w = 0.4 a term left out is below 1e-6 of the sum
  double start_ = 0.0, moments_[kTerms] = {};
  std::vector<double> heavy_;
};

// 1 - exp(-T w_n), where T is such that those of the items not liked add up to a count.
class OwnInclusion {
 public:
  OwnInclusion(const WalkTable& table, const double* pi, std::int64_t items)
      : table_(table), p_(static_cast<std::size_t>(items + items % 2)), weights_(p_.size()) {
    double total = 0.0;
    for (std::int64_t n = 0; n < items; ++n) {
      total += pi[n];
      support_ += pi[n] > 0.0;
    }
    for (std::int64_t n = 0; n < items; ++n) p_[static_cast<std::size_t>(n)] = static_cast<float>(pi[n] / total);
  }

  // For a user who likes at least one item, and draws `count` of the others, or all that there are.
  void solve(const std::int32_t* liked, std::int64_t degree, double count) {
    weigh(liked, degree);
    temperature_ = HUGE_VAL;
    if (count + static_cast<double>(degree) >= support_ || table_.mix == 0.0) {  // there may be too few
      const auto none = std::count(weights_.begin(), weights_.end(), 0.0f);
      if (count >= static_cast<double>(static_cast<std::int64_t>(weights_.size()) - none)) return;
    }
    temperature_ = count;  // weights add up to at most 1, so T is more
    sum_.split(weights_, 1.5 * count);
    for (int round = 0; round < 200; ++round) {  // Newton's method: a concave sum is met from below
      double value, slope;
      sum_.at(temperature_, value, slope);
      const double gap = count - value;
      if (gap <= 1e-8 * count || slope <= 0.0) return;
      temperature_ += gap / slope;
      if (!sum_.covers(temperature_)) sum_.split(weights_, temperature_);
    }
  }

  double of(std::int32_t item) const {
    const auto w = static_cast<double>(weights_[static_cast<std::size_t>(item)]);
    return w > 0.0 ? -std::expm1(-temperature_ * w) : 0.0;
  }

 private:
  // w of the items that are not liked.
  void weigh(const std::int32_t* liked, std::int64_t degree) {
    const Lists& rows = table_.rows;
    std::fill(weights_.begin(), weights_.end(), 0.0f);
    float* sums = weights_.data();
    double cut = 0.0;
    for (std::int64_t e = 0; e < degree; ++e) {
      cut += static_cast<double>(table_.rest[liked[e]]);
      const std::int64_t last = rows.starts[liked[e] + 1];
      for (std::int64_t i = rows.starts[liked[e]]; i < last; ++i) sums[rows.indices[i]] += table_.shares[i];
    }
    const double each = (1.0 - table_.mix) / static_cast<double>(degree);
    const auto per_like = static_cast<float>(each), background = static_cast<float>(table_.mix + each * cut);
    for (std::size_t n = 0; n < weights_.size(); ++n) weights_[n] = background * p_[n] + per_like * weights_[n];
    for (std::int64_t e = 0; e < degree; ++e) weights_[static_cast<std::size_t>(liked[e])] = 0.0f;
  }

  const WalkTable& table_;
  std::vector<float> p_, weights_;  // of popularity; of the user, 0 where liked
  double support_ = 0.0;            // items that popularity reaches
  InclusionSum sum_;
  double temperature_ = 0.0;
};

}  // namespace considerate
