// Sums over a whole side for every group of items, which the closed form of the expectation over q(H) needs.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

// The users' sums for every group, over rows [first, last) of the new users with the alpha and l of the pass before.
static void group_sums(const Pass& pass, double* second, double* first, double* scalars) {
  const Expected& ex = *pass.expected;
  const Shape shape(pass);
  const std::int64_t K = pass.factors, T = triangle(K);
  Buffer<double> outer(T);
  for (std::int64_t user = pass.first; user < pass.last; ++user) {
    const float *mean = pass.own.rows + user * 2 * shape.row, *variance = mean + shape.row;
    const double bias = pass.own.bias_mean ? pass.own.bias_mean[user] : 0.0;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < K; ++i)
      for (std::int64_t j = 0; j <= i; ++j, ++at)
        outer[at] =
            static_cast<double>(mean[i]) * mean[j] + (i == j ? static_cast<double>(variance[i]) : 0.0);
    for (std::int64_t b = 0; b < ex.groups; ++b) {
      const double alpha = ex.alpha[user * ex.groups + b], al = ex.alpha_l[user * ex.groups + b];
      if (alpha == 0) continue;
      double* into = second + b * T;
      for (std::int64_t i = 0; i < T; ++i) into[i] += al * outer[i];
      double *plain = first + b * 3 * K, *curved = plain + K, *biased = curved + K;
      for (std::int64_t k = 0; k < K; ++k) {
        plain[k] += alpha * mean[k];
        curved[k] += al * mean[k];
        biased[k] += al * bias * mean[k];
      }
      scalars[3 * b] += alpha;
      scalars[3 * b + 1] += al;
      scalars[3 * b + 2] += al * bias;
    }
  }
}

// The items' sums for every group, weighted by beta; b~ = b_n + offset. Fields as in Expected.
static void item_group_sums(const Pass& pass, const double* beta, const std::int32_t* group_of_item, std::int64_t items,
                            double* second, double* first, double* first_bias, double* scalars, std::int64_t* sizes) {
  const Shape shape(pass);
  const std::int64_t K = pass.factors;
  for (std::int64_t item = 0; item < items; ++item) {
    const double weight = beta[item];
    if (!(weight > 0)) continue;
    const std::int64_t b = group_of_item[item];
    const float *mean = pass.own.rows + item * 2 * shape.row, *variance = mean + shape.row;
    const double bias = (pass.own.bias_mean ? pass.own.bias_mean[item] : 0.0) + static_cast<double>(pass.offset);
    double* into = second + b * triangle(K);
    for (std::int64_t i = 0; i < K; ++i, ++into) {
      const double twice = 2 * weight * mean[i];
      for (std::int64_t j = 0; j < i; ++j) *into++ += twice * mean[j];
      *into += weight * (static_cast<double>(mean[i]) * mean[i] + variance[i]);
    }
    for (std::int64_t k = 0; k < K; ++k) {
      first[b * K + k] += weight * mean[k];
      first_bias[b * K + k] += weight * bias * mean[k];
    }
    double* of = scalars + 4 * b;
    of[0] += weight;
    of[1] += weight * bias;
    of[2] += weight * (bias * bias + (pass.own.bias_variance ? pass.own.bias_variance[item] : 0.0));
    of[3] = greater_of(of[3], weight);
    ++sizes[b];
  }
}
