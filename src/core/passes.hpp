// The passes over rows that Python calls. Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

// A user's share of the expectation in closed form: alpha_mb and l_mb per group, and what they add to P and z.
struct UserGroups {
  explicit UserGroups(std::int64_t groups, std::int64_t K)
      : alpha(groups), l(groups), liked_beta(groups), liked_mass(groups),
        liked_square(groups), liked_mean(groups), liked_count(groups), outer(triangle(K)) {}
  Buffer<double> alpha, l, liked_beta, liked_mass, liked_square, liked_mean;
  Buffer<std::int64_t> liked_count;
  Buffer<double> outer;
};

// F_b at x = log T: cubic Hermite between grid points; linear in T below the grid, constant above.
static inline double interpolate(const Expected& ex, std::int64_t group, double temperature) {
  const double* table = ex.table + group * ex.grid * 2;
  const double x = (std::log(temperature) - ex.grid_start) / ex.grid_step;
  if (!(x > 0)) return table[0] * temperature / std::exp(ex.grid_start);
  if (x >= static_cast<double>(ex.grid - 1)) return table[2 * (ex.grid - 1)];
  const auto i = static_cast<std::int64_t>(x);
  const double t = x - static_cast<double>(i), h = ex.grid_step;
  const double f0 = table[2 * i], g0 = table[2 * i + 1] * h, f1 = table[2 * i + 2], g1 = table[2 * i + 3] * h;
  const double t2 = t * t, t3 = t2 * t;
  return (2 * t3 - 3 * t2 + 1) * f0 + (t3 - 2 * t2 + t) * g0 + (3 * t2 - 2 * t3) * f1 + (t3 - t2) * g1;
}

static double log_sigmoid_height(double xi) { return -std::log1p(std::exp(-xi)) - 0.5 * xi; }

static double curvature(double xi) { return xi < 1e-3 ? 0.25 - xi * xi / 48 : std::tanh(0.5 * xi) / (2 * xi); }

class RowSummer {
 public:
  explicit RowSummer(const Pass& pass)
      : pass_(pass), shape_(pass), own_(shape_), panel_(shape_), tree_(shape_),
        groups_(pass.expected ? pass.expected->groups : 0, pass.expected ? pass.factors : 0),
        scratch_(pass.factors) {
    if (pass.liked.starts) liked_end_ = pass.liked.indices + pass.liked.starts[pass.rows];
    if (pass.unliked.starts) unliked_end_ = pass.unliked.indices + pass.unliked.starts[pass.rows];
    far_ = pass.other_rows * 2 * shape_.row * static_cast<std::int64_t>(sizeof(float)) > kNear;
  }

  // The sums of a row over its edges to other[low, high), and with the closed-form part where asked for, in exchange
  // for another buffer; null where there is nothing to add.
  float* sum(std::int64_t row, std::int64_t low, std::int64_t high, bool with_groups, float* in_exchange) {
    own_.load(shape_, pass_.own, row);
    row_ = row;
    if (pass_.expected && pass_.own_is_user) prepare_groups(row);
    walk(row, low, high);
    if (pass_.expected && with_groups) add_groups(row);
    return tree_.take(in_exchange);
  }

  double bound() const { return bound_; }

 private:
  static constexpr std::uint64_t kGroupsPlace = ~std::uint64_t{0};
  static constexpr std::int64_t kAhead = 40;         // edges between a prefetch and its use
  static constexpr std::int64_t kNear = 768 << 10;  // bytes of the other side that need no prefetching

  struct Part {  // edges of one row to one block
    const std::int32_t* liked;
    const std::int32_t* unliked;
    std::int64_t liked_count, count;
  };

