// The step of rows with few edges. With n edges, P is a diagonal plus n outer products (eq. 15, 17),
//   P = D + V'C V,   D = e (diag(t) + diag(sum p s)) + (1 - e) diag(omega),   C = e diag(p),
// with a row of V for each edge. The mean needs a system of n equations in place of K:
//   P mu = e V'y + r,   r = e t m + (1 - e) omega eta:   mu = D^-1 (r + V'w),
//   (I + C A) w = e y - C V D^-1 r,   A = V D^-1 V'.
// N(m, 1 / t) is the row's prior; without one m = 0 and t = tau.
// With S = C^(1/2) and w = S x it is symmetric, (I + S A S) x = S^-1 (e y - C V D^-1 r), with no eigenvalue below 1.
// Eight rows are stepped side by side. Numbers of edges lie in lanes, one row in each; loops over coordinates go row by
// row.
#pragma once
#include <cmath>

#include "logistic.hpp"
#include "solve.hpp"

namespace considerate::CONSIDERATE_ISA {

class FewEdges {
 public:
  static constexpr std::int64_t kMost = 16;

  // The most edges of a row that is stepped here; -1 if its sums come in parts or with a closed form.
  static std::int64_t most(const Pass& pass) {
    if (pass.expected || pass.splits) return -1;
    return least(kMost, pass.own.factors * 4 / 5);
  }

  FewEdges(const Pass& pass, RowsOut& out, Solver& solver)
      : pass_(pass),
        prior_(pass.prior),
        out_(out),
        solver_(solver),
        shape_(pass),
        rest_(8 * shape_.KP),
        scaled_(8 * kMost * shape_.KP) {}

  void push(std::int64_t row) {
    Waiting one;
    one.row = row;
    one.liked = pass_.liked.indices + pass_.liked.starts[row];
    if (pass_.liked.weights) one.weights = pass_.liked.weights + pass_.liked.starts[row];
    one.count = one.liked_count = static_cast<std::int32_t>(pass_.liked.starts[row + 1] - pass_.liked.starts[row]);
    if (pass_.unliked.starts) {
      one.unliked = pass_.unliked.indices + pass_.unliked.starts[row];
      one.count += static_cast<std::int32_t>(pass_.unliked.starts[row + 1] - pass_.unliked.starts[row]);
    }
    for (std::int32_t e = 0; e < one.count; ++e) {
      const float* other = pass_.other.rows + one.index(e) * 2 * shape_.row;
      for (std::int64_t k = 0; k < 2 * shape_.row; k += 16) __builtin_prefetch(other + k, 0, 2);
    }
    const int kind = (one.count + 1) / 2;
    waiting_[kind][filled_[kind]++] = one;
    if (filled_[kind] == 8) step(kind);
  }

  // Step the rows that are left. Call it after the last row, and before the solver's finish.
  void finish() {
    for (int kind = 0; kind <= kMost / 2; ++kind)
      if (filled_[kind]) step(kind);
    for (int lane = 0; lane < 8; ++lane) out_.moments[1] += std::log(products_[lane / 4][lane % 4]);
  }
  double bound() const { return bound_; }

 private:
  struct Waiting {
    std::int64_t row;
    const std::int32_t *liked = nullptr, *unliked = nullptr;
    const float* weights = nullptr;  // of the liked ones
    std::int32_t liked_count, count;
    std::int64_t index(std::int32_t e) const { return e < liked_count ? liked[e] : unliked[e - liked_count]; }
  };

  void step(int kind) {
    const int n = 2 * kind;
    take(waiting_[kind], filled_[kind], n);
    switch (shape_.KP / 8) {
      case 1:
        return step_rows<1>(n);
      case 2:
        return step_rows<2>(n);
      case 3:
        return step_rows<3>(n);
      case 4:
        return step_rows<4>(n);
      default:
        return step_rows<0>(n);
    }
  }

