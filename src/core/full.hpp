// The step of rows with covariances (eq. 15-17 without eq. 18), with a full Gaussian prior, or with E[log sigma] by
// quadrature. Sums take eight edges at a time; the step is solved in double, a row at a time.
#pragma once
#include <cmath>

#include "accumulate.hpp"
#include "logistic.hpp"

namespace considerate::CONSIDERATE_ISA {

// Gauss-Hermite nodes and weights of N(0, 1), ten of them: the positive half.
constexpr int kNodes = 5;
constexpr float kNode[kNodes] = {0.48493570751549764f, 1.4659890943911582f, 2.4843258416389546f, 3.5818234835519269f,
                                 4.8594628283323123f};
constexpr float kNodeWeight[kNodes] = {0.34464233493201904f, 0.13548370298026777f, 0.019111580500770285f,
                                       0.00075807093431221767f, 4.3106526307182866e-06f};

// log sigma(a), sigma(a) and sigma'(a) = sigma (1 - sigma).
struct Logistic8 {
  v8 log_sigma, sigma, slope;
  explicit Logistic8(v8 a) {
    const v8 size = select8(a < splat(0.0f), -a, a), t = exp_minus(size), inverse = splat(1.0f) / (splat(1.0f) + t);
    sigma = select8(a < splat(0.0f), t * inverse, inverse);
    slope = t * inverse * inverse;
    log_sigma = select8(a < splat(0.0f), a, splat(0.0f)) - log1p_unit(t);
  }
};

// The terms of eight edges: p = E[-second derivative], y such that z gets (y - p b) v, and their part of the bound.
struct Terms8 {
  v8 p, y, height;
};

// Terms by the logistic bound at its best xi (eq. 11, 16).
static inline Terms8 terms_of_bound(v8 logit, v8 variance, v8 half) {
  const LogisticBound8 bound(logit * logit + variance);
  return {bound.curvature(), half, bound.height() + half * logit};
}

// Terms by quadrature over a ~ N(logit, variance): p = E[sigma'(a)], y = g - E[sigma(a)] + p logit, height = E[log l].
static inline Terms8 terms_of_quadrature(v8 logit, v8 variance, v8 half) {
  const v8 deviation = sqrt8(variance);
  v8 height = splat(0.0f), sigma = splat(0.0f), p = splat(0.0f);
  for (int i = 0; i < kNodes; ++i) {
    const v8 w = splat(kNodeWeight[i]), step = splat(kNode[i]) * deviation;
    const Logistic8 above(logit + step), below(logit - step);
    height += w * (above.log_sigma + below.log_sigma);
    sigma += w * (above.sigma + below.sigma);
    p += w * (above.slope + below.slope);
  }
  const v8 g = half + splat(0.5f);
  return {p, g - sigma + p * logit, height + (g - splat(1.0f)) * logit};  // log sigma(-a) = log sigma(a) - a
}

// A symmetric matrix in double, and its inverse by a Cholesky factor. Columns are updated, so that loops vectorise.
class Symmetric {
 public:
  explicit Symmetric(std::int64_t size) : size_(size), data_(size * size), inverse_(size * size) {}
  double* row(std::int64_t i) { return data_.data() + i * size_; }
  const double* inverse(std::int64_t i) const { return inverse_.data() + i * size_; }