  // Visit the leaves in the order of their places.
  void walk(std::int64_t row, std::int64_t low, std::int64_t high) {
    std::int64_t at[2] = {0, 0}, end[2] = {0, 0};
    const Adjacency* edges[2] = {&pass_.liked, &pass_.unliked};
    for (int side = 0; side < 2; ++side)
      if (edges[side]->starts) {
        at[side] = edges[side]->starts[row];
        end[side] = edges[side]->starts[row + 1];
      }
    if (!pass_.splits) {
      leaves(0, {edges[0]->indices + at[0], edges[1]->indices + at[1], end[0] - at[0], end[0] - at[0] + end[1] - at[1]});
      return;
    }
    for (int side = 0; side < 2; ++side) {
      const std::int32_t* indices = edges[side]->indices;
      if (low > 0) at[side] = first_not_below(indices, at[side], end[side], low);
      if (high < INT32_MAX) end[side] = first_not_below(indices, at[side], end[side], high);
    }
    while (at[0] < end[0] || at[1] < end[1]) {
      std::int64_t next = INT64_MAX;
      for (int side = 0; side < 2; ++side)
        if (at[side] < end[side]) next = least(next, edges[side]->indices[at[side]]);
      const std::int64_t block = first_not_below(pass_.splits, 0, pass_.leaves + 1, next + 1) - 1;
      std::int64_t stop[2];
      for (int side = 0; side < 2; ++side) {
        stop[side] = at[side];
        const std::int32_t* indices = edges[side]->indices;
        while (stop[side] < end[side] && indices[stop[side]] < pass_.splits[block + 1]) ++stop[side];
      }
      const std::int64_t liked = stop[0] - at[0], unliked = stop[1] - at[1];
      leaves(block, {edges[0]->indices + at[0], edges[1]->indices + at[1], liked, liked + unliked});
      at[0] = stop[0];
      at[1] = stop[1];
    }
  }

  // The edges of one block, first the liked ones, a chunk to a leaf.
  void leaves(std::int64_t block, const Part& part) {
    for (std::int64_t start = 0; start < part.count; start += kChunk) {
      const std::uint64_t place = (static_cast<std::uint64_t>(block) << 32) | static_cast<std::uint64_t>(start / kChunk);
      leaf(tree_.leaf(place), part, start, least(part.count, start + kChunk));
    }
  }

  void leaf(float* node, const Part& part, std::int64_t start, std::int64_t stop) {
    switch (shape_.whole() ? shape_.KP / 8 : 0) {
      case 1: return panels<1>(node, part, start, stop);
      case 2: return panels<2>(node, part, start, stop);
      case 3: return panels<3>(node, part, start, stop);
      case 4: return panels<4>(node, part, start, stop);
      default: return panels<0>(node, part, start, stop);
    }
  }

  template <int V>
  void panels(float* node, const Part& part, std::int64_t start, std::int64_t stop) {
    const std::int64_t size = shape_.panel();
    for (std::int64_t e = start; e < stop; e += size) {
      const int edges = static_cast<int>(least(size, stop - e));
      gather(part, e, edges, pass_.expected != nullptr);
      panel_.moments<V>(own_, edges);
      float bias_sums[2];
      coefficients(edges, bias_sums);
      float* bias = node + shape_.second() + shape_.KP;
      if (e == start) {
        panel_.add_to<V, true>(node, edges);
        bias[0] = bias[1] = 0.0f;
      } else {
        panel_.add_to<V, false>(node, edges);
      }
      bias[0] += bias_sums[0];
      bias[1] += bias_sums[1];
    }
  }

  // The rows at the other ends of a panel's edges, the liked ones first; the last eight are filled up with the last edge.
  void gather(const Part& part, std::int64_t start, int edges, bool corrections) {
    const int liked = static_cast<int>(start >= part.liked_count ? 0 : least(edges, part.liked_count - start));
    gather_some(part.liked + start, liked_end_, 0, liked, corrections);
    if (liked < edges)
      gather_some(part.unliked + (start + liked - part.liked_count), unliked_end_, liked, edges, corrections);
    liked_ = liked;
    for (int e = edges; e % 8 != 0; ++e) {
      panel_.rows[e] = panel_.rows[edges - 1];
      panel_.bias[e] = panel_.bias_variance[e] = panel_.w[e] = panel_.wl[e] = 0.0f;
    }
  }

