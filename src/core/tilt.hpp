// Draws that lean away from what the user would like, or towards it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels.hpp"

namespace considerate {

// A draw of item n for user m stands with probability exp(t B-), or exp(-t B+) where t < 0. B- is the expected logistic
// bound of log sigma(-a_mn) (eq. 11) at its best xi: log sigma(xi) - (E[a] + xi) / 2, xi^2 = E[a^2] (eq. 16), never above
// 0; B+, of log sigma(a_mn), has -E[a] in place of E[a].
struct Tilt {
  double strength;  // t
  Pass posterior;   // own: the users, other: the items; a has the offset
  decltype(KernelTable::pair_moments) moments;

  double log_chance(std::int64_t user_row, std::int32_t item) const {
    float mean, variance;
    moments(posterior, 1, &user_row, &item, &mean, &variance);
    const double a = static_cast<double>(mean) + static_cast<double>(posterior.offset + posterior.extra(user_row));
    const double xi = std::sqrt(a * a + static_cast<double>(variance));
    return -std::abs(strength) * (std::log1p(std::exp(-xi)) + 0.5 * (xi + (strength < 0 ? -a : a)));
  }

  double chance(std::int64_t user_row, std::int32_t item) const { return std::exp(log_chance(user_row, item)); }

  // Weights of all items times the chance, up to a factor; what had any weight keeps some.
  void lean(std::int64_t user_row, double* weights, std::int64_t items) const {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t n = 0; n < items; ++n)
      if (weights[n] > 0) largest = std::max(largest, log_chance(user_row, static_cast<std::int32_t>(n)));
    for (std::int64_t n = 0; n < items; ++n)
      if (weights[n] > 0)
        weights[n] *= std::max(1e-150, std::exp(log_chance(user_row, static_cast<std::int32_t>(n)) - largest));
  }
};

}  // namespace considerate