  // Compute the inverse and log determinant from the lower triangle; false if the matrix is not positive definite.
  bool invert(double& log_determinant) {
    log_determinant = 0;
    for (std::int64_t j = 0; j < size_; ++j) {  // the rows of the upper factor R, with R'R the matrix
      double* rj = row(j);
      for (std::int64_t i = j + 1; i < size_; ++i) rj[i] = row(i)[j];
    }
    for (std::int64_t j = 0; j < size_; ++j) {
      double* rj = row(j);
      if (!(rj[j] > 0)) return false;
      const double diagonal = std::sqrt(rj[j]);
      log_determinant += 2 * std::log(diagonal);
      for (std::int64_t i = j; i < size_; ++i) rj[i] /= diagonal;
      for (std::int64_t i = j + 1; i < size_; ++i) {
        double* ri = row(i);
        const double factor = rj[i];
        for (std::int64_t k = i; k < size_; ++k) ri[k] -= factor * rj[k];
      }
    }
    inverse_.zero();
    for (std::int64_t j = 0; j < size_; ++j) {  // R' X = I, row by row of X: lower triangular
      double* xj = inverse_.data() + j * size_;
      xj[j] = 1.0;
      for (std::int64_t i = 0; i < j; ++i) {
        const double factor = row(i)[j];
        const double* xi = inverse_.data() + i * size_;
        for (std::int64_t k = 0; k <= i; ++k) xj[k] -= factor * xi[k];
      }
      for (std::int64_t k = 0; k <= j; ++k) xj[k] /= row(j)[j];
    }
    for (std::int64_t j = size_ - 1; j >= 0; --j) {  // R Y = X from below, in place
      double* yj = inverse_.data() + j * size_;
      for (std::int64_t i = j + 1; i < size_; ++i) {
        const double factor = row(j)[i];
        const double* yi = inverse_.data() + i * size_;
        for (std::int64_t k = 0; k < size_; ++k) yj[k] -= factor * yi[k];
      }
      for (std::int64_t k = 0; k < size_; ++k) yj[k] /= row(j)[j];
    }
    return __builtin_isfinite(log_determinant);
  }

 private:
  std::int64_t size_;
  Buffer<double> data_, inverse_;
};

class FullRows {
 public:
  FullRows(const FullPass& pass, FullOut& out)
      : pass_(pass),
        out_(out),
        K_(pass.own.factors),
        T_(triangle(pass.own.factors)),
        TP_(padded(T_) + 8),
        spread_(TP_),
        around_(TP_),
        sums_(TP_),
        first_(padded(K_)),
        seconds_(8 * TP_),
        P_(T_),
        z_(K_),
        old_(K_),
        step_(K_) {}

  void run(std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      load(row);
      walk(row);
      if (out_.rows) step(row);
    }
    out_.bound *= static_cast<double>(pass_.constants.likelihood_weight);
  }

 private:
  static constexpr int kEdges = 8;

