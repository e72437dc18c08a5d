// One dense matrix in doubles.
#pragma once
#include <cmath>

#include "isa.hpp"

namespace considerate::CONSIDERATE_ISA {

// to -= sum of weights[r] from[r], four rows at a time: one pass over `to` for all four.
static inline void subtract_rows(std::int64_t count, const double* weights, std::int64_t weight_stride,
                                 const double* from, std::int64_t stride, std::int64_t width, double* to) {
  std::int64_t r = 0;
  for (; r + 4 <= count; r += 4) {
    const double a = weights[r * weight_stride], b = weights[(r + 1) * weight_stride],
                 c = weights[(r + 2) * weight_stride], d = weights[(r + 3) * weight_stride];
    const double *fa = from + r * stride, *fb = fa + stride, *fc = fb + stride, *fd = fc + stride;
    for (std::int64_t j = 0; j < width; ++j) to[j] -= (a * fa[j] + b * fb[j]) + (c * fc[j] + d * fd[j]);
  }
  for (; r < count; ++r) {
    const double a = weights[r * weight_stride], *fa = from + r * stride;
    for (std::int64_t j = 0; j < width; ++j) to[j] -= a * fa[j];
  }
}

// Compute L^-1, a lower triangle, from the upper triangle of a symmetric positive definite matrix L L', which becomes
// L'. Returns the number of rows that were factorised: all of them, unless the matrix is not positive definite.
static std::int64_t inverse_factor(std::int64_t n, double* upper, double* inverse) {
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = upper + i * n;
    subtract_rows(i, upper + i, n, upper + i, n, n - i, row + i);
    if (!(row[i] > 0)) return i;
    const double scale = 1.0 / std::sqrt(row[i]);
    for (std::int64_t j = i; j < n; ++j) row[j] *= scale;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double *row = inverse + i * n, scale = 1.0 / upper[i * n + i];
    for (std::int64_t j = 0; j < n; ++j) row[j] = 0.0;
    subtract_rows(i, upper + i, n, inverse, n, i, row);
    for (std::int64_t j = 0; j < i; ++j) row[j] *= scale;
    row[i] = scale;
  }
  return n;
}

}  // namespace considerate::CONSIDERATE_ISA
