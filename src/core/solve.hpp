// The step (eq. 17-19) and the recovery of the factorised q (eq. 18), eight rows side by side in SIMD lanes.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

class Solver {
 public:
  Solver(const Pass& pass, RowsOut& out)
      : pass_(pass), out_(out), shape_(pass.factors), buffer_((triangle(shape_.K) + 2 * shape_.K) * 8),
        P_(buffer_.data()), z_(P_ + triangle(shape_.K) * 8), diagonal_(z_ + shape_.K * 8) {}

  // Take a row's sums in the node's form; null for a row without edges.
  void push(std::int64_t row, const float* node) {
    const std::int64_t K = shape_.K, KP = shape_.KP;
    float* p = P_ + lane_;
    if (node) {
      for (std::int64_t i = 0; i < K; ++i)
        for (std::int64_t j = 0; j <= i; ++j, p += 8) *p = node[i * KP + j];
      for (std::int64_t k = 0; k < K; ++k) z_[k * 8 + lane_] = node[shape_.second() + k];
      step_bias(row, node[shape_.second() + KP], node[shape_.second() + KP + 1]);
    } else {
      for (std::int64_t i = 0; i < triangle(K); ++i, p += 8) *p = 0.0f;
      for (std::int64_t k = 0; k < K; ++k) z_[k * 8 + lane_] = 0.0f;
      step_bias(row, 0.0f, 0.0f);
    }
    rows_[lane_++] = row;
    if (lane_ == 8) flush();
  }

  // The same from packed sums.
  void push_packed(std::int64_t row, const float* second, const float* first, const float* bias) {
    const std::int64_t K = shape_.K;
    for (std::int64_t i = 0; i < triangle(K); ++i) P_[i * 8 + lane_] = second[i];
    for (std::int64_t k = 0; k < K; ++k) z_[k * 8 + lane_] = first[k];
    step_bias(row, bias[0], bias[1]);
    rows_[lane_++] = row;
    if (lane_ == 8) flush();
  }

  void flush() {
    if (lane_ == 0) return;
    const std::int64_t K = shape_.K;
    for (int lane = lane_; lane < 8; ++lane) {  // idle lanes solve the identity
      for (std::int64_t i = 0; i < triangle(K); ++i) P_[i * 8 + lane] = 0.0f;
      for (std::int64_t k = 0; k < K; ++k) z_[k * 8 + lane] = 0.0f;
      rows_[lane] = rows_[0];
    }
    blend();
    factorise();
    back_solve();
    write();
    lane_ = 0;
  }

 private:
  // eq. 19
  void step_bias(std::int64_t row, float precision_sum, float pull_sum) {
    if (!pass_.bias) return;
    const float old_precision = 1.0f / pass_.own.bias_variance[row], e = pass_.epsilon;
    const float precision = e * (precision_sum + pass_.tau_bias) + (1.0f - e) * old_precision;
    const float z = e * pull_sum + (1.0f - e) * old_precision * pass_.own.bias_mean[row];
    out_.bias_mean[row] = z / precision;
    out_.bias_variance[row] = 1.0f / precision;
    if (!(precision > 0.0f) || !__builtin_isfinite(z / precision)) note_bad(row);
    const double mean = out_.bias_mean[row], variance = out_.bias_variance[row];
    out_.moments[2] += mean * mean + variance;
    out_.moments[3] += std::log(variance);
  }

