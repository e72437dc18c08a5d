// The closed form of the expectation over q(H): the part of groups of items in the sums of users, and of users in the
// sums of items. In float64, because the liked items' part of these sums is taken back.
#pragma once
#include <cmath>

#include "accumulate.hpp"
#include "logistic.hpp"

namespace considerate::CONSIDERATE_ISA {

static inline std::int64_t padded4(std::int64_t count) { return (count + 3) / 4 * 4; }

// E[x x'] of one row, lower triangle.
static inline void outer_product(std::int64_t K, const float* mean, const float* variance, double* out) {
  for (std::int64_t i = 0; i < K; ++i) {
    const double x = mean[i];
    for (std::int64_t j = 0; j < i; ++j) *out++ = x * mean[j];
    *out++ = x * x + static_cast<double>(variance[i]);
  }
}

// alpha_mb, floor_mb and l_mb of some users, from the items' sums by group less the liked items' part; and the groups'
// part of the users' P and z. Users are taken together so that the groups' sums are read once for all. A row of sums
// belongs to a group: first come the rows weighted by beta, then those weighted by 1. alpha_ and alpha_l_ have a number
// for each row, so that the floors follow the alphas.
class UserGroups {
 public:
  static constexpr int kTogether = 4;
  UserGroups(const Pass& pass, Tape* tape)
      : pass_(pass),
        tape_(tape),
        groups_(pass.makes_shares() ? pass.expected->shares.groups : 0),
        rows_(2 * groups_),
        K_(groups_ ? pass.own.factors : 0),
        T_(triangle(K_)),
        width_(padded4(T_ + 2 * K_)),
        matrix_(rows_ * width_),
        vectors_(kTogether * width_),
        sums_(kTogether * width_),
        plain_(kTogether * K_),
        squares_(kTogether * rows_),
        liked_(kTogether * groups_),
        alpha_(kTogether * rows_),
        alpha_l_(kTogether * rows_),
        masses_(groups_),
        active_(rows_),
        xi_squared_(padded(groups_)),
        l_(padded(groups_)),
        height_(padded(groups_)) {
    for (std::int64_t b = 0; b < rows_; ++b) {
      const Expected& ex = *pass.expected;
      double* row = &matrix_[b * width_];
      for (std::int64_t i = 0; i < T_; ++i) row[i] = ex.items.second[b * T_ + i];
      for (std::int64_t k = 0; k < K_; ++k) {
        row[T_ + k] = ex.items.first[b * K_ + k];
        row[T_ + K_ + k] = ex.items.first_bias[b * K_ + k];
      }
    }
  }

  bool holds(std::int64_t row) const { return row >= first_ && row < first_ + count_; }
  // w of a user and an item, and w l.
  double w(std::int64_t row, std::int64_t group, double beta) const {
    const double* alpha = &alpha_[(row - first_) * rows_ + group];
    return beta > 0 ? alpha[0] * beta + alpha[groups_] : 0.0;
  }
  double wl(std::int64_t row, std::int64_t group, double beta) const {
    const double* alpha_l = &alpha_l_[(row - first_) * rows_ + group];
    return beta > 0 ? alpha_l[0] * beta + alpha_l[groups_] : 0.0;
  }
  const double* second(std::int64_t row) const { return &sums_[(row - first_) * width_]; }  // off-diagonals doubled

  // Begin with rows first .. first + count - 1. Fill in `liked` of each, then call finish.
  void begin(std::int64_t first, int count) {
    first_ = first;
    count_ = count;
    liked_.zero();
  }
  LikedSums* liked(std::int64_t row) { return &liked_[(row - first_) * groups_]; }

  // Compute alpha, floor, l and the sums over groups. Returns the bound of the pairs that were not liked.
  double finish() {
    for (int r = 0; r < count_; ++r) {
      share(r);
      const Own own = own_of(r);
      double* vector = &vectors_[r * width_];
      outer_product(K_, own.mean, own.variance, vector);
      for (std::int64_t k = 0; k < K_; ++k) {
        vector[T_ + k] = 2 * own.bias * own.mean[k];
        vector[T_ + K_ + k] = 2 * static_cast<double>(own.mean[k]);
      }
    }
    find_active();
    multiply();
    double bound = 0;
    for (int r = 0; r < count_; ++r) bound += curve(r);
    if (tape_) {
      tape_->write(alpha_.data(), bytes());
      tape_->write(alpha_l_.data(), bytes());
    }
    add_up();
    return bound;
  }

