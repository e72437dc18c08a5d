// The probability that a user considers an item: inclusion in draws by the user's own weights.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "saturation.hpp"
#include "walk.hpp"

namespace considerate {

// F(T), the sum over some weights of 1 - exp(-T w), and its slope, for T up to 2 T0.
//
// Weights with small T0 w are summed as a power series, from moments that are added once; the few larger weights are
// kept. Some weights at a time are added in float32, and these sums in float64.
class InclusionSum {
 public:
  static constexpr std::size_t kWeights = 64;  // added at a time

  // The weights are padded with zeros to a multiple of kWeights.
  void split(std::vector<float>& weights, double start) {
    weights.resize((weights.size() + kWeights - 1) / kWeights * kWeights);
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

// pi with its sum, and F(T) of all items, tabulated.
struct Popularity {
  const double* pi;
  double total;
  SaturationTable saturation;

  double support() const { return std::round(saturation.table[2 * (saturation.grid - 1)]); }  // items that pi reaches
};

// 1 - exp(-T w_n), with T such that the items not liked add up to a count.
//
// w_n is background * p_n, and more if a like leads to n. So the sum is the tabulated one of popularity, corrected for
// the items that are liked or that likes lead to: a user costs no more than the rows of their likes.
class OwnInclusion {
 public:
  OwnInclusion(const WalkTable& table, const Popularity& popularity, std::int64_t items)
      : table_(table), popularity_(popularity), sums_(static_cast<std::size_t>(items)) {}

  // Solve for T of a user with at least one like, who draws `count` of the other items that are not closed, or all.
  void solve(const std::int32_t* liked, std::int64_t degree, double count, const std::int32_t* closed,
             std::int64_t closed_count) {
    weigh(liked, degree, closed, closed_count);
    temperature_ = HUGE_VAL;
    if (count >= others_) return;
    temperature_ = count;  // weights add up to at most 1, so T is more
    split(1.5 * count);
    for (int round = 0; round < 200; ++round) {  // Newton's method: a concave sum is met from below
      double value, slope;
      sum_at(temperature_, value, slope);
      const double gap = count - value;
      if (gap <= 1e-8 * count || slope <= 0.0) return;
      temperature_ += gap / slope;
      if (!own_sum_.covers(temperature_)) split(temperature_);
    }
  }

  double temperature() const { return temperature_; }  // infinite if all items are drawn

  double of(std::int32_t item) const {
    const double w = weight(item);
    return w > 0.0 ? -std::expm1(-temperature_ * w) : 0.0;
  }

 private:
  static constexpr std::int64_t kLine = 16;  // entries of a cache line
  static constexpr float kLiked = -1.0f;

  double by_popularity(std::int32_t item) const { return background_ * popularity_.pi[item] / popularity_.total; }
  double weight(std::int32_t item) const {  // 0 if liked or closed
    const float sum = sums_[static_cast<std::size_t>(item)];
    return sum == kLiked ? 0.0 : by_popularity(item) + per_like_ * static_cast<double>(sum);
  }

  // Find the items that the likes lead to, and w of these and of the likes.
  void weigh(const std::int32_t* liked, std::int64_t degree, const std::int32_t* closed, std::int64_t closed_count) {
    const Lists& rows = table_.rows;
    for (const std::int32_t item : special_) sums_[static_cast<std::size_t>(item)] = 0.0f;
    special_.assign(liked, liked + degree);
    double cut = 0.0, closed_support = 0.0;
    for (const std::int32_t item : special_) {
      sums_[static_cast<std::size_t>(item)] = kLiked;
      cut += static_cast<double>(table_.rest[item]);
      closed_support += popularity_.pi[item] > 0.0;
    }
    for (std::int64_t e = 0; e < closed_count; ++e) {
      if (sums_[static_cast<std::size_t>(closed[e])] == kLiked) continue;
      sums_[static_cast<std::size_t>(closed[e])] = kLiked;
      special_.push_back(closed[e]);
      closed_support += popularity_.pi[closed[e]] > 0.0;
    }
    const auto closed_size = static_cast<double>(special_.size());
    for (std::int64_t e = 0; e < degree; ++e) {
      const std::int64_t first = rows.starts[liked[e]], last = rows.starts[liked[e] + 1];
      const std::int64_t ahead = e + 1 < degree ? rows.starts[liked[e + 1]] - first : 0;  // the row that comes next
      for (std::int64_t i = first; i < last; i += kLine) {
        __builtin_prefetch(rows.indices + i + ahead);
        __builtin_prefetch(table_.shares + i + ahead);
        const std::int64_t stop = std::min(i + kLine, last);
        for (std::int64_t at = i; at < stop; ++at) {
          float& sum = sums_[static_cast<std::size_t>(rows.indices[at])];
          if (sum == kLiked) continue;
          if (sum == 0.0f) special_.push_back(rows.indices[at]);
          sum += table_.shares[at];
        }
      }
    }
    per_like_ = (1.0 - table_.mix) / static_cast<double>(degree);
    background_ = table_.mix + per_like_ * cut;
    others_ =
        background_ > 0.0 ? popularity_.support() - closed_support : static_cast<double>(special_.size()) - closed_size;
  }

  void split(double start) {
    own_.clear();
    popular_.clear();
    for (const std::int32_t item : special_) {
      own_.push_back(static_cast<float>(weight(item)));
      popular_.push_back(static_cast<float>(by_popularity(item)));
    }
    own_sum_.split(own_, start);
    popular_sum_.split(popular_, start);
  }

  void sum_at(double temperature, double& value, double& slope) const {
    const double scale = background_ / popularity_.total;
    double own, own_slope, popular, popular_slope;
    popularity_.saturation.at(temperature * scale, value, slope);
    own_sum_.at(temperature, own, own_slope);
    popular_sum_.at(temperature, popular, popular_slope);
    value += own - popular;
    slope = slope * scale + own_slope - popular_slope;
  }

  const WalkTable& table_;
  const Popularity& popularity_;
  std::vector<float> sums_;            // [items] sums of W over the likes; kLiked if liked or closed
  std::vector<std::int32_t> special_;  // the likes, the closed items, and the items that the likes lead to
  std::vector<float> own_, popular_;   // w of these items, and w by popularity alone
  double background_ = 0.0, per_like_ = 0.0, others_ = 0.0, temperature_ = 0.0;
  InclusionSum own_sum_, popular_sum_;
};

}  // namespace considerate
