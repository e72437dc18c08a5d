// The step (eq. 17-19) and the recovery of the factorised q (eq. 18), eight rows side by side in SIMD lanes.
#pragma once
#include <cmath>

#include "accumulate.hpp"

namespace considerate::CONSIDERATE_ISA {

class Solver {
 public:
  Solver(const Pass& pass, RowsOut& out)
      : pass_(pass),
        out_(out),
        shape_(pass),
        buffer_((triangle(shape_.KP) + 4 * shape_.KP) * 8),
        P_(buffer_.data()),
        z_(P_ + triangle(shape_.KP) * 8),
        diagonal_(z_ + shape_.KP * 8),
        prior_mean_(diagonal_ + shape_.KP * 8),
        prior_precision_(prior_mean_ + shape_.KP * 8) {
    for (auto& node : nodes_) node = new_node(shape_);
  }
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  // Step the rows that are left. Call it after the last row.
  void finish() {
    flush();
    for (int lane = 0; lane < 8; ++lane) out_.moments[1] += std::log(products_[lane / 4][lane % 4]);
    out_.moments[3] += std::log(bias_product_);
  }
  ~Solver() {
    for (float* node : nodes_) std::free(node);
  }

  // A buffer for the sums of the next row, or to exchange for such a buffer.
  float* spare() { return nodes_[lane_]; }

  // Take a row's sums as a node, in exchange for the spare buffer; null for a row without edges.
  void push(std::int64_t row, float* node) {
    if (node) {
      nodes_[lane_] = node;
    } else {
      std::memset(nodes_[lane_], 0, static_cast<std::size_t>(shape_.size()) * sizeof(float));
    }
    const float* bias = nodes_[lane_] + shape_.second() + shape_.KP;
    step_bias(row, bias[0], bias[1]);
    rows_[lane_++] = row;
    if (lane_ == 8) flush();
  }

  // Take a row's packed sums.
  void push_packed(std::int64_t row, const float* second, const float* first, const float* bias) {
    const std::int64_t K = shape_.K, KP = shape_.KP;
    float* node = nodes_[lane_];
    for (std::int64_t i = 0; i < K; ++i)
      for (std::int64_t j = 0; j <= i; ++j) node[i * KP + j] = *second++;
    for (std::int64_t k = 0; k < K; ++k) node[shape_.second() + k] = first[k];
    node[shape_.second() + KP] = bias[0];
    node[shape_.second() + KP + 1] = bias[1];
    push(row, node);
  }

  void flush() {
    if (lane_ == 0) return;
    for (int lane = lane_; lane < 8; ++lane) rows_[lane] = rows_[0];  // idle lanes solve the first row again
    to_lanes();
    blend();
    factorise();
    back_solve();
    write();
    lane_ = 0;
  }

  // Step a row's bias (eq. 19).
  void step_bias(std::int64_t row, float precision_sum, float pull_sum) {
    if (!pass_.bias) return;
    const float old_precision = 1.0f / pass_.own.bias_variance[row], e = pass_.constants.epsilon;
    const Prior& prior = pass_.prior;
    const float tau = prior.bias_precision ? prior.bias_precision[row] : pass_.constants.tau_bias;
    const float centre = prior.bias_mean ? prior.bias_mean[row] : 0.0f;
    if (prior.bias_mean) pull_sum += tau * centre;
    const float precision = e * (precision_sum + tau) + (1.0f - e) * old_precision;
    const float z = e * pull_sum + (1.0f - e) * old_precision * pass_.own.bias_mean[row];
    out_.bias_mean[row] = z / precision;
    out_.bias_variance[row] = 1.0f / precision;
    if (!(precision > 0.0f) || !__builtin_isfinite(z / precision)) note_bad(row);
    const double mean = out_.bias_mean[row] - static_cast<double>(centre), variance = out_.bias_variance[row];
    out_.moments[2] += (prior.bias_precision ? static_cast<double>(tau) : 1.0) * (mean * mean + variance);
    bias_product_ *= variance;
    if (!(bias_product_ > 1e-200 && bias_product_ < 1e200)) {
      out_.moments[3] += std::log(bias_product_);
      bias_product_ = 1;
    }
  }