  // Load the rows, with n edges each. Missing edges have weight 0, and idle lanes repeat the first row.
  void take(const Waiting* waiting, int& filled, int n) {
    rows_ = filled;
    for (int lane = 0; lane < 8; ++lane) {
      const Waiting& one = waiting[lane < rows_ ? lane : 0];
      row_[lane] = one.row;
      own_[lane] = pass_.own.rows + one.row * 2 * shape_.row;
      count_[lane] = lane < rows_ ? one.count : 0;
      liked_[lane] = one.liked_count;
      own_bias_[lane] = pass_.own.bias_mean ? pass_.own.bias_mean[one.row] : 0.0f;
      own_bias_variance_[lane] = pass_.own.bias_variance ? pass_.own.bias_variance[one.row] : 0.0f;
      own_offset_[lane] =
          pass_.own_is_user ? pass_.constants.offset + pass_.constants.extra(one.row) : pass_.constants.offset;
      for (int e = 0; e < n; ++e) {
        const int at = 8 * e + lane;
        others_[at] = own_[lane];
        bias_[at] = bias_variance_[at] = 0.0f;
        if (one.weights) kappa_[at] = e < one.liked_count ? one.weights[e] : 1.0f;
        if (e >= one.count) continue;
        const std::int64_t index = one.index(e);
        others_[at] = pass_.other.rows + index * 2 * shape_.row;
        if (!pass_.own_is_user) bias_[at] = pass_.constants.extra(index);
        if (!pass_.other.bias_mean) continue;
        bias_[at] += pass_.other.bias_mean[index];
        bias_variance_[at] = pass_.other.bias_variance[index];
      }
    }
    filled = 0;
  }

  template <int V>
  void step_rows(int n) {
    edges<V>(n);
    const bool priors = prior_.mean || prior_.precision;
    for (int lane = 0; lane < 8; ++lane) priors ? diagonals<V, true>(n, lane) : diagonals<V, false>(n, lane);
    weights<V>(n);
    v8 squares[8], checks[8];
    for (int lane = 0; lane < 8; ++lane)
      priors ? means<V, true>(n, lane, squares[lane], checks[lane])
             : means<V, false>(n, lane, squares[lane], checks[lane]);
    const v8 square = sum_rows(squares), check = sum_rows(checks);
    for (int lane = 0; lane < rows_; ++lane) {
      out_.moments[0] += static_cast<double>(square[lane]);
      if (!(check[lane] == 0.0f)) solver_.note_bad(row_[lane]);
      solver_.step_bias(row_[lane], bias_precision_[lane], bias_pull_[lane]);
    }
  }

  // Compute p and y - p b of every edge, as in RowSummer::set_coefficients, and the sums for the row's own bias.
  template <int V>
  void edges(int n) {
    const std::int64_t KP = V ? 8 * V : shape_.KP;
    const v8 own_bias = load8(own_bias_), shift = own_bias + load8(own_offset_),
             rho = splat(pass_.constants.likelihood_weight);
    v8 precision_sum = splat(0.0f), pull_sum = splat(0.0f), heights = splat(0.0f);
    for (int e = 0; e < n; ++e) {
      v8 dots[8], spreads[8];
      for (int lane = 0; lane < 8; ++lane) {
        const float *own = own_[lane], *other = others_[8 * e + lane];
        v8 dot = splat(0.0f), spread = splat(0.0f);
        for (std::int64_t k = 0; k < KP; k += 8) {
          const v8 u = load8(own + k), s = load8(own + KP + k), v = load8(other + k);
          dot += u * v;
          spread += (u * u + s) * load8(other + KP + k);
          spread += (v * v) * s;
        }
        dots[lane] = dot;
        spreads[lane] = spread;
      }
      const i8 live = load_ints(count_) > e;
      const v8 half = select8(load_ints(liked_) > e, splat(0.5f), splat(-0.5f));
      const v8 bias = load8(bias_ + 8 * e) + shift, logit = sum_rows(dots) + bias;
      const LogisticBound8 bound(logit * logit + sum_rows(spreads) + load8(bias_variance_ + 8 * e) +
                                 load8(own_bias_variance_));
      v8 p = select8(live, rho * bound.curvature(), splat(0.0f));
      v8 y = select8(live, rho * half, splat(0.0f));
      v8 height = splat(0.0f);
      if (pass_.own_is_user) height = select8(live, bound.height() + half * logit, splat(0.0f));
      if (pass_.liked.weights) {
        const v8 kappa = load8(kappa_ + 8 * e);
        p *= kappa;
        y *= kappa;
        height *= kappa;
      }
      heights += height;
      store8(precision_ + 8 * e, p);
      store8(pull_ + 8 * e, y - p * bias);
      precision_sum += p;
      pull_sum += y - p * (logit - own_bias);
    }
    store8(bias_precision_, precision_sum);
    store8(bias_pull_, pull_sum);
    bound_ += sum_lanes(heights);
  }

