// The structs that the arithmetic kernels read and write. They are plain, so that one build of kernels.cpp per
// instruction set can stand behind one table of functions.
#pragma once
#include <cstdint>

namespace considerate {

static inline std::int64_t padded(std::int64_t factors) { return (factors + 7) / 8 * 8; }
static inline std::int64_t triangle(std::int64_t factors) { return factors * (factors + 1) / 2; }

// One side of the posterior: the rows of all its users, or of all its items. A row is packed as [mean | variance], each
// padded with zeros to a multiple of eight floats.
struct Side {
  std::int64_t factors = 0, count = 0;
  const float* rows = nullptr;           // [count, 2 * padded]
  const float* bias_mean = nullptr;      // [count]; null: no biases
  const float* bias_variance = nullptr;  // [count]
  const float* covariance = nullptr;     // [count, triangle]; null: diagonal
};

// Gaussian priors of single rows, in place of N(0, 1 / tau). Null is a mean of 0, and a precision of tau.
struct Prior {
  std::int64_t rows = 0, width = 0;       // of those arrays that are not null
  const float* mean = nullptr;            // [rows, padded]
  const float* precision = nullptr;       // [rows, padded]
  const float* bias_mean = nullptr;       // [rows]
  const float* bias_precision = nullptr;  // [rows]
};

// Edges by row. The indices of a row are on the other side; they must ascend where sums follow a tree.
struct Edges {
  std::int64_t rows = 0;
  const std::int64_t* starts = nullptr;   // [rows + 1]; null: no edges
  const std::int32_t* indices = nullptr;  // [edges]
  const float* weights = nullptr;         // [edges] kappa; null: each edge counts once

  std::int64_t count() const { return starts ? starts[rows] : 0; }
  std::int64_t count(std::int64_t row) const { return starts ? starts[row + 1] - starts[row] : 0; }
};

// The numbers that all rows of a pass share.
struct Constants {
  float offset = 0;                    // -log c, fixed inside the logit
  float likelihood_weight = 1;         // rho, the power of the likelihood
  float tau = 1, tau_bias = 1;         // E[tau] of the vectors and of the biases
  float epsilon = 1;                   // the step size
  const float* user_offset = nullptr;  // [users] added to the offset; null: nothing
  std::int64_t users = 0;
  bool slope = false;  // sum p v in place of z: how z falls as the row's own bias grows

  // The part of a user's offset that is the user's own.
  float extra(std::int64_t user) const { return user_offset ? user_offset[user] : 0.0f; }
};

// alpha, floor and l of some users. A pass over users writes them, unless they are given; a pass over items reads them.
struct Shares {
  std::int64_t users = 0, groups = 0;
  const double* temperature = nullptr;  // [users] T_m
  float* alpha = nullptr;               // [users, groups]
  float* floor = nullptr;               // [users, groups]
  float* curvature = nullptr;           // [users, groups] l = 2 lambda(xi)
  bool given = false;                   // made elsewhere: only read
};

// The groups of items, and beta of each item.
struct Groups {
  std::int64_t items = 0, count = 0;
  const std::int32_t* group_of_item = nullptr;  // [items]
  const double* beta = nullptr;                 // [items]
};

// Sums over the items of each group, weighted by beta and then by 1; b~ = b_n + offset.
struct ItemSums {
  std::int64_t groups = 0, factors = 0;
  const double* second = nullptr;      // [2, groups, triangle] E[v v'], off-diagonals doubled
  const double* first = nullptr;       // [2, groups, K] E[v]
  const double* first_bias = nullptr;  // [2, groups, K] b~ E[v]
  const double* scalars = nullptr;     // [2, groups, 4] the weight itself; b~; E[b~^2]; the largest weight
};

// Sums over users for each group, weighted by alpha and then by the floor.
struct UserSums {
  std::int64_t groups = 0, factors = 0;
  const double* second = nullptr;   // [2, groups, triangle] alpha l E[u u'], off-diagonals as they are
  const double* first = nullptr;    // [2, groups, 3, K] alpha E[u]; alpha l E[u]; alpha l b_m E[u]
  const double* scalars = nullptr;  // [2, groups, 3] alpha; alpha l; alpha l b_m
};

// The mass F_b(T) that draws without replacement give each group, tabulated over x = log T.
struct MassTable {
  std::int64_t groups = 0, grid = 0;
  const double* values = nullptr;  // [groups, grid, 2] F_b and dF_b / dx
  double start = 0, step = 1;
};

// The closed form of the expectation over q(H): w_mn = alpha_mb beta_n + floor_mb for the items of group b with beta >
// 0, and 0 for the others. A pass over users reads `items` and `masses`, a pass over items reads `users`.
struct Expected {
  Shares shares;
  Groups groups;
  ItemSums items;
  MassTable masses;
  UserSums users;
  const double* liked = nullptr;       // [users, groups, 7] LikedSums of each group; null: summed from the edges
  const float* corrections = nullptr;  // [liked edges and then unliked ones, 2] w and w l; null: computed from shares
  std::int64_t corrected = 0;          // number of edges with corrections
};

// The part of a group's sums that a user's liked items make: their E[h], and for each weight the sum of the weights and
// of the logit's weighted moments.
struct LikedSums {
  struct Moments {
    double weight, square, mean;
  };
  double mass;
  Moments by[2];
};
constexpr std::int64_t kLikedSums = sizeof(LikedSums) / sizeof(double);

// One pass over rows of a side: sums over edges (eq. 15, 16, 19), then the step (eq. 17-19).
struct Pass {
  Side own, other;
  Side before;           // own before its first block of coordinates was stepped: xi is computed from it
  Edges liked, unliked;  // the edges of H with g = 1 and with g = 0
  Constants constants;
  Prior prior;
  const Expected* expected = nullptr;  // null: H was drawn
  bool own_is_user = true;
  bool bias = false;                     // whether biases are stepped
  const std::int64_t* splits = nullptr;  // [leaves + 1] the other side's blocks, the leaves of the tree of sums
  std::int64_t leaves = 0;
  std::int64_t first = 0, last = 0;  // the rows to step: [first, last), or which[first .. last - 1]
  const std::int32_t* which = nullptr;
  std::int64_t block_first = 0, block_size = 0;  // the coordinates to step; size 0: all of them