  // Load E[u u'] of the row, off-diagonals doubled, for <E[u u'], Sigma_v>; and Sigma_u likewise, for v' Sigma_u v.
  void load(std::int64_t row) {
    mean_ = pass_.own.rows + row * 2 * padded(K_);
    const float* variance = mean_ + padded(K_);
    const float* given = pass_.own.covariance ? pass_.own.covariance + row * T_ : nullptr;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < K_; ++i)
      for (std::int64_t j = 0; j <= i; ++j, ++at) {
        const float covariance = given ? given[at] : i == j ? variance[i] : 0.0f, times = i == j ? 1.0f : 2.0f;
        around_[at] = times * covariance;
        spread_[at] = times * (mean_[i] * mean_[j] + covariance);
      }
    bias_ = pass_.own.bias_mean ? pass_.own.bias_mean[row] : 0.0f;
    offset_ = pass_.constants.offset + (pass_.own_is_user ? pass_.constants.extra(row) : 0.0f);
    bias_variance_ = pass_.own.bias_variance ? pass_.own.bias_variance[row] : 0.0f;
    for (std::int64_t t = 0; t < T_; ++t) P_[t] = 0;
    for (std::int64_t k = 0; k < K_; ++k) z_[k] = 0;
    bias_sums_[0] = bias_sums_[1] = 0;
  }

  // Sum all edges of the row, the liked ones first, in chunks; sums of chunks are added in double.
  void walk(std::int64_t row) {
    const Edges* edges[2] = {&pass_.liked, &pass_.unliked};
    std::int64_t waiting = 0;
    for (int side = 0; side < 2; ++side) {
      if (!edges[side]->starts) continue;
      const std::int64_t end = edges[side]->starts[row + 1];
      for (std::int64_t e = edges[side]->starts[row]; e < end; e += kEdges) {
        const int count = static_cast<int>(least(kEdges, end - e));
        if (pass_.other.covariance) {
          add<true>(*edges[side], e, count, side == 0);
        } else {
          add<false>(*edges[side], e, count, side == 0);
        }
        if ((waiting += count) >= kChunk) waiting = flush();
      }
    }
    flush();
  }

  std::int64_t flush() {
    for (std::int64_t t = 0; t < T_; ++t) P_[t] += static_cast<double>(sums_[t]);
    for (std::int64_t k = 0; k < K_; ++k) z_[k] += static_cast<double>(first_[k]);
    sums_.zero();
    first_.zero();
    return 0;
  }

  // var[u'v] = <E[u u'], Sigma_v> + v' Sigma_u v of an edge (eq. 16). E[v v'] goes to `second`.
  template <bool Full>
  float moments(const float* v, const float* given, float* second) {
    v8 total = splat(0.0f);
    float* at = second;
    for (std::int64_t i = 0; i < K_; at += ++i)
      for (std::int64_t j = 0; j <= i; j += 8) store8(at + j, splat(v[i]) * load8(v + j));  // the next row overwrites
    for (std::int64_t t = T_; t < TP_; ++t) second[t] = 0.0f;
    if constexpr (Full) {
      std::int64_t t = 0;
      for (; t + 8 <= T_; t += 8) {
        const v8 covariance = load8(given + t), product = load8(second + t);
        total += load8(&spread_[t]) * covariance + load8(&around_[t]) * product;
        store8(second + t, product + covariance);
      }
      for (; t < T_; ++t) {
        total[0] += spread_[t] * given[t] + around_[t] * second[t];
        second[t] += given[t];
      }
    } else {
      for (std::int64_t t = 0; t < T_; t += 8) total += load8(&around_[t]) * load8(second + t);
      for (std::int64_t i = 0; i < K_; ++i) {
        total[0] += spread_[triangle(i) + i] * given[i];
        second[triangle(i) + i] += given[i];
      }
    }
    return static_cast<float>(sum_lanes(total));
  }

  template <bool Full>
  void add(const Edges& edges, std::int64_t at, int count, bool liked) {
    const std::int32_t* indices = edges.indices + at;
    alignas(32) float dots[8] = {0}, spreads[8] = {0}, biases[8] = {0}, kappa[8] = {0};
    const std::int64_t KP = padded(K_);
    const float* rows[8];
    for (int e = 0; e < count; ++e) {
      const std::int64_t n = indices[e];
      rows[e] = pass_.other.rows + n * 2 * KP;
      v8 dot = splat(0.0f);
      for (std::int64_t k = 0; k < KP; k += 8) dot += load8(mean_ + k) * load8(rows[e] + k);
      dots[e] = static_cast<float>(sum_lanes(dot));
      const float* given = Full ? pass_.other.covariance + n * T_ : rows[e] + KP;
      spreads[e] = moments<Full>(rows[e], given, &seconds_[e * TP_]);
      kappa[e] = edges.weights ? edges.weights[at + e] : 1.0f;
      if (!pass_.own_is_user) biases[e] = pass_.constants.extra(n);
      if (pass_.other.bias_mean) {
        biases[e] += pass_.other.bias_mean[n];
        spreads[e] += pass_.other.bias_variance[n];
      }
    }
    const v8 bias = load8(biases) + splat(bias_ + offset_), logit = load8(dots) + bias;
    const v8 variance = load8(spreads) + splat(bias_variance_), half = splat(liked ? 0.5f : -0.5f);
    Terms8 terms =
        pass_.quadrature ? terms_of_quadrature(logit, variance, half) : terms_of_bound(logit, variance, half);
    const v8 weight = load8(kappa), power = splat(pass_.constants.likelihood_weight) * weight;  // 0 past the last edge
    out_.bound += sum_lanes(weight * terms.height);
    if (!out_.rows) return;
    const v8 p = power * terms.p, y = power * terms.y, pull = y - p * bias;
    bias_sums_[0] += sum_lanes(p);
    bias_sums_[1] += sum_lanes(y - p * (logit - splat(bias_)));
    for (std::int64_t t = 0; t < T_; t += 8) {
      v8 sum = load8(&sums_[t]);
      for (int e = 0; e < count; ++e) sum += splat(p[e]) * load8(&seconds_[e * TP_ + t]);
      store8(&sums_[t], sum);
    }
    for (std::int64_t k = 0; k < KP; k += 8) {
      v8 sum = load8(&first_[k]);
      for (int e = 0; e < count; ++e) sum += splat(pull[e]) * load8(rows[e] + k);
      store8(&first_[k], sum);
    }
  }

  // Step the natural parameters (P, z) with the prior (eq. 17); then the covariance, or the factorised q (eq. 18).
  void step(std::int64_t row) {
    const double e = pass_.constants.epsilon, rest = 1.0 - e;
    const bool full = out_.covariance != nullptr;
    const float *variance = mean_ + padded(K_), *prior = pass_.prior_precision;
    double log_determinant = 0;
    bool good = true;
    if (rest > 0 && pass_.own.covariance) {
      const float* given = pass_.own.covariance + row * T_;
      for (std::int64_t i = 0; i < K_; given += ++i)
        for (std::int64_t j = 0; j <= i; ++j) old_.row(i)[j] = given[j];
      good = old_.invert(log_determinant);
    }
    for (std::int64_t i = 0; i < K_; ++i) {
      double pull = e * (z_[i] + static_cast<double>(pass_.prior_pull[i]));
      if (rest > 0 && pass_.own.covariance) {
        for (std::int64_t j = 0; j < K_; ++j) pull += rest * old_.inverse(i)[j] * static_cast<double>(mean_[j]);
      } else if (rest > 0) {
        pull += rest * static_cast<double>(mean_[i]) / static_cast<double>(variance[i]);
      }
      z_[i] = pull;
      for (std::int64_t j = 0; j <= i; ++j) {
        const std::int64_t at = triangle(i) + j;
        double value = e * (P_[at] + static_cast<double>(prior[at]));
        if (rest > 0 && pass_.own.covariance) {
          value += rest * old_.inverse(i)[j];
        } else if (rest > 0 && i == j) {
          value += rest / static_cast<double>(variance[i]);
        }
        step_.row(i)[j] = P_[at] = value;
      }
    }
    good = step_.invert(log_determinant) && good;
    float *mean = out_.rows + row * 2 * padded(K_), *spread = mean + padded(K_);
    for (std::int64_t k = 0; k < 2 * padded(K_); ++k) mean[k] = 0.0f;
    for (std::int64_t i = 0; i < K_; ++i) {
      double total = 0;
      for (std::int64_t j = 0; j < K_; ++j) total += step_.inverse(i)[j] * z_[j];
      mean[i] = static_cast<float>(total);
      spread[i] = static_cast<float>(full ? step_.inverse(i)[i] : 1.0 / P_[triangle(i) + i]);
      good = good && __builtin_isfinite(mean[i]) && spread[i] > 0.0f;
      const double m = mean[i], s = spread[i];
      out_.moments[0] += m * m + s;
      if (!full) out_.moments[1] += std::log(s);
      if (!full) continue;
      float* covariance = out_.covariance + row * T_ + triangle(i);
      for (std::int64_t j = 0; j <= i; ++j) covariance[j] = static_cast<float>(step_.inverse(i)[j]);
    }
    if (full) out_.moments[1] -= log_determinant;
    if (pass_.bias) step_bias(row, good);
    if (!good && out_.bad < 0) out_.bad = row;
  }

  // Step the bias (eq. 19).
  void step_bias(std::int64_t row, bool& good) {
    const double e = pass_.constants.epsilon, old = 1.0 / static_cast<double>(bias_variance_);
    const double P = e * (bias_sums_[0] + static_cast<double>(pass_.constants.tau_bias)) + (1.0 - e) * old;
    const double z = e * bias_sums_[1] + (1.0 - e) * old * static_cast<double>(bias_);
    out_.bias_mean[row] = static_cast<float>(z / P);
    out_.bias_variance[row] = static_cast<float>(1.0 / P);
    good = good && P > 0 && __builtin_isfinite(z / P);
    const double mean = out_.bias_mean[row], variance = out_.bias_variance[row];
    out_.moments[2] += mean * mean + variance;
    out_.moments[3] += std::log(variance);
  }

  const FullPass& pass_;
  FullOut& out_;
  std::int64_t K_, T_, TP_;
  Buffer<float> spread_, around_, sums_, first_, seconds_;
  Buffer<double> P_, z_;
  Symmetric old_, step_;
  const float* mean_ = nullptr;
  float bias_ = 0, bias_variance_ = 0, offset_ = 0;
  double bias_sums_[2] = {0, 0};
};

static void update_full_rows(const FullPass& pass, std::int64_t first, std::int64_t last, FullOut& out) {
  FullRows(pass, out).run(first, last);
}

}  // namespace considerate::CONSIDERATE_ISA