  // An earlier block of coordinates has called `finish`: its alpha and l are on the tape, and only the sums are
  // computed.
  bool again() const { return tape_ && pass_.block_first > 0; }
  void repeat() {
    tape_->read(alpha_.data(), bytes());
    tape_->read(alpha_l_.data(), bytes());
    find_active();
    add_up();
  }

  // Compute the groups' part of z, and of the two sums of the row's bias.
  void first(std::int64_t row, double* z, double* bias) const {
    const auto r = static_cast<int>(row - first_);
    const Own own = own_of(r);
    const double extra = pass_.constants.extra(row),
                 stepped_bias = (pass_.own.bias_mean ? pass_.own.bias_mean[row] : 0.0) + extra;
    const double *curved = &sums_[r * width_ + T_], *biased = curved + K_, *plain = &plain_[r * K_];
    double dot = 0;
    for (std::int64_t k = 0; k < K_; ++k) {
      z[k] = -(0.5 * plain[k] + biased[k] + stepped_bias * curved[k]);
      dot += curved[k] * own.mean[k];
    }
    bias[0] = 0;
    bias[1] = -dot;
    for (std::int64_t b = 0; b < rows_; ++b) {
      const double *scalars = pass_.expected->items.scalars + 4 * b, al = alpha_l_[r * rows_ + b];
      bias[0] += al * scalars[0];
      bias[1] -= 0.5 * alpha_[r * rows_ + b] * scalars[0] + al * (scalars[1] + extra * scalars[0]);
    }
  }

 private:
  struct Own {
    const float *mean, *variance;
    double bias, bias_variance;  // the bias includes the user's own offset
  };
  Own own_of(int r) const {
    const std::int64_t row = first_ + r;
    const Side& side = pass_.before;
    const float* mean = side.rows + row * 2 * padded(pass_.own.factors);
    const double bias = side.bias_mean ? side.bias_mean[row] : 0.0;
    return {mean, mean + padded(pass_.own.factors), bias + static_cast<double>(pass_.constants.extra(row)),
            side.bias_variance ? side.bias_variance[row] : 0.0};
  }

  // Compute alpha and floor of one user in every group: w = alpha beta + floor has the mass of draws without
  // replacement. The floor is above 0 only if w would exceed 1 without it: then the line ends at w = 1 for the largest
  // beta.
  //   alpha = mass / sum of beta,                               floor = 0
  //   alpha = (count - mass) / (count max beta - sum of beta),  floor = 1 - alpha max beta
  void share(int r) {
    const Expected& ex = *pass_.expected;
    const Mass mass(ex.masses, ex.shares.temperature[first_ + r]);
    double *alpha = &alpha_[r * rows_], *floor = alpha + groups_;
    for (std::int64_t b = 0; b < groups_; ++b) {
      alpha[b] = floor[b] = 0;
      const double count = left(r, b + groups_), beta = left(r, b), most = ex.items.scalars[4 * b + 3];
      if (!(count >= 1)) continue;
      const double wanted = lesser_of(count, greater_of(0.0, mass.of(b) - liked_[r * groups_ + b].mass));
      alpha[b] = wanted / beta;
      if (!(alpha[b] * most > 1)) continue;
      const double room = count * most - beta;
      alpha[b] = room > 0 ? lesser_of((count - wanted) / room, 1 / most) : 0.0;
      floor[b] = 1 - alpha[b] * most;
    }
  }

  // The weight of a row's items that a user has not liked.
  double left(int r, std::int64_t row) const {
    const std::int64_t by = row >= groups_;
    const double all = pass_.expected->items.scalars[4 * row];
    return greater_of(all - liked_[r * groups_ + row - by * groups_].by[by].weight, 1e-12 * all);
  }