  // Compute D^-1 r and V D^-1 of a row, and its new variances from the diagonal of P.
  template <int V, bool Priors>
  void diagonals(int n, int lane) {
    const std::int64_t KP = V ? 8 * V : shape_.KP;
    const v8 e = splat(pass_.constants.epsilon), tau = splat(pass_.constants.tau);
    float* out = out_.rows + row_[lane] * 2 * shape_.row + KP;
    constexpr int W = V ? V : 1;  // vectors at a time
    for (std::int64_t k0 = 0; k0 < KP; k0 += 8 * W) {
      v8 spread[W] = {}, square[W] = {};
      for (int j = 0; j < n; ++j) {
        const float* other = others_[8 * j + lane] + k0;
        const v8 p = splat(precision_[8 * j + lane]);
        for (int i = 0; i < W; ++i) {
          const v8 v = load8(other + 8 * i);
          spread[i] += p * load8(other + KP + 8 * i);
          square[i] += p * (v * v);
        }
      }
      v8 inverse[W];
      for (int i = 0; i < W; ++i) {
        const std::int64_t k = k0 + 8 * i;
        const i8 real = i8{0, 1, 2, 3, 4, 5, 6, 7} < static_cast<std::int32_t>(least(8, shape_.K - k));
        const std::int64_t at = row_[lane] * KP + k;
        const v8 t = Priors && prior_.precision ? select8(real, load8(prior_.precision + at), tau) : tau;
        v8 diagonal = e * (t + spread[i]), rest = splat(0.0f);
        if (pass_.constants.epsilon != 1.0f) {
          const v8 old = select8(real, (splat(1.0f) - e) / load8(own_[lane] + KP + k), splat(0.0f));
          diagonal += old;
          rest = old * load8(own_[lane] + k);
        }
        if (Priors && prior_.mean) rest += e * t * load8(prior_.mean + at);
        if (Priors || pass_.constants.epsilon != 1.0f) store8(&rest_[lane * KP + k], rest / diagonal);
        inverse[i] = splat(1.0f) / diagonal;
        const v8 variance = splat(1.0f) / (diagonal + e * square[i]);
        if (lane >= rows_) continue;
        store8(out + k, select8(real, variance, splat(0.0f)));
        const v8 factor = select8(real, variance, splat(1.0f));
        products_[0] *= d4{factor[0], factor[1], factor[2], factor[3]};
        products_[1] *= d4{factor[4], factor[5], factor[6], factor[7]};
      }
      check_products();
      for (int j = 0; j < n; ++j)
        for (int i = 0; i < W; ++i)
          store8(&scaled_[(lane * kMost + j) * KP + k0 + 8 * i],
                 inverse[i] * load8(others_[8 * j + lane] + k0 + 8 * i));
    }
  }

  // Compute w of every edge.
  template <int V>
  void weights(int n) {
    const std::int64_t KP = V ? 8 * V : shape_.KP;
    v8 M[kMost * (kMost + 1) / 2], roots[kMost], x[kMost], parts[8];
    const v8 e = splat(pass_.constants.epsilon), zero = splat(0.0f);
    for (int i = 0; i < n; ++i) {
      const v8 c = e * load8(precision_ + 8 * i);
      roots[i] = sqrt8(c);
      v8 right = e * load8(pull_ + 8 * i);
      if (has_rest()) {
        for (int lane = 0; lane < 8; ++lane) parts[lane] = dot<V>(others_[8 * i + lane], &rest_[lane * KP]);
        right -= c * sum_rows(parts);
      }
      x[i] = select8(c > zero, right / roots[i], zero);
      for (int j = 0; j <= i; ++j) {
        for (int lane = 0; lane < 8; ++lane)
          parts[lane] = dot<V>(others_[8 * i + lane], &scaled_[(lane * kMost + j) * KP]);
        M[i * (i + 1) / 2 + j] = roots[i] * roots[j] * sum_rows(parts);
      }
    }
    for (int i = 0; i < n; ++i) {  // Cholesky and L x' = x; the diagonal holds 1 / L_ii
      v8* Li = M + i * (i + 1) / 2;
      for (int j = 0; j < i; ++j) {
        const v8* Lj = M + j * (j + 1) / 2;
        v8 a = Li[j];
        for (int k = 0; k < j; ++k) a -= Li[k] * Lj[k];
        Li[j] = a * Lj[j];
        x[i] -= Li[j] * x[j];
      }
      v8 a = Li[i] + splat(1.0f);
      for (int k = 0; k < i; ++k) a -= Li[k] * Li[k];
      Li[i] = splat(1.0f) / sqrt8(a);
      x[i] *= Li[i];
    }
    for (int i = n - 1; i >= 0; --i) {
      const v8* Li = M + i * (i + 1) / 2;
      x[i] *= Li[i];
      for (int k = 0; k < i; ++k) x[k] -= Li[k] * x[i];
      store8(weight_ + 8 * i, roots[i] * x[i]);
    }
  }

