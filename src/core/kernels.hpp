// What the arithmetic kernels take and give. Plain structs, so that one build of kernels.cpp per instruction
// set can sit behind one table of functions.
//
// A side's rows are packed: [mean | variance], each padded with zeros to a multiple of eight floats.
#pragma once
#include <cstdint>

namespace considerate {

static inline std::int64_t padded(std::int64_t factors) { return (factors + 7) / 8 * 8; }
static inline std::int64_t triangle(std::int64_t factors) { return factors * (factors + 1) / 2; }

// One side of the posterior, all rows of it.
struct Side {
  const float* rows = nullptr;           // [rows, 2 * padded]
  const float* bias_mean = nullptr;      // [rows]
  const float* bias_variance = nullptr;  // [rows]
};

// The Gaussian prior of each row, where it is not N(0, 1 / tau); null means a mean of 0, a precision of tau.
struct RowPriors {
  const float* mean = nullptr;            // [rows, padded]
  const float* precision = nullptr;       // [rows, padded]
  const float* bias_mean = nullptr;       // [rows]
  const float* bias_precision = nullptr;  // [rows]
};

// Edges by row; within a row the other side's indices ascend where `splits` is used.
struct Adjacency {
  const std::int64_t* starts = nullptr;   // [rows + 1]
  const std::int32_t* indices = nullptr;  // [edges]
  const float* weights = nullptr;         // [edges] kappa; null where each edge counts once
};

// The closed-form part of the expectation over q(H). Null in sampled mode.
//   w_mn = alpha_mb beta_n + floor_mb of the items of group b with beta > 0, and 0 of those without.
//   Sums over a group come twice, [2, groups]: weighted by beta (by alpha), and by 1 (by the floor).
//   For user rows the fields of `items` are read, and (alpha, floor, l) are written, or read where they are given.
//   For item rows the fields of `users` are read, and (alpha, floor, l) are read.
struct Expected {
  std::int64_t groups = 0;
  const std::int32_t* group_of_item = nullptr;  // [items]
  const double* beta = nullptr;                 // [items]
  float* alpha = nullptr;                       // [users, groups]
  float* floor = nullptr;                       // [users, groups]
  float* curvature = nullptr;                   // [users, groups] l = 2 lambda(xi)

  // items: sums over the items of a group, weighted by beta and by 1; b~ = b_n + offset
  const double* second = nullptr;       // [2, groups, triangle] E[v v'], off-diagonals doubled
  const double* first = nullptr;        // [2, groups, K] E[v]
  const double* first_bias = nullptr;   // [2, groups, K] b~ E[v]
  const double* scalars = nullptr;      // [2, groups, 4] the weight itself; b~; E[b~^2]; the largest weight
  const double* temperature = nullptr;  // [users] T_m
  const double* table = nullptr;        // [groups, grid, 2] F_b and dF_b/dx at x = log T
  std::int64_t grid = 0;
  double grid_start = 0, grid_step = 1;
  const double* liked = nullptr;  // [users, groups, 7] what the groups hold of liked items, where those are elsewhere
  bool given = false;             // whether alpha, floor and l were made elsewhere and are only read
  const float* corrections =
      nullptr;  // [liked edges and unliked ones, 2] w and w l, where alpha is elsewhere (item rows)

  // users: sums over all users, weighted by alpha and by the floor, for every group
  const double* user_second = nullptr;   // [2, groups, triangle] alpha l E[u u'] (off-diagonals as they are)
  const double* user_first = nullptr;    // [2, groups, 3, K] alpha E[u]; alpha l E[u]; alpha l b_m E[u]
  const double* user_scalars = nullptr;  // [2, groups, 3] alpha; alpha l; alpha l b_m
};

// What a group's sums hold of a user's liked items: E[h], and by either weight the weight and the logit's moments.
struct LikedSums {
  struct Moments {
    double weight, square, mean;
  };
  double mass;
  Moments by[2];
};
constexpr std::int64_t kLikedSums = sizeof(LikedSums) / sizeof(double);

// One pass over rows [first, last) of a side, or over which[first .. last - 1]: sums over edges (eq. 15, 16, 19), then the
// step (eq. 17-19).
struct Pass {
  std::int64_t factors = 0, rows = 0, other_rows = 0, first = 0, last = 0;  // rows: of the whole side
  const std::int32_t* which = nullptr;
  Side own, other;
  Side before;               // own as it was when its first block of coordinates was stepped: xi is that of these
  Adjacency liked, unliked;  // the edges of H with g = 1 and with g = 0
  const std::int64_t* splits = nullptr;  // [leaves + 1] the other side's blocks, the leaves of the tree of sums
  std::int64_t leaves = 0;
  bool bias = false;                   // whether this side has biases
  float offset = 0;                    // -log c, fixed inside the logit
  const float* user_offset = nullptr;  // [users] what is added to it, or null
  float weight = 1;                    // rho
  float tau = 1, tau_bias = 1;
  RowPriors prior;
  float epsilon = 1;
  const Expected* expected = nullptr;
  bool own_is_user = true;
  bool slope = false;                            // sum p v in place of z: how z falls as the row's own bias grows
  std::int64_t block_first = 0, block_size = 0;  // the coordinates that are stepped; size 0 means all of them