  std::int64_t row(std::int64_t at) const { return which ? which[at] : at; }
  // Whether the pass computes alpha, floor and l of its users.
  bool makes_shares() const { return expected && own_is_user && !expected->shares.given; }
};

// Above 64 factors a row is stepped in blocks of 32 coordinates, one after the other, with the rest held (the paper's
// kappa). Sums and solve then grow like K, not like K^2 and K^3.
extern std::int64_t most_together;  // 64; benchmarks compare it with others
constexpr std::int64_t kBlock = 32;
static inline std::int64_t block_count(std::int64_t factors) {
  return factors <= most_together ? 1 : (factors + kBlock - 1) / kBlock;
}
static inline std::int64_t block_width(std::int64_t factors) {
  const std::int64_t blocks = block_count(factors);
  return blocks == 1 ? factors : padded((factors + blocks - 1) / blocks);
}

// The pass over one block of coordinates. From the second block on it steps rows that the blocks before have stepped,
// with xi held. The biases were stepped with the first block, and are held too.
static inline Pass nth_block(const Pass& pass, std::int64_t block, const float* rows, const float* bias_mean,
                             const float* bias_variance) {
  const std::int64_t factors = pass.own.factors;
  Pass part = pass;
  part.before = pass.own;
  if (block_count(factors) == 1) return part;
  const std::int64_t width = block_width(factors), rest = factors - block * width;
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

// The new rows of a pass.
struct RowsOut {
  float* rows = nullptr;  // [rows, 2 * padded], indexed like own; null: compute the users' bound alone
  float* bias_mean = nullptr;
  float* bias_variance = nullptr;
  double bound = 0;       // the edges' part of L_xi, at the best xi before the step
  std::int64_t bad = -1;  // the first row whose step was not finite
  // Sum of t E[(x - m)^2] over the new rows, with m and t of their priors or else 0 and 1; sum of log variance; then
  // the same two of the biases.
  double moments[4] = {0, 0, 0, 0};
};

// A pass over rows of a side where covariances are kept, of its own rows or of the other's; see full.hpp.
struct FullPass : Pass {
  const float* prior_precision = nullptr;  // [triangle] E[Lambda]
  const float* prior_pull = nullptr;       // [K] E[Lambda mu]
  bool quadrature = false;                 // E[log sigma] by quadrature, not by the logistic bound
};

struct FullOut : RowsOut {
  float* covariance = nullptr;  // [rows, triangle]; null: recover the factorised q (eq. 18)
};

// Sums of rows without their step: the messages of blocks, and rows split over threads.
struct SumsOut {
  float* second = nullptr;  // [rows, triangle]
  float* first = nullptr;   // [rows, K]
  float* bias = nullptr;    // [rows, 2] precision, precision times mean
  double bound = 0;         // the part of L_xi that these edges make, if the rows are users
};

// Sums of rows, to read.
struct SumsIn {
  const float* second = nullptr;
  const float* first = nullptr;
  const float* bias = nullptr;
};

// Rows of the walk from item to item: the entries of W that were kept, with items ascending within a row. A sharpened
// row keeps its mass, and its entries are in proportion to powers of W.
struct LiftTable {
  std::int64_t items_count = 0;
  const std::int64_t* starts = nullptr;   // [items + 1]
  const std::int32_t* items = nullptr;    // [entries]
  const float* shares = nullptr;          // [entries] W
  const float* rest = nullptr;            // [items] mass of a row that goes to p
  const float* inverse = nullptr;         // [items, padded to a multiple of 16] 1 / p; 0 if p is 0; -1 if unknown
  double mix = 0;                         // eps
  int sharpness = 1;                      // the power
  const std::int32_t* unknown = nullptr;  // ascending: items that no walk reaches; their ratio is 1
  std::int64_t unknown_count = 0;
};

// The best items of some users by base_n + u'v_n, plus lift * log(w_mn / p_n) with a table. Items lie in strips of
// sixteen, [strips, K, 16]. base is -infinity for an item that is excluded, and for the padding of the last strip.
struct TopK {
  std::int64_t factors = 0, strips = 0, count = 0, k = 0, user_stride = 0;
  const float* users = nullptr;
  const std::int64_t* rows = nullptr;         // [count] rows of `users`
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

// Rows of scores, for the ranks of held-out items or for the best items of each row. Seen items do not count.
struct RankRows {
  std::int64_t rows = 0, items = 0, k = 0;
  bool is_double = false;
  const void* scores = nullptr;          // [rows, items] of float or double
  const std::int64_t* starts = nullptr;  // [rows + 1] where the held items of a row start
  const std::int32_t* held = nullptr;
  const std::int64_t* seen_starts = nullptr;  // [rows + 1]
  const std::int32_t* seen = nullptr;         // ascending within a row
  std::int64_t* above = nullptr;              // [held] number of others with a higher score
  std::int64_t* ties = nullptr;               // [held] number of others with the same score
  std::int32_t* best = nullptr;               // [rows, k], -1 where fewer remain
};

// Rows of logits and lifts, for the ranks of held-out items by logit + k log pi + theta lift, for many (k, theta).
struct WeightedRows {
  std::int64_t items = 0, pairs = 0;
  const float* logits = nullptr;   // [rows, items]
  const float* log_pi = nullptr;   // [items]
  const float* lifts = nullptr;    // [rows, items]; null: no lift
  const float* weights = nullptr;  // [pairs, 2] of log pi and of lift
  RankRows rows;                   // the held and the seen items; its above and ties are [pairs, held]
};

// The kernels of one instruction set.
struct KernelTable {
  const char* name;
  void (*update_rows)(const Pass&, RowsOut&);
  // Sum the rows `which` over their edges to other[low, high).
  void (*sum_rows)(const Pass&, const std::int32_t* which, std::int64_t count, std::int64_t low, std::int64_t high,
                   bool with_groups, SumsOut&);
  void (*solve_rows)(const Pass&, const std::int32_t* which, std::int64_t count, const SumsIn&, RowsOut&);
  // LikedSums of rows [first, last): [rows, groups, 7].
  void (*liked_sums)(const Pass&, double* out);
  // w and w l of edges: the first counts[0] are those of user 0, and so on: [edges, 2].
  void (*edge_corrections)(const Expected&, std::int64_t users, const std::int32_t* counts, const std::int32_t* items,
                           float* out);
  void (*group_sums)(const Pass&, double* second, double* first, double* scalars);
  // The arrays of ItemSums.
  void (*item_group_sums)(const Side& items, float offset, const Groups&, double* second, double* first,
                          double* first_bias, double* scalars);
  void (*top_items)(const TopK&);
  void (*pair_moments)(const Side& own, const Side& other, std::int64_t count, const std::int64_t* own_rows,
                       const std::int32_t* other_rows, float* mean, float* variance);
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