  // Find the rows of sums that any of the users reads.
  void find_active() {
    active_count_ = 0;
    for (std::int64_t b = 0; b < rows_; ++b)
      for (int r = 0; r < count_; ++r)
        if (alpha_[r * rows_ + b] != 0) {
          active_[active_count_++] = b;
          break;
        }
  }

  // Multiply these rows with every user's vector, two by four at a time.
  void multiply() {
    for (std::int64_t at = 0; at < active_count_; at += 2) {
      const std::int64_t which[2] = {active_[at], active_[least(at + 1, active_count_ - 1)]};
      const double* rows[2] = {&matrix_[which[0] * width_], &matrix_[which[1] * width_]};
      d4 parts[2][kTogether] = {};
      for (std::int64_t i = 0; i < width_; i += 4) {
        const d4 one = load4(rows[0] + i), two = load4(rows[1] + i);
        for (int r = 0; r < kTogether; ++r) {
          const d4 vector = load4(&vectors_[r * width_ + i]);
          parts[0][r] += one * vector;
          parts[1][r] += two * vector;
        }
      }
      for (int c = 0; c < 2; ++c)
        for (int r = 0; r < kTogether; ++r) {
          const d4 sum = parts[c][r];
          squares_[r * rows_ + which[c]] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
    }
  }

  // Compute xi and l of one user in every group, shared by its items. Returns the bound of the pairs that were not
  // liked.
  double curve(int r) {
    const Expected& ex = *pass_.expected;
    const Own own = own_of(r);
    const double* alpha = &alpha_[r * rows_];
    for (std::int64_t b = 0; b < groups_; ++b) {
      double mass = 0, square = 0;
      for (std::int64_t row = b; row < rows_; row += groups_) {
        if (alpha[row] == 0) continue;
        const double* scalars = ex.items.scalars + 4 * row;
        mass += alpha[row] * left(r, row);
        square += alpha[row] * (squares_[r * rows_ + row] - liked_[r * groups_ + b].by[row != b].square + scalars[2] +
                                2 * own.bias * scalars[1] + (own.bias * own.bias + own.bias_variance) * scalars[0]);
      }
      masses_[b] = mass;
      xi_squared_[b] = mass > 0 ? static_cast<float>(greater_of(0.0, square / mass)) : 0.0f;
    }
    for (std::int64_t b = 0; b < groups_; b += 8) {
      const LogisticBound8 bound(load8(&xi_squared_[b]));
      store8(&l_[b], bound.curvature());
      store8(&height_[b], bound.height());
    }
    double bound = 0;
    const std::int64_t at = (first_ + r) * groups_;
    for (std::int64_t b = 0; b < groups_; ++b) {
      ex.shares.alpha[at + b] = static_cast<float>(alpha[b]);
      ex.shares.floor[at + b] = static_cast<float>(alpha[b + groups_]);
      ex.shares.curvature[at + b] = l_[b];
      bound += masses_[b] * static_cast<double>(height_[b]);
    }
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t by = row >= groups_, b = row - by * groups_;
      alpha_l_[r * rows_ + row] = alpha[row] * static_cast<double>(l_[b]);
      if (alpha[row] == 0) continue;
      const double *scalars = ex.items.scalars + 4 * row, *first = &matrix_[row * width_ + T_];
      double mean = scalars[1] + own.bias * scalars[0] - liked_[r * groups_ + b].by[by].mean;
      for (std::int64_t k = 0; k < K_; ++k) mean += own.mean[k] * first[k];
      bound -= 0.5 * alpha[row] * mean;
    }
    return bound;
  }

  std::size_t bytes() const { return static_cast<std::size_t>(kTogether * rows_) * sizeof(double); }