  void gather_some(const std::int32_t* indices, const std::int32_t* end, int first, int last, bool corrections) {
    const float* base = pass_.other.rows;
    const std::int64_t stride = 2 * shape_.row;
    for (int e = first; e < last; ++e, ++indices) panel_.rows[e] = base + *indices * stride;
    indices -= last - first;
    if (far_)
      for (const std::int32_t* ahead = indices + kAhead; ahead < indices + kAhead + (last - first) && ahead < end; ++ahead)
        prefetch(*ahead);
    if (pass_.other.bias_mean)
      for (int e = first; e < last; ++e) {
        panel_.bias[e] = pass_.other.bias_mean[indices[e - first]];
        panel_.bias_variance[e] = pass_.other.bias_variance[indices[e - first]];
      }
    if (corrections)
      for (int e = first; e < last; ++e) correction(indices[e - first], panel_.w[e], panel_.wl[e]);
  }

  // Bring a row near, some edges before it is needed; the lists of consecutive leaves and rows follow one another.
  void prefetch(std::int32_t index) const {
    const float* row = pass_.other.rows + static_cast<std::int64_t>(index) * 2 * shape_.row;
    for (std::int64_t k = 0; k < 2 * shape_.row; k += 16) __builtin_prefetch(row + k);
  }

  // p and y - p b of each edge: P gets p v v', z gets (y - p b) v, the row's own bias p and y - p (a - b_own), with b the
  // biases, and what coordinates outside the block add to the logit, and
  //   p = rho (2 lambda - w l),    y = rho (g - 1/2 + w / 2)
  void coefficients(int edges, float* bias_sums) {
    const v8 own_bias = splat(own_.bias), shift = splat(own_.bias + pass_.offset), rho = splat(pass_.weight);
    const v8 own_variance = splat(own_.bias_variance);
    v8 precision_sum = splat(0.0f), pull_sum = splat(0.0f), heights = splat(0.0f);
    for (int e = 0; e < edges; e += 8) {
      const v8 bias = load8(panel_.bias + e) + shift;
      const v8 half = select8(i8{0, 1, 2, 3, 4, 5, 6, 7} < (liked_ - e), splat(0.5f), splat(-0.5f));
      const v8 logit = load8(panel_.mean + e) + bias;
      const v8 xi_squared = logit * logit + load8(panel_.variance + e) + load8(panel_.bias_variance + e) + own_variance;
      const v8 xi = sqrt8(xi_squared), t = exp_minus(xi);
      v8 p = curvature8(xi, xi_squared, t), y = half;
      if (pass_.expected) {
        p -= load8(panel_.wl + e);
        y += splat(0.5f) * load8(panel_.w + e);
      }
      p *= rho;
      y *= rho;
      v8 height = pass_.own_is_user ? height8(xi, t) + half * logit : splat(0.0f);
      if (e + 8 > edges) {
        const i8 live = i8{0, 1, 2, 3, 4, 5, 6, 7} < (edges - e);
        p = select8(live, p, splat(0.0f));
        y = select8(live, y, splat(0.0f));
        height = select8(live, height, splat(0.0f));
      }
      store8(panel_.precision + e, p);
      store8(panel_.pull + e, y - p * (bias + load8(panel_.rest_of_mean + e)));
      precision_sum += p;
      pull_sum += y - p * (logit - own_bias);
      heights += height;
    }
    bias_sums[0] = static_cast<float>(sum_lanes(precision_sum));
    bias_sums[1] = static_cast<float>(sum_lanes(pull_sum));
    if (pass_.own_is_user) bound_ += sum_lanes(heights);
  }

  // w_mn and w_mn l_mb of a liked edge, which the group sums hold and must give back.
  void correction(std::int32_t index, float& w, float& wl) const {
    const Expected& ex = *pass_.expected;
    if (pass_.own_is_user) {
      const std::int64_t group = ex.group_of_item[index];
      w = static_cast<float>(groups_.alpha[group] * ex.beta[index]);
      wl = static_cast<float>(groups_.alpha[group] * ex.beta[index] * groups_.l[group]);
    } else {
      const std::int64_t at = static_cast<std::int64_t>(index) * ex.groups + ex.group_of_item[row_];
      w = static_cast<float>(static_cast<double>(ex.alpha[at]) * ex.beta[row_]);
      wl = static_cast<float>(static_cast<double>(ex.alpha_l[at]) * ex.beta[row_]);
    }
  }