  void note_bad(std::int64_t row) {
    if (out_.bad < 0 || row < out_.bad) out_.bad = row;
  }

 private:
  // Turn eight nodes, a row each, into one triangle with a row in each lane.
  void to_lanes() {
    const std::int64_t K = shape_.K, KP = shape_.KP;
    const float* nodes[8];
    for (int lane = 0; lane < 8; ++lane) nodes[lane] = nodes_[lane < lane_ ? lane : 0];
    v8 block[8];
    for (std::int64_t i = 0; i < K; ++i) {
      float* Pi = P_ + triangle(i) * 8;
      for (std::int64_t j = 0; j <= i; j += 8) {
        for (int lane = 0; lane < 8; ++lane) block[lane] = load8(nodes[lane] + i * KP + j);
        transpose8(block);
        const std::int64_t width = least(8, i - j + 1);
        for (std::int64_t c = 0; c < width; ++c) store8(Pi + (j + c) * 8, block[c]);
      }
    }
    for (std::int64_t k = 0; k < K; k += 8) {
      for (int lane = 0; lane < 8; ++lane) block[lane] = load8(nodes[lane] + shape_.second() + k);
      transpose8(block);
      for (std::int64_t c = 0; c < 8; ++c) store8(z_ + (k + c) * 8, block[c]);
    }
  }

  bool has_priors() const { return pass_.prior.mean || pass_.prior.precision; }

  // Load the rows' priors into lanes: a mean of 0 and a precision of tau if they have none.
  void load_priors() {
    const auto to_lanes = [&](const float* from, float otherwise, float* to) {
      for (std::int64_t k = 0; k < shape_.KP; k += 8) {
        v8 block[8];
        for (int lane = 0; lane < 8; ++lane)
          block[lane] = from ? load8(from + rows_[lane] * shape_.row + shape_.first + k) : splat(otherwise);
        if (from) transpose8(block);
        for (int c = 0; c < 8; ++c) store8(to + (k + c) * 8, block[c]);
      }
    };
    to_lanes(pass_.prior.mean, 0.0f, prior_mean_);
    to_lanes(pass_.prior.precision, pass_.constants.tau, prior_precision_);
  }

  // eq. 17: P = e (sums + tau I) + (1 - e) diag(omega), z = e z + (1 - e) omega eta; with priors N(m, 1 / t) of rows,
  // t stands for tau, and z gets e t m more. Not inlined, like `write`: copies of it could round differently.
  [[gnu::noinline]] void blend() {
    if (has_priors()) load_priors();
    const std::int64_t K = shape_.K;
    const v8 e = splat(pass_.constants.epsilon), rest = splat(1.0f - pass_.constants.epsilon),
             tau = splat(pass_.constants.tau);
    if (pass_.constants.epsilon != 1.0f)
      for (std::int64_t at = 0; at < triangle(K); ++at) store8(P_ + at * 8, e * load8(P_ + at * 8));
    for (std::int64_t k = 0; k < K; k += 8) {
      v8 mean[8], variance[8];
      if (pass_.constants.epsilon != 1.0f) {
        for (int lane = 0; lane < 8; ++lane) {
          const float* row = pass_.own.rows + rows_[lane] * 2 * shape_.row + shape_.first;
          mean[lane] = load8(row + k);
          variance[lane] = load8(row + shape_.row + k);
        }
        transpose8(mean);
        transpose8(variance);
      }
      for (std::int64_t i = k; i < least(k + 8, K); ++i) {
        float* at = P_ + (triangle(i) + i) * 8;
        v8 diagonal = load8(at) + e * (has_priors() ? load8(prior_precision_ + i * 8) : tau);
        if (pass_.constants.epsilon != 1.0f) {
          const v8 old = rest / variance[i - k];
          diagonal += old;
          store8(z_ + i * 8, e * load8(z_ + i * 8) + old * mean[i - k]);
        }
        if (has_priors())
          store8(z_ + i * 8, load8(z_ + i * 8) + e * load8(prior_precision_ + i * 8) * load8(prior_mean_ + i * 8));
        store8(at, diagonal);
        store8(diagonal_ + i * 8, diagonal);
      }
    }
  }