  // eq. 17: P = e (sums + tau I) + (1 - e) diag(omega), z = e z + (1 - e) omega eta
  void blend() {
    const std::int64_t K = shape_.K, KP = shape_.KP;
    const v8 e = splat(pass_.epsilon), rest = splat(1.0f - pass_.epsilon), tau = splat(pass_.tau);
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < K; ++i) {
      v8 mean, omega;
      for (int lane = 0; lane < 8; ++lane) {
        const float* row = pass_.own.rows + rows_[lane] * 2 * KP;
        mean[lane] = row[i];
        omega[lane] = 1.0f / row[KP + i];
      }
      for (std::int64_t j = 0; j < i; ++j, ++at) store8(P_ + at * 8, e * load8(P_ + at * 8));
      const v8 diagonal = e * (load8(P_ + at * 8) + tau) + rest * omega;
      store8(P_ + at * 8, diagonal);
      store8(diagonal_ + i * 8, diagonal);
      ++at;
      store8(z_ + i * 8, e * load8(z_ + i * 8) + rest * omega * mean);
    }
  }

  // Cholesky, L in place; the diagonal holds 1 / L_ii.
  void factorise() {
    const std::int64_t K = shape_.K;
    for (std::int64_t i = 0; i < K; ++i) {
      float* Li = P_ + triangle(i) * 8;
      for (std::int64_t j = 0; j <= i; ++j) {
        const float* Lj = P_ + triangle(j) * 8;
        v8 a = load8(Li + j * 8), b = splat(0.0f);
        std::int64_t k = 0;
        for (; k + 1 < j; k += 2) {
          a -= load8(Li + k * 8) * load8(Lj + k * 8);
          b -= load8(Li + k * 8 + 8) * load8(Lj + k * 8 + 8);
        }
        if (k < j) a -= load8(Li + k * 8) * load8(Lj + k * 8);
        a += b;
        store8(Li + j * 8, j < i ? a * load8(Lj + j * 8) : splat(1.0f) / sqrt8(a));
      }
    }
  }

  void back_solve() {
    const std::int64_t K = shape_.K;
    for (std::int64_t i = 0; i < K; ++i) {
      const float* Li = P_ + triangle(i) * 8;
      v8 a = load8(z_ + i * 8);
      for (std::int64_t k = 0; k < i; ++k) a -= load8(Li + k * 8) * load8(z_ + k * 8);
      store8(z_ + i * 8, a * load8(Li + i * 8));
    }
    for (std::int64_t i = K - 1; i >= 0; --i) {
      const float* Li = P_ + triangle(i) * 8;
      const v8 x = load8(z_ + i * 8) * load8(Li + i * 8);
      store8(z_ + i * 8, x);
      for (std::int64_t k = 0; k < i; ++k) store8(z_ + k * 8, load8(z_ + k * 8) - load8(Li + k * 8) * x);
    }
  }

  // eq. 18: the means of q~, the diagonal of its precision
  void write() {
    const std::int64_t K = shape_.K, KP = shape_.KP;
    for (int lane = 0; lane < lane_; ++lane) {
      float* row = out_.rows + rows_[lane] * 2 * KP;
      bool finite = true;
      double square = 0, product = 1;
      for (std::int64_t k = 0; k < K; ++k) {
        row[k] = z_[k * 8 + lane];
        row[KP + k] = 1.0f / diagonal_[k * 8 + lane];
        finite = finite && __builtin_isfinite(row[k]) && row[KP + k] > 0.0f && __builtin_isfinite(row[KP + k]);
        square += static_cast<double>(row[k]) * row[k] + row[KP + k];
        product *= row[KP + k];
        if (k % 8 == 7 || k == K - 1) {  // a logarithm for eight factors, whose product a double holds
          out_.moments[1] += std::log(product);
          product = 1;
        }
      }
      out_.moments[0] += square;
      for (std::int64_t k = K; k < KP; ++k) row[k] = row[KP + k] = 0.0f;
      if (!finite) note_bad(rows_[lane]);
    }
  }

  void note_bad(std::int64_t row) {
    if (out_.bad < 0 || row < out_.bad) out_.bad = row;
  }

  const Pass& pass_;
  RowsOut& out_;
  Shape shape_;
  Buffer<float> buffer_;
  float *P_, *z_, *diagonal_;
  std::int64_t rows_[8];
  int lane_ = 0;
};