  // alpha_mb, xi_mb and l_mb of a user, from the group sums less the liked items' own terms; and the bound of the
  // pairs that were not liked.
  void prepare_groups(std::int64_t user) {
    const Expected& ex = *pass_.expected;
    const std::int64_t K = pass_.factors, begin = pass_.liked.starts[user], end = pass_.liked.starts[user + 1];
    const double T = ex.temperature[user], own_bias = own_.bias;
    groups_.liked_beta.zero();
    groups_.liked_mass.zero();
    groups_.liked_square.zero();
    groups_.liked_mean.zero();
    groups_.liked_count.zero();
    sum_liked(begin, end, T);
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < K; ++i)
      for (std::int64_t j = 0; j <= i; ++j, ++at)
        groups_.outer[at] =
            static_cast<double>(own_.mean[i]) * own_.mean[j] + (i == j ? static_cast<double>(own_.variance[i]) : 0.0);
    for (std::int64_t b = 0; b < ex.groups; ++b) {
      const std::int64_t group = b;
      const double* scalars = ex.scalars + 4 * b;
      double alpha = 0, l = 0;
      if (ex.sizes[b] > groups_.liked_count[group]) {
        const double beta = greater_of(scalars[0] - groups_.liked_beta[group], 1e-12 * scalars[0]);
        const double mass = greater_of(0.0, interpolate(ex, b, T) - groups_.liked_mass[group]);
        alpha = mass / beta < 1.0 / scalars[3] ? mass / beta : 1.0 / scalars[3];
        double square = -groups_.liked_square[group], mean = -groups_.liked_mean[group];
        const double* second = ex.second + b * triangle(K);
        d4 parts[4] = {};
        std::int64_t i = 0;
        for (; i + 16 <= triangle(K); i += 16)
          for (int p = 0; p < 4; ++p) parts[p] += load4(second + i + 4 * p) * load4(&groups_.outer[i + 4 * p]);
        for (; i < triangle(K); ++i) square += second[i] * groups_.outer[i];
        const d4 sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
        square += (sum[0] + sum[1]) + (sum[2] + sum[3]);
        for (std::int64_t k = 0; k < K; ++k) {
          square += 2 * own_.mean[k] * (ex.first_bias[b * K + k] + own_bias * ex.first[b * K + k]);
          mean += own_.mean[k] * ex.first[b * K + k];
        }
        square += scalars[2] + 2 * own_bias * scalars[1] + (own_bias * own_bias + own_.bias_variance) * scalars[0];
        mean += scalars[1] + own_bias * scalars[0];
        const double xi = std::sqrt(greater_of(0.0, square / beta));
        l = curvature(xi);
        bound_ += alpha * (beta * log_sigmoid_height(xi) - 0.5 * mean);
      }
      groups_.alpha[group] = alpha;
      groups_.l[group] = l;
      ex.alpha[user * ex.groups + b] = static_cast<float>(alpha);
      ex.alpha_l[user * ex.groups + b] = static_cast<float>(alpha * l);
    }
  }

  // What the group sums hold of a user's liked items: their beta, E[h], and first two moments of the logit.
  void sum_liked(std::int64_t begin, std::int64_t end, double T) {
    const Expected& ex = *pass_.expected;
    const Part part{pass_.liked.indices + begin, nullptr, end - begin, end - begin};
    const v8 shift = splat(own_.bias + pass_.offset), own_variance = splat(own_.bias_variance);
    alignas(32) float beta[kPanel], mass[kPanel], logit[kPanel], square[kPanel];
    const int size = shape_.panel();
    for (std::int64_t start = 0; start < part.count; start += size) {
      const int edges = static_cast<int>(least(size, part.count - start));
      gather(part, start, edges, false);
      switch (shape_.whole() ? shape_.KP / 8 : 0) {
        case 1: panel_.moments<1>(own_, edges); break;
        case 2: panel_.moments<2>(own_, edges); break;
        case 3: panel_.moments<3>(own_, edges); break;
        case 4: panel_.moments<4>(own_, edges); break;
        default: panel_.moments<0>(own_, edges); break;
      }
      for (int e = 0; e < edges; ++e) beta[e] = static_cast<float>(T * ex.beta[part.liked[start + e]]);
      for (int e = edges; e % 8 != 0; ++e) beta[e] = 0.0f;
      for (int e = 0; e < edges; e += 8) {
        const v8 a = load8(panel_.mean + e) + load8(panel_.bias + e) + shift;
        store8(logit + e, a);
        store8(square + e, a * a + load8(panel_.variance + e) + load8(panel_.bias_variance + e) + own_variance);
        store8(mass + e, one_minus_exp(load8(beta + e)));
      }
      for (int e = 0; e < edges; ++e) {
        const std::int32_t item = part.liked[start + e];
        const double weight = ex.beta[item];
        if (!(weight > 0)) continue;
        const std::int64_t group = ex.group_of_item[item];
        groups_.liked_beta[group] += weight;
        groups_.liked_mass[group] += static_cast<double>(mass[e]);
        groups_.liked_square[group] += weight * static_cast<double>(square[e]);
        groups_.liked_mean[group] += weight * static_cast<double>(logit[e]);
        groups_.liked_count[group] += 1;
      }
    }
  }

  // What the groups add to a row: the closed-form sums, liked pairs included (their part is taken back per edge).
  void add_groups(std::int64_t row) {
    const Expected& ex = *pass_.expected;
    const std::int64_t K = pass_.factors, KP = shape_.KP, low = shape_.first, high = low + shape_.K;
    float* node = tree_.leaf(kGroupsPlace);
    Buffer<double>& second = groups_.outer;
    second.zero();
    scratch_.zero();
    double bias[2] = {0, 0};
    if (pass_.own_is_user) {
      for (std::int64_t b = 0; b < ex.groups; ++b) {
        const std::int64_t group = b;
        const double alpha = groups_.alpha[group], l = groups_.l[group], al = alpha * l;
        if (alpha == 0) continue;
        const double* of = ex.second + b * triangle(K);
        for (std::int64_t i = 0; i < triangle(K); ++i) second[i] += al * of[i];
        double dot = 0;
        for (std::int64_t k = 0; k < K; ++k) {
          const double s = ex.first[b * K + k];
          scratch_[k] -= 0.5 * alpha * s + al * (ex.first_bias[b * K + k] + own_.bias * s);
          dot += s * own_.mean[k];
        }
        bias[0] += al * ex.scalars[4 * b];
        bias[1] -= 0.5 * alpha * ex.scalars[4 * b] + al * (dot + ex.scalars[4 * b + 1]);
      }
      std::int64_t at = 0;  // the items' sums have their off-diagonals doubled
      for (std::int64_t i = 0; i < K; ++i)
        for (std::int64_t j = 0; j <= i; ++j, ++at)
          if (j < i) second[at] *= 0.5;
    } else {
      const std::int64_t b = ex.group_of_item[row];
      const double beta = ex.beta[row], constant = static_cast<double>(own_.bias) + pass_.offset;
      const double* of = ex.user_second + b * triangle(K);
      for (std::int64_t i = 0; i < triangle(K); ++i) second[i] = beta * of[i];
      const double *plain = ex.user_first + b * 3 * K, *curved = plain + K, *biased = curved + K;
      double dot = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        scratch_[k] = -beta * (0.5 * plain[k] + constant * curved[k] + biased[k]);
        dot += curved[k] * own_.mean[k];
      }
      const double* scalars = ex.user_scalars + 3 * b;
      bias[0] = beta * scalars[1];
      bias[1] = -beta * (0.5 * scalars[0] + dot + pass_.offset * scalars[1] + scalars[2]);
    }
    std::memset(node, 0, static_cast<std::size_t>(shape_.size()) * sizeof(float));
    for (std::int64_t i = low; i < high; ++i) {
      for (std::int64_t j = low; j <= i; ++j)
        node[(i - low) * KP + j - low] = static_cast<float>(pass_.weight * second[triangle(i) + j]);
      double pull = scratch_[i];  // less what the coordinates outside the block take
      for (std::int64_t j = 0; j < K; ++j)
        if (j < low || j >= high) pull -= second[j < i ? triangle(i) + j : triangle(j) + i] * own_.mean[j];
      node[shape_.second() + i - low] = static_cast<float>(pass_.weight * pull);
    }
    node[shape_.second() + KP] = static_cast<float>(pass_.weight * bias[0]);
    node[shape_.second() + KP + 1] = static_cast<float>(pass_.weight * bias[1]);
  }

  const Pass& pass_;
  Shape shape_;
  Own own_;
  Panel panel_;
  Tree tree_;
  UserGroups groups_;
  Buffer<double> scratch_;
  const std::int32_t *liked_end_ = nullptr, *unliked_end_ = nullptr;
  std::int64_t row_ = 0;
  int liked_ = 0;     // of the panel's edges
  bool far_ = false;  // whether the other side is larger than the second cache
  double bound_ = 0;
};

