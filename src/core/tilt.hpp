// Draws that lean away from the items that a user would like, or towards them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels.hpp"

namespace considerate {

// Accepts a draw of item n for user m with probability exp(t B-), or exp(-t B+) if t < 0. B- is the expected logistic
// bound of log sigma(-a_mn) (eq. 11) at its best xi: log sigma(xi) - (E[a] + xi) / 2, xi^2 = E[a^2] (eq. 16), never
// above 0; B+, of log sigma(a_mn), has -E[a] in place of E[a].
struct Tilt {
  double strength = 0;  // t
  Side users, items;
  Constants constants;  // the offsets of a
  decltype(KernelTable::pair_moments) moments = nullptr;

  double log_chance(std::int64_t user_row, std::int32_t item) const {
    float mean, variance;
    moments(users, items, 1, &user_row, &item, &mean, &variance);
    const double a = static_cast<double>(mean) + static_cast<double>(constants.offset + constants.extra(user_row));
    const double xi = std::sqrt(a * a + static_cast<double>(variance));
    return -std::abs(strength) * (std::log1p(std::exp(-xi)) + 0.5 * (xi + (strength < 0 ? -a : a)));
  }

  double chance(std::int64_t user_row, std::int32_t item) const { return std::exp(log_chance(user_row, item)); }

  // Multiply the weights of all items by their chance, up to a common factor. A positive weight stays positive.
  void lean(std::int64_t user_row, double* weights, std::int64_t items_count) const {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t n = 0; n < items_count; ++n)
      if (weights[n] > 0) largest = std::max(largest, log_chance(user_row, static_cast<std::int32_t>(n)));
    for (std::int64_t n = 0; n < items_count; ++n)
      if (weights[n] > 0)
        weights[n] *= std::max(1e-150, std::exp(log_chance(user_row, static_cast<std::int32_t>(n)) - largest));
  }
};

}  // namespace considerate
