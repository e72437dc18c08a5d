// How likely a user is to consider an item: inclusion probabilities of draws by the user's own weights.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "walk.hpp"

namespace considerate {

// F(T), the sum over some weights of 1 - exp(-T w), and its slope, for T up to 2 T0.
//
// Where T0 w is small the sum is a power series, whose moments are added once; the few weights above are kept. Some
// weights at a time are added in float32, and these sums in float64.
class InclusionSum {
 public:
  static constexpr std::size_t kWeights = 64;  // added at a time; there are a multiple of them

  void split(const std::vector<float>& weights, double start) {
    start_ = start;
    heavy_.clear();
    std::fill(moments_, moments_ + kTerms, 0.0);
    for (std::size_t n = 0; n < weights.size(); n += kWeights) add(weights.data() + n, static_cast<float>(start));
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
  using Four = float __attribute__((vector_size(16)));
  using Mask = std::int32_t __attribute__((vector_size(16)));

  void add(const float* weights, float start) {
    Four sums[kTerms] = {};
    for (std::size_t n = 0; n < kWeights; n += 4) {
      Four x;
      std::memcpy(&x, weights + n, sizeof x);
      x *= start;
      const Mask large = x > kSmall;
      if ((large[0] | large[1] | large[2] | large[3]) != 0)
        for (int lane = 0; lane < 4; ++lane)
          if (large[lane] != 0) {
            heavy_.push_back(static_cast<double>(weights[n + static_cast<std::size_t>(lane)]));
            x[lane] = 0.0f;
          }
      const Four factor = reinterpret_cast<Four>(reinterpret_cast<Mask>(x) & (x > kTiny));
      Four power = x;
      for (int k = 0; k < kTerms; ++k, power *= factor) sums[k] += power;
    }
    for (int k = 0; k < kTerms; ++k)
      for (int lane = 0; lane < 4; ++lane) moments_[k] += static_cast<double>(sums[k][lane]);
  }

  static constexpr int kTerms = 6;
  static constexpr float kSmall = 0.2f;  // up to T w = 0.4 a term left out is below 1e-6 of the sum
  static constexpr float kTiny = 1e-6f;  // below it the first term is all: the sixth would be no normal number
  double start_ = 0.0, moments_[kTerms] = {};
  std::vector<double> heavy_;
};

// 1 - exp(-T w_n), where T is such that those of the items not liked add up to a count.
class OwnInclusion {
 public:
  OwnInclusion(const WalkTable& table, const double* pi, std::int64_t items)
      : table_(table), p_(padded(static_cast<std::size_t>(items))), weights_(p_.size()) {
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
  static std::size_t padded(std::size_t items) {
    return (items + InclusionSum::kWeights - 1) / InclusionSum::kWeights * InclusionSum::kWeights;
  }

  // w of the items that are not liked.
  void weigh(const std::int32_t* liked, std::int64_t degree) {
    const Lists& rows = table_.rows;
    std::fill(weights_.begin(), weights_.end(), 0.0f);
    float* sums = weights_.data();
    double cut = 0.0;
    for (std::int64_t e = 0; e < degree; ++e) {
      cut += static_cast<double>(table_.rest[liked[e]]);
      const std::int64_t first = rows.starts[liked[e]], last = rows.starts[liked[e] + 1];
      const std::int64_t ahead = e + 1 < degree ? rows.starts[liked[e + 1]] - first : 0;  // the row that comes next
      for (std::int64_t i = first; i < last; i += kLine) {
        __builtin_prefetch(rows.indices + i + ahead);
        __builtin_prefetch(table_.shares + i + ahead);
        const std::int64_t stop = std::min(i + kLine, last);
        for (std::int64_t at = i; at < stop; ++at) sums[rows.indices[at]] += table_.shares[at];
      }
    }
    const double each = (1.0 - table_.mix) / static_cast<double>(degree);
    const auto per_like = static_cast<float>(each), background = static_cast<float>(table_.mix + each * cut);
    for (std::size_t n = 0; n < weights_.size(); ++n) weights_[n] = background * p_[n] + per_like * weights_[n];
    for (std::int64_t e = 0; e < degree; ++e) weights_[static_cast<std::size_t>(liked[e])] = 0.0f;
  }

  static constexpr std::int64_t kLine = 16;  // entries of a cache line
  const WalkTable& table_;
  std::vector<float> p_, weights_;  // of popularity; of the user, 0 where liked
  double support_ = 0.0;            // items that popularity reaches
  InclusionSum sum_;
  double temperature_ = 0.0;
};

}  // namespace considerate