static void update_block(const Pass& pass, RowsOut& out) {
  RowSummer summer(pass);
  Solver solver(pass, out);
  const std::int64_t width = 2 * padded(pass.factors);
  for (std::int64_t row = pass.first; row < pass.last; ++row) {
    const float* soon = pass.own.rows + least(row + 8, pass.last - 1) * width;
    for (std::int64_t k = 0; k < width; k += 16) __builtin_prefetch(soon + k);
    solver.push(row, summer.sum(row, 0, INT32_MAX, true, solver.spare()));
  }
  solver.finish();
  out.bound = pass.weight * summer.bound();
}

// A row depends on itself and the other side alone, so the blocks after the first read what the ones before wrote.
static void update_rows(const Pass& pass, RowsOut& out) {
  const std::int64_t blocks = block_count(pass.factors);
  if (blocks == 1) return update_block(pass, out);
  double bound = 0, bias_moments[2] = {0, 0};
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Pass part = nth_block(pass, block, block ? out.rows : nullptr, out.bias_mean, out.bias_variance);
    for (double& moment : out.moments) moment = 0;
    update_block(part, out);
    if (block == 0) {
      bound = out.bound;
      bias_moments[0] = out.moments[2];
      bias_moments[1] = out.moments[3];
    }
  }
  out.bound = bound;
  out.moments[2] = bias_moments[0];
  out.moments[3] = bias_moments[1];
}

