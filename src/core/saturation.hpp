// T_m of draws without replacement: the inclusion probabilities 1 - exp(-T_m pi_n) of the items not liked add up to a
// count.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace considerate {

// F(T), the sum over all items of 1 - exp(-T pi_n), and dF/dT: cubic Hermite in log T, linear in T below the grid.
struct SaturationTable {
  const double* table;  // [grid, 2] F and dF / dlog T
  std::int64_t grid;
  double start, step;

  void at(double temperature, double& value, double& slope) const {
    const double x = (std::log(temperature) - start) / step;
    if (x < 0) {
      slope = table[0] / std::exp(start);
      value = slope * temperature;
      return;
    }
    const std::int64_t i = std::min(static_cast<std::int64_t>(x), grid - 2);
    const double t = std::min(x - static_cast<double>(i), 1.0), t2 = t * t, t3 = t2 * t;
    const double f0 = table[2 * i], g0 = table[2 * i + 1] * step, f1 = table[2 * i + 2], g1 = table[2 * i + 3] * step;
    value = (2 * t3 - 3 * t2 + 1) * f0 + (t3 - 2 * t2 + t) * g0 + (3 * t2 - 2 * t3) * f1 + (t3 - t2) * g1;
    slope = (6 * t2 - 6 * t) * (f0 - f1) + (3 * t2 - 4 * t + 1) * g0 + (3 * t2 - 2 * t) * g1;
    slope /= step * temperature;
  }
};

// T of one user by Newton's method, which for a concave sum rises to the root from below. `total` is the sum of pi, and
// `support` how many of it are positive.
inline double solve_temperature(const SaturationTable& table, const double* weights, double total, std::int64_t support,
                                const std::int32_t* liked, std::int64_t degree, double wanted) {
  constexpr double least = 1e-300;
  const double most = std::exp(table.start + static_cast<double>(table.grid - 1) * table.step);
  double available = static_cast<double>(support), mass = total;
  for (std::int64_t e = 0; e < degree; ++e) {
    available -= weights[liked[e]] > 0;
    mass -= weights[liked[e]];
  }
  const double target = std::min(wanted, available);
  if (target <= 0) return least;
  if (target >= available * (1 - 1e-9)) return most;
  double temperature = std::clamp(target / std::max(mass, least), least, most);
  for (int round = 0; round < 1000; ++round) {  // a few; from far above T is halved in each
    double value, slope;
    table.at(temperature, value, slope);
    for (std::int64_t e = 0; e < degree; ++e) {
      const double weight = weights[liked[e]], decay = std::exp(-temperature * weight);
      value -= 1.0 - decay;
      slope -= weight * decay;
    }
    const double gap = target - value;
    if (std::abs(gap) <= 1e-9 * target) break;
    temperature = std::clamp(temperature + std::max(gap / std::max(slope, least), -0.5 * temperature), least, most);
  }
  return temperature;
}

}  // namespace considerate