  // Sum over groups: all moments weighted by alpha l, the first moments also by alpha. No block of coordinates reads
  // the triangle's rows before its own.
  void add_up() {
    std::int64_t i = triangle(pass_.block_first) / 8 * 8;
    for (; i + 8 <= width_; i += 8) add_columns<2>(i);
    for (; i < width_; i += 4) add_columns<1>(i);
    plain_.zero();
    for (int r = 0; r < count_; ++r)
      for (std::int64_t at = 0; at < active_count_; ++at) {
        const double *first = &matrix_[active_[at] * width_ + T_], alpha = alpha_[r * rows_ + active_[at]];
        for (std::int64_t k = 0; k < K_; ++k) plain_[r * K_ + k] += alpha * first[k];
      }
  }

  template <int C>
  void add_columns(std::int64_t i) {
    d4 totals[kTogether][C] = {};
    for (std::int64_t at = 0; at < active_count_; ++at) {
      const std::int64_t b = active_[at];
      d4 columns[C];
      for (int c = 0; c < C; ++c) columns[c] = load4(&matrix_[b * width_ + i + 4 * c]);
      for (int r = 0; r < kTogether; ++r) {
        const double al = alpha_l_[r * rows_ + b];
        for (int c = 0; c < C; ++c) totals[r][c] += d4{al, al, al, al} * columns[c];
      }
    }
    for (int r = 0; r < kTogether; ++r)
      for (int c = 0; c < C; ++c) std::memcpy(&sums_[r * width_ + i + 4 * c], &totals[r][c], sizeof(d4));
  }

  // F_b at x = log T: cubic Hermite between grid points, linear in T below the grid, constant above it.
  struct Mass {
    Mass(const MassTable& masses, double temperature) : table(masses.values), stride(2 * masses.grid) {
      const double x = (std::log(temperature) - masses.start) / masses.step;
      if (!(x > 0)) {
        f0 = temperature / std::exp(masses.start);
        return;
      }
      const std::int64_t last = masses.grid - 2;
      const std::int64_t i = x >= static_cast<double>(last + 1) ? last : static_cast<std::int64_t>(x);
      const double t = x >= static_cast<double>(last + 1) ? 1.0 : x - static_cast<double>(i), t2 = t * t, t3 = t2 * t;
      table += 2 * i;
      f0 = 2 * t3 - 3 * t2 + 1;
      g0 = (t3 - 2 * t2 + t) * masses.step;
      f1 = 3 * t2 - 2 * t3;
      g1 = (t3 - t2) * masses.step;
    }
    double of(std::int64_t group) const {
      const double* at = table + group * stride;
      return f0 * at[0] + g0 * at[1] + f1 * at[2] + g1 * at[3];
    }
    const double* table;
    std::int64_t stride;
    double f0 = 0, g0 = 0, f1 = 0, g1 = 0;
  };

  const Pass& pass_;
  Tape* tape_;
  std::int64_t groups_, rows_, K_, T_, width_, first_ = 0, active_count_ = 0;
  int count_ = 0;
  Buffer<double> matrix_;                  // [rows, width]: second, first, first_bias
  Buffer<double> vectors_, sums_;          // [kTogether, width]
  Buffer<double> plain_;                   // [kTogether, K]
  Buffer<double> squares_;                 // [kTogether, rows]
  Buffer<LikedSums> liked_;                // [kTogether, groups]
  Buffer<double> alpha_, alpha_l_;         // [kTogether, rows]
  Buffer<double> masses_;                  // [groups] of one user
  Buffer<std::int64_t> active_;            // [rows] the first active_count_ are set
  Buffer<float> xi_squared_, l_, height_;  // of one user
};

// The groups' part of an item's sums: the users' sums of its group, weighted by the item's beta and by 1.
class ItemGroups {
 public:
  explicit ItemGroups(const Pass& pass)
      : pass_(pass),
        second_(pass.expected && !pass.own_is_user ? triangle(pass.own.factors) : 0),
        first_(pass.expected && !pass.own_is_user ? pass.own.factors : 0) {}