static void sum_rows_of(const Pass& pass, const std::int32_t* which, std::int64_t count, std::int64_t low,
                        std::int64_t high, bool with_groups, SumsOut& out) {
  RowSummer summer(pass);
  const Shape shape(pass);
  const std::int64_t K = shape.K, T = triangle(K);
  float* spare = new_node(shape);
  for (std::int64_t r = 0; r < count; ++r) {
    float* node = summer.sum(which[r], low, high, with_groups, spare);
    float* second = out.second + r * T;
    for (std::int64_t i = 0; i < K; ++i)
      for (std::int64_t j = 0; j <= i; ++j) *second++ = node ? node[i * shape.KP + j] : 0.0f;
    for (std::int64_t k = 0; k < K; ++k) out.first[r * K + k] = node ? node[shape.second() + k] : 0.0f;
    for (int b = 0; b < 2; ++b) out.bias[r * 2 + b] = node ? node[shape.second() + shape.KP + b] : 0.0f;
    if (node) spare = node;
  }
  std::free(spare);
}

static void solve_rows_of(const Pass& pass, const std::int32_t* which, std::int64_t count, const SumsOut& sums, RowsOut& out) {
  Solver solver(pass, out);
  const std::int64_t K = Shape(pass).K, T = triangle(K);
  for (std::int64_t r = 0; r < count; ++r)
    solver.push_packed(which[r], sums.second + r * T, sums.first + r * K, sums.bias + r * 2);
  solver.finish();
}

static void logistic_of_squares(std::int64_t count, const float* xi_squared, float* curvature_out, float* height) {
  for (std::int64_t e = 0; e < count; e += 8) {
    float buffer[8] = {0};
    const std::int64_t live = least(8, count - e);
    for (std::int64_t lane = 0; lane < live; ++lane) buffer[lane] = xi_squared[e + lane];
    const v8 squared = load8(buffer), xi = sqrt8(squared), t = exp_minus(xi);
    const v8 curvature = curvature8(xi, squared, t), heights = height8(xi, t);
    for (std::int64_t lane = 0; lane < live; ++lane) {
      curvature_out[e + lane] = curvature[lane];
      height[e + lane] = heights[lane];
    }
  }
}