  std::int64_t row(std::int64_t at) const { return which ? which[at] : at; }
  // What the logits of a user have beside the offset.
  float extra(std::int64_t user) const { return user_offset ? user_offset[user] : 0.0f; }
};

// Above 64 factors a row is stepped in blocks of 32 coordinates, one after the other, the rest held (the paper's kappa):
// sums and solve then grow like K, not K^2 and K^3.
extern std::int64_t most_together;  // 64; benchmarks compare it with others
constexpr std::int64_t kBlock = 32;
static inline std::int64_t block_count(std::int64_t factors) {
  return factors <= most_together ? 1 : (factors + kBlock - 1) / kBlock;
}
static inline std::int64_t block_width(std::int64_t factors) {
  const std::int64_t blocks = block_count(factors);
  return blocks == 1 ? factors : padded((factors + blocks - 1) / blocks);
}

// The pass over one block of coordinates. From the second on it steps rows that the blocks before have stepped, with xi
// held, and the biases, stepped with the first, are held too.
static inline Pass nth_block(const Pass& pass, std::int64_t block, const float* rows, const float* bias_mean,
                             const float* bias_variance) {
  Pass part = pass;
  part.before = pass.own;
  if (block_count(pass.factors) == 1) return part;
  const std::int64_t width = block_width(pass.factors), rest = pass.factors - block * width;
  part.block_first = block * width;
  part.block_size = rest < width ? rest : width;
  if (block > 0) {
    part.own.rows = rows;
    if (pass.bias) {
      part.own.bias_mean = bias_mean;
      part.own.bias_variance = bias_variance;
    }
    part.bias = false;
  }
  return part;
}

struct RowsOut {
  float* rows = nullptr;  // [rows, 2 * padded], indexed like own; null where only the users' bound is asked for
  float* bias_mean = nullptr;
  float* bias_variance = nullptr;
  double bound = 0;       // sum over the edges of H of their part of L_xi, at xi's optimum before the step
  std::int64_t bad = -1;  // the first row whose step was not finite
  // of the new rows: sum of t E[(x - m)^2], m and t of the rows' priors or else 0 and 1; sum of log variance; the same of
  // the biases
  double moments[4] = {0, 0, 0, 0};
};

// One pass over rows of a side where covariances are kept, of its own rows or of the other's; see full.hpp.
struct FullPass {
  std::int64_t factors = 0;
  Side own, other;
  const float* own_covariance = nullptr;    // [rows, triangle], null where the own rows are factorised
  const float* other_covariance = nullptr;  // the same of the other side
  Adjacency liked, unliked;
  const float* prior_precision = nullptr;  // [triangle] E[Lambda]
  const float* prior_pull = nullptr;       // [K] E[Lambda mu]
  bool bias = false, quadrature = false;   // whether E[log sigma] is by quadrature, or by the logistic bound
  float offset = 0, weight = 1, tau_bias = 1, epsilon = 1;
  const float* own_offset = nullptr;    // [rows] what the logit has beside the offset, where the rows are users
  const float* other_offset = nullptr;  // the same where the others are
};

struct FullOut : RowsOut {
  float* covariance = nullptr;  // [rows, triangle], null where the factorised q is recovered (eq. 18)
};

// Sums of rows, for blocks that only send messages and for rows split over threads.
struct SumsOut {
  float* second = nullptr;  // [rows, triangle]
  float* first = nullptr;   // [rows, K]
  float* bias = nullptr;    // [rows, 2] precision, precision times mean
  double bound = 0;         // of the edges summed, where the rows are users
};

// The same to be read.
struct SumsIn {
  const float* second = nullptr;
  const float* first = nullptr;
  const float* bias = nullptr;
};

// Rows of the walk from item to item, W of the entries that were kept; items ascend within a row. Sharpened, a row keeps
// its mass and its entries are in proportion to the powers of W.
struct LiftTable {
  std::int64_t items_count = 0;
  const std::int64_t* starts = nullptr;   // [items + 1]
  const std::int32_t* items = nullptr;    // [entries]
  const float* shares = nullptr;          // [entries] W
  const float* rest = nullptr;            // [items] mass of a row that goes to p
  const float* inverse = nullptr;         // [items, padded to a multiple of 16] 1 / p, 0 where p is, -1 of `unknown`
  double mix = 0;                         // eps
  int sharpness = 1;                      // the power
  const std::int32_t* unknown = nullptr;  // ascending: items of which no walk can tell; their ratio is 1
  std::int64_t unknown_count = 0;
};

// The best items of some users by base_n + u'v_n, and lift * log(w_mn / p_n) where there is a table. Items lie in strips
// of sixteen, [strips, K, 16]; where an item is excluded, or there is none, base is -infinity.
struct TopK {
  std::int64_t factors = 0, strips = 0, count = 0, k = 0, user_stride = 0;
  const float* users = nullptr;
  const std::int64_t* rows = nullptr;         // [count] of users
  const float* items = nullptr;               // [strips, K, 16]
  const float* base = nullptr;                // [strips * 16]
  const std::int64_t* seen_starts = nullptr;  // [count + 1], or null
  const std::int32_t* seen = nullptr;
  const LiftTable* lift_table = nullptr;
  float lift = 0;
  const std::int64_t* liked_starts = nullptr;  // [count + 1], with a table
  const std::int32_t* liked = nullptr;
  float* scores_out = nullptr;        // [count, k], NaN where fewer remain
  std::int32_t* items_out = nullptr;  // [count, k], -1 where fewer remain
};

// Rows of scores: where held-out items are ranked in them, or the best of each row. What was seen does not count.
struct RankRows {
  std::int64_t rows = 0, items = 0, k = 0;
  bool is_double = false;
  const void* scores = nullptr;          // [rows, items] of float or double
  const std::int64_t* starts = nullptr;  // [rows + 1] of held
  const std::int32_t* held = nullptr;
  const std::int64_t* seen_starts = nullptr;  // [rows + 1] of seen
  const std::int32_t* seen = nullptr;         // ascending within a row
  std::int64_t* above = nullptr;              // [held] others with a higher score
  std::int64_t* ties = nullptr;               // [held] others with the same score
  std::int32_t* best = nullptr;               // [rows, k], -1 where fewer remain
};

// Rows of logits and lifts: where held-out items are ranked in them by logit + k log pi + theta lift, for many (k, theta).
struct WeightedRows {
  std::int64_t items = 0, pairs = 0;
  const float* logits = nullptr;   // [rows, items]
  const float* log_pi = nullptr;   // [items]
  const float* lifts = nullptr;    // [rows, items], or null: no lift
  const float* weights = nullptr;  // [pairs, 2] of log pi and of lift
  RankRows rows;                   // what is held and seen; its above and ties are [pairs, held]
};

struct KernelTable {
  const char* name;
  void (*update_rows)(const Pass&, RowsOut&);
  // Rows given by `which`; only the edges to other[low, high).
  void (*sum_rows)(const Pass&, const std::int32_t* which, std::int64_t count, std::int64_t low, std::int64_t high,
                   bool with_groups, SumsOut&);
  void (*solve_rows)(const Pass&, const std::int32_t* which, std::int64_t count, const SumsIn&, RowsOut&);
  // What the groups hold of the liked items of rows [first, last): [rows, groups, 7], as LikedSums.
  void (*liked_sums)(const Pass&, double* out);
  // w and w l of liked edges, counts[m] of user m, one user's after the other's: [edges, 2].
  void (*edge_corrections)(const Expected&, std::int64_t users, const std::int32_t* counts, const std::int32_t* items,
                           float* out);
  void (*group_sums)(const Pass&, double* second, double* first, double* scalars);
  void (*item_group_sums)(const Pass&, const double* beta, const std::int32_t* group_of_item, std::int64_t items,
                          std::int64_t groups, double* second, double* first, double* first_bias, double* scalars);
  void (*top_items)(const TopK&);
  void (*pair_moments)(const Pass&, std::int64_t count, const std::int64_t* own, const std::int32_t* other, float* mean,
                       float* variance);
  float (*fma_loop)(std::int64_t rounds);
  void (*logistic)(std::int64_t count, const float* xi_squared, float* curvature, float* height);
  std::int64_t (*count_ranks)(const RankRows&);  // the first row with a NaN, or -1
  std::int64_t (*best_of_rows)(const RankRows&);
  std::int64_t (*count_weighted_ranks)(const WeightedRows&);
  void (*walk_lifts)(const LiftTable&, const std::int64_t* liked_starts, const std::int32_t* liked, std::int64_t count,
                     float* out);
  void (*walk_lifts_of)(const LiftTable&, const std::int64_t* liked_starts, const std::int32_t* liked,
                        std::int64_t count, const std::int64_t* pair_starts, const std::int32_t* pair_items,
                        float* out);
  void (*logarithms)(std::int64_t count, const float* x, float* exact, float* below);  // log8, log_below8
  std::int64_t (*inverse_factor)(std::int64_t n, double* upper, double* inverse);
  void (*update_full_rows)(const FullPass&, std::int64_t first, std::int64_t last, FullOut&);
};

}  // namespace considerate