  // Cholesky factor L in place, with 1 / L_ii on the diagonal, in tiles of four rows by two columns.
  void factorise() {
    const std::int64_t K = shape_.K;
    std::int64_t i = 0;
    for (; i + 4 <= K; i += 4) rows_of_factor<4>(i);
    switch (K - i) {
      case 3:
        rows_of_factor<3>(i);
        break;
      case 2:
        rows_of_factor<2>(i);
        break;
      case 1:
        rows_of_factor<1>(i);
        break;
      default:
        break;
    }
  }

  template <int R>
  void rows_of_factor(std::int64_t i) {
    float* L[R];
    for (int r = 0; r < R; ++r) L[r] = P_ + triangle(i + r) * 8;
    std::int64_t j = 0;
    for (; j + 2 <= i; j += 2) {  // columns left of the diagonal block
      const float *A = P_ + triangle(j) * 8, *B = P_ + triangle(j + 1) * 8;
      v8 a[R], b[R];
      for (int r = 0; r < R; ++r) {
        a[r] = load8(L[r] + j * 8);
        b[r] = load8(L[r] + j * 8 + 8);
      }
      for (std::int64_t k = 0; k < j; ++k) {
        const v8 Ak = load8(A + k * 8), Bk = load8(B + k * 8);
        for (int r = 0; r < R; ++r) {
          const v8 Lk = load8(L[r] + k * 8);
          a[r] -= Lk * Ak;
          b[r] -= Lk * Bk;
        }
      }
      const v8 inverse_a = load8(A + j * 8), corner = load8(B + j * 8), inverse_b = load8(B + j * 8 + 8);
      for (int r = 0; r < R; ++r) {
        a[r] *= inverse_a;
        store8(L[r] + j * 8, a[r]);
        store8(L[r] + j * 8 + 8, (b[r] - a[r] * corner) * inverse_b);
      }
    }
    // the diagonal block: i is a multiple of four, so all columns left of it are done
    v8 block[R][R];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c <= r; ++c) block[r][c] = load8(L[r] + (i + c) * 8);
    for (std::int64_t k = 0; k < i; ++k) {
      v8 Lk[R];
      for (int r = 0; r < R; ++r) Lk[r] = load8(L[r] + k * 8);
      for (int r = 0; r < R; ++r)
        for (int c = 0; c <= r; ++c) block[r][c] -= Lk[r] * Lk[c];
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < r; ++c) {
        for (int k = 0; k < c; ++k) block[r][c] -= block[r][k] * block[c][k];
        block[r][c] *= block[c][c];
      }
      for (int k = 0; k < r; ++k) block[r][r] -= block[r][k] * block[r][k];
      block[r][r] = splat(1.0f) / sqrt8(block[r][r]);
      for (int c = 0; c <= r; ++c) store8(L[r] + (i + c) * 8, block[r][c]);
    }
  }

  void back_solve() {
    const std::int64_t K = shape_.K;
    for (std::int64_t i = 0; i < K; ++i) {
      const float* Li = P_ + triangle(i) * 8;
      v8 part[4] = {load8(z_ + i * 8), splat(0.0f), splat(0.0f), splat(0.0f)};
      std::int64_t k = 0;
      for (; k + 4 <= i; k += 4)
        for (int p = 0; p < 4; ++p) part[p] -= load8(Li + (k + p) * 8) * load8(z_ + (k + p) * 8);
      for (; k < i; ++k) part[0] -= load8(Li + k * 8) * load8(z_ + k * 8);
      store8(z_ + i * 8, ((part[0] + part[1]) + (part[2] + part[3])) * load8(Li + i * 8));
    }
    for (std::int64_t i = K - 1; i >= 0; --i) {
      const float* Li = P_ + triangle(i) * 8;
      const v8 x = load8(z_ + i * 8) * load8(Li + i * 8);
      store8(z_ + i * 8, x);
      for (std::int64_t k = 0; k < i; ++k) store8(z_ + k * 8, load8(z_ + k * 8) - load8(Li + k * 8) * x);
    }
  }

  // Write the factorised q: the means of q~ and the diagonal of its precision (eq. 18).
  [[gnu::noinline]] void write() {
    const std::int64_t K = shape_.K, KP = shape_.KP;
    v8 square = splat(0.0f), check = splat(0.0f);
    // idle lanes repeat the first row: they are taken out of the products
    const i8 live = i8{0, 1, 2, 3, 4, 5, 6, 7} < lane_;
    for (std::int64_t k = 0; k < KP; k += 8) {
      const d4 before[2] = {products_[0], products_[1]};
      v8 mean[8], variance[8];
      for (std::int64_t c = 0; c < 8; ++c) {
        const bool real = k + c < K;
        mean[c] = real ? load8(z_ + (k + c) * 8) : splat(0.0f);
        variance[c] = real ? splat(1.0f) / load8(diagonal_ + (k + c) * 8) : splat(0.0f);
        if (has_priors()) {
          const v8 from = mean[c] - load8(prior_mean_ + (k + c) * 8), square_of = from * from + variance[c];
          if (real) square += pass_.prior.precision ? load8(prior_precision_ + (k + c) * 8) * square_of : square_of;
        } else {
          square += mean[c] * mean[c] + variance[c];
        }
        // 0 if finite and positive, else NaN
        if (real) check += (mean[c] + variance[c]) * splat(0.0f) + (sqrt8(variance[c]) - sqrt8(variance[c]));
        if (real) {
          const v8 factor = select8(live, variance[c], splat(1.0f));
          products_[0] *= d4{factor[0], factor[1], factor[2], factor[3]};
          products_[1] *= d4{factor[4], factor[5], factor[6], factor[7]};
        }
      }
      // one logarithm for many factors, before their product overflows a double
      for (int lane = 0; lane < 8; ++lane) {
        const double product = products_[lane / 4][lane % 4];
        if (product > 1e-150 && product < 1e150) continue;
        if (product > 1e-300 && product < 1e300) {
          out_.moments[1] += std::log(product);
        } else {  // the last factors are so small or large that their product has left it
          out_.moments[1] += std::log(before[lane / 4][lane % 4]);
          for (std::int64_t c = 0; c < least(8, K - k); ++c)
            out_.moments[1] += std::log(static_cast<double>(variance[c][lane]));
        }
        products_[lane / 4][lane % 4] = 1;
      }
      transpose8(mean);
      transpose8(variance);
      for (int lane = 0; lane < lane_; ++lane) {
        float* row = out_.rows + rows_[lane] * 2 * shape_.row + shape_.first;
        store8(row + k, mean[lane]);
        store8(row + shape_.row + k, variance[lane]);
      }
    }
    for (int lane = 0; lane < lane_; ++lane) {
      if (!shape_.whole() && shape_.first == 0) carry_over(rows_[lane]);
      out_.moments[0] += static_cast<double>(square[lane]);
      if (!(check[lane] == 0.0f)) note_bad(rows_[lane]);
    }
  }

  // Copy the coordinates after the first block.
  void carry_over(std::int64_t row) {
    const float* from = pass_.own.rows + row * 2 * shape_.row + shape_.KP;
    float* to = out_.rows + row * 2 * shape_.row + shape_.KP;
    const auto bytes = static_cast<std::size_t>(shape_.row - shape_.KP) * sizeof(float);
    std::memcpy(to, from, bytes);
    std::memcpy(to + shape_.row, from + shape_.row, bytes);
  }

  const Pass& pass_;
  RowsOut& out_;
  Shape shape_;
  Buffer<float> buffer_;
  float *P_, *z_, *diagonal_, *prior_mean_, *prior_precision_;
  float* nodes_[8];
  std::int64_t rows_[8];
  int lane_ = 0;
  d4 products_[2] = {{1, 1, 1, 1}, {1, 1, 1, 1}};  // products of variances by lane, without logarithms so far
  double bias_product_ = 1;
};

}  // namespace considerate::CONSIDERATE_ISA