  // The sums of one item, with the biases and means that it has in this block of coordinates.
  void sum(std::int64_t item, const Own& own) {
    const Groups& groups = pass_.expected->groups;
    const UserSums& users = pass_.expected->users;
    const std::int64_t K = pass_.own.factors;
    const double offset = pass_.constants.offset, constant = static_cast<double>(own.stepped_bias) + offset;
    second_.zero();
    first_.zero();
    bias[0] = bias[1] = 0;
    for (int by = 0; by < 2; ++by) {
      const std::int64_t b = groups.group_of_item[item] + by * groups.count;
      const double weight = by ? (groups.beta[item] > 0 ? 1.0 : 0.0) : groups.beta[item];
      const double* of = users.second + b * triangle(K);
      for (std::int64_t i = 0; i < triangle(K); ++i) second_[i] += weight * of[i];
      const double *plain = users.first + b * 3 * K, *curved = plain + K, *biased = curved + K;
      double dot = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        first_[k] -= weight * (0.5 * plain[k] + constant * curved[k] + biased[k]);
        dot += curved[k] * own.mean[k];
      }
      const double* scalars = users.scalars + 3 * b;
      bias[0] += weight * scalars[1];
      bias[1] -= weight * (0.5 * scalars[0] + dot + offset * scalars[1] + scalars[2]);
    }
  }
  const double* second() const { return second_.data(); }  // lower triangle, off-diagonals as they are
  const double* first() const { return first_.data(); }
  double bias[2] = {0, 0};

 private:
  const Pass& pass_;
  Buffer<double> second_, first_;
};

// The arrays of UserSums over rows [first, last) of the new users, with the alpha, floor and l of the pass before:
// second [2, groups, T], first [2, groups, 3, K] and scalars [2, groups, 3]. Some users at a time, so that sums stay in
// registers.
class GroupSums {
 public:
  static constexpr int kTogether = 16;

  explicit GroupSums(const Pass& pass)
      : pass_(pass),
        ex_(*pass.expected),
        K_(pass.own.factors),
        T_(triangle(K_)),
        rows_((2 * ex_.shares.groups + 3) / 4 * 4),
        width_(padded4(T_ + 2 * K_ + 2)),
        vectors_(kTogether * width_),
        plain_(kTogether * padded4(K_ + 1)),
        alpha_(kTogether * rows_),
        alpha_l_(kTogether * rows_),
        curved_sums_(rows_ * width_),
        plain_sums_(rows_ * padded4(K_ + 1)) {}

  void add(std::int64_t first, int count) {
    if (count < kTogether) {
      alpha_.zero();
      alpha_l_.zero();
    }
    const std::int64_t row = padded(K_), plain_width = padded4(K_ + 1);
    for (int u = 0; u < count; ++u) {
      const std::int64_t user = first + u;
      const float* mean = pass_.own.rows + user * 2 * row;
      const double own_bias = pass_.own.bias_mean ? pass_.own.bias_mean[user] : 0.0;
      const double bias = own_bias + static_cast<double>(pass_.constants.extra(user));
      double *vector = &vectors_[u * width_], *plain = &plain_[u * plain_width];
      outer_product(K_, mean, mean + row, vector);
      for (std::int64_t k = 0; k < K_; ++k) {
        plain[k] = vector[T_ + k] = mean[k];
        vector[T_ + K_ + k] = bias * mean[k];
      }
      plain[K_] = vector[T_ + 2 * K_] = 1.0;
      vector[T_ + 2 * K_ + 1] = bias;
      for (std::int64_t b = 0; b < 2 * ex_.shares.groups; ++b) {
        const bool flat = b >= ex_.shares.groups;
        const std::int64_t at = user * ex_.shares.groups + b - (flat ? ex_.shares.groups : 0);
        const double alpha = flat ? ex_.shares.floor[at] : ex_.shares.alpha[at];
        alpha_[u * rows_ + b] = alpha;
        alpha_l_[u * rows_ + b] = alpha * ex_.shares.curvature[at];
      }
    }
    add_weighted(alpha_l_.data(), vectors_.data(), width_, curved_sums_.data());
    add_weighted(alpha_.data(), plain_.data(), plain_width, plain_sums_.data());
  }