  template <int V>
  v8 dot(const float* a, const float* b) const {
    const std::int64_t KP = V ? 8 * V : shape_.KP;
    v8 sum = load8(a) * load8(b);
    for (std::int64_t k = 8; k < KP; k += 8) sum += load8(a + k) * load8(b + k);
    return sum;
  }

  // Compute mu of a row; `square` is its square plus the variances, `check` is 0 if all are finite and positive.
  template <int V, bool Priors>
  void means(int n, int lane, v8& square, v8& check) {
    const std::int64_t KP = V ? 8 * V : shape_.KP;
    float* out = out_.rows + row_[lane] * 2 * shape_.row;
    square = check = splat(0.0f);
    constexpr int W = V ? V : 1;
    for (std::int64_t k0 = 0; k0 < KP; k0 += 8 * W) {
      v8 mean[W];
      for (int i = 0; i < W; ++i) mean[i] = has_rest() ? load8(&rest_[lane * KP + k0 + 8 * i]) : splat(0.0f);
      for (int j = 0; j < n; ++j) {
        const v8 w = splat(weight_[8 * j + lane]);
        for (int i = 0; i < W; ++i) mean[i] += w * load8(&scaled_[(lane * kMost + j) * KP + k0 + 8 * i]);
      }
      if (lane >= rows_) continue;
      for (int i = 0; i < W; ++i) {
        const v8 variance = load8(out + KP + k0 + 8 * i);
        store8(out + k0 + 8 * i, mean[i]);
        if constexpr (Priors) {
          const std::int64_t at = row_[lane] * KP + k0 + 8 * i;
          const v8 from = prior_.mean ? mean[i] - load8(prior_.mean + at) : mean[i];
          const v8 square_of = from * from + variance;
          square += prior_.precision ? load8(prior_.precision + at) * square_of : square_of;
        } else {
          square += mean[i] * mean[i] + variance;
        }
        check += (mean[i] + variance) * splat(0.0f);
        check += select8(variance >= splat(0.0f), splat(0.0f), splat(__builtin_nanf("")));
      }
    }
  }

  // Take one logarithm for many variances, before their product overflows a double.
  void check_products() {
    for (d4& four : products_) {
      const auto inside = (four > 1e-150) & (four < 1e150);
      if (inside[0] & inside[1] & inside[2] & inside[3]) continue;
      for (int lane = 0; lane < 4; ++lane) out_.moments[1] += std::log(four[lane]);
      four = d4{1, 1, 1, 1};
    }
  }

  // r is not 0.
  bool has_rest() const { return pass_.constants.epsilon != 1.0f || prior_.mean; }

  static i8 load_ints(const std::int32_t* p) {
    i8 x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }

  const Pass& pass_;
  const Prior& prior_;
  RowsOut& out_;
  Solver& solver_;
  Shape shape_;
  Waiting waiting_[kMost / 2 + 1][8];  // by half the edges
  int filled_[kMost / 2 + 1] = {};

  // The rows that are stepped, one in each lane. Edge e of a lane is at 8 e + lane.
  int rows_ = 0;
  std::int64_t row_[8];
  const float* own_[8];
  alignas(32) std::int32_t count_[8], liked_[8];
  alignas(32) float own_bias_[8], own_bias_variance_[8], own_offset_[8], bias_precision_[8], bias_pull_[8];
  const float* others_[8 * kMost];
  alignas(32) float bias_[8 * kMost], bias_variance_[8 * kMost], kappa_[8 * kMost],
      precision_[8 * kMost], pull_[8 * kMost], weight_[8 * kMost];
  Buffer<float> rest_;    // [8, KP]
  Buffer<float> scaled_;  // [8, kMost, KP]
  d4 products_[2] = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  double bound_ = 0;
};

}  // namespace considerate::CONSIDERATE_ISA