  void write(double* second, double* first, double* scalars) const {
    for (std::int64_t b = 0; b < 2 * ex_.shares.groups; ++b) {
      const double *curved = &curved_sums_[b * width_], *plain = &plain_sums_[b * padded4(K_ + 1)];
      for (std::int64_t i = 0; i < T_; ++i) second[b * T_ + i] = curved[i];
      for (std::int64_t k = 0; k < K_; ++k) {
        first[(3 * b) * K_ + k] = plain[k];
        first[(3 * b + 1) * K_ + k] = curved[T_ + k];
        first[(3 * b + 2) * K_ + k] = curved[T_ + K_ + k];
      }
      scalars[3 * b] = plain[K_];
      scalars[3 * b + 1] = curved[T_ + 2 * K_];
      scalars[3 * b + 2] = curved[T_ + 2 * K_ + 1];
    }
  }

 private:
  // sums [rows, width] += weights [users, rows]' vectors [users, width], four rows by two vectors at a time
  void add_weighted(const double* weights, const double* vectors, std::int64_t width, double* sums) const {
    for (std::int64_t b = 0; b < rows_; b += 4) {
      bool any = false;
      for (int u = 0; u < kTogether; ++u)
        for (int c = 0; c < 4; ++c) any |= weights[u * rows_ + b + c] != 0;
      if (!any) continue;
      std::int64_t i = 0;
      for (; i + 8 <= width; i += 8) add_tile<2>(weights + b, vectors + i, width, sums + b * width + i);
      for (; i < width; i += 4) add_tile<1>(weights + b, vectors + i, width, sums + b * width + i);
    }
  }
  template <int C>
  void add_tile(const double* weights, const double* vectors, std::int64_t width, double* sums) const {
    d4 totals[4][C];
    for (int b = 0; b < 4; ++b)
      for (int c = 0; c < C; ++c) totals[b][c] = load4(sums + b * width + 4 * c);
    for (int u = 0; u < kTogether; ++u) {
      d4 columns[C];
      for (int c = 0; c < C; ++c) columns[c] = load4(vectors + u * width + 4 * c);
      for (int b = 0; b < 4; ++b) {
        const double w = weights[u * rows_ + b];
        for (int c = 0; c < C; ++c) totals[b][c] += d4{w, w, w, w} * columns[c];
      }
    }
    for (int b = 0; b < 4; ++b)
      for (int c = 0; c < C; ++c) std::memcpy(sums + b * width + 4 * c, &totals[b][c], sizeof(d4));
  }

  const Pass& pass_;
  const Expected& ex_;
  std::int64_t K_, T_, rows_, width_;
  Buffer<double> vectors_, plain_;           // [kTogether, width]: E[u u'], E[u], b E[u], 1, b; and E[u], 1
  Buffer<double> alpha_, alpha_l_;           // [kTogether, rows]
  Buffer<double> curved_sums_, plain_sums_;  // [rows, width]
};

static void group_sums(const Pass& pass, double* second, double* first, double* scalars) {
  GroupSums sums(pass);
  for (std::int64_t user = pass.first; user < pass.last; user += GroupSums::kTogether)
    sums.add(user, static_cast<int>(least(GroupSums::kTogether, pass.last - user)));
  sums.write(second, first, scalars);
}

// The arrays of ItemSums, which are zero before.
static void item_group_sums(const Side& items, float offset, const Groups& groups, double* second, double* first,
                            double* first_bias, double* scalars) {
  const std::int64_t K = items.factors, row = padded(K);
  for (std::int64_t item = 0; item < groups.items; ++item) {
    const double beta = groups.beta[item];
    if (!(beta > 0)) continue;
    const float *mean = items.rows + item * 2 * row, *variance = mean + row;
    const double bias = (items.bias_mean ? items.bias_mean[item] : 0.0) + static_cast<double>(offset);
    for (int by = 0; by < 2; ++by) {
      const std::int64_t b = groups.group_of_item[item] + by * groups.count;
      const double weight = by ? 1.0 : beta;
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
      of[2] += weight * (bias * bias + (items.bias_variance ? items.bias_variance[item] : 0.0));
      of[3] = greater_of(of[3], weight);
    }
  }
}

}  // namespace considerate::CONSIDERATE_ISA
