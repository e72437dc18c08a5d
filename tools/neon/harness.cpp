// Runs every family of kernels on inputs from a fixed generator and writes what they give, as text with all bits, to
// standard output. tools/neon/check.sh builds it for this machine and for aarch64 and compares.
#include <cstdio>
#include <cmath>
#include <limits>
#include <vector>

#include "../../src/core/drawer.hpp"
#include "../../src/core/kernels.hpp"
#include "../../src/core/random.hpp"

namespace considerate {
extern const KernelTable table_baseline;
std::int64_t most_together = 64;
}  // namespace considerate

using namespace considerate;

static Random generator(2026);

static float normal(float scale) {
  double sum = 0;  // of uniforms: no libm, so the same bits everywhere
  for (int i = 0; i < 12; ++i) sum += generator.uniform();
  return static_cast<float>(sum - 6) * scale;
}

template <class T>
static void show(const char* name, const T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) std::printf("%s\t%zu\t%.17g\n", name, i, static_cast<double>(values[i]));
}
template <class T>
static void show(const char* name, const std::vector<T>& values) {
  show(name, values.data(), values.size());
}

struct Rows {
  std::vector<float> rows, bias_mean, bias_variance;
  std::int64_t count, factors;
  Rows(std::int64_t count, std::int64_t factors)
      : rows(static_cast<std::size_t>(count * 2 * padded(factors))), count(count), factors(factors) {
    const std::int64_t KP = padded(factors);
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t k = 0; k < factors; ++k) {
        rows[static_cast<std::size_t>(r * 2 * KP + k)] = normal(0.3f);
        rows[static_cast<std::size_t>(r * 2 * KP + KP + k)] = static_cast<float>(0.05 + 0.2 * generator.uniform());
      }
      bias_mean.push_back(normal(0.5f));
      bias_variance.push_back(static_cast<float>(0.1 + 0.2 * generator.uniform()));
    }
  }
  Side side() const { return {factors, count, rows.data(), bias_mean.data(), bias_variance.data()}; }
};

struct RandomEdges {
  std::vector<std::int64_t> starts{0};
  std::vector<std::int32_t> indices;
  RandomEdges(std::int64_t rows, std::int64_t others, double chance) {  // row r is the denser the larger r is
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < others; ++n)
        if (generator.uniform() < chance * static_cast<double>(r) / static_cast<double>(rows))
          indices.push_back(static_cast<std::int32_t>(n));
      starts.push_back(static_cast<std::int64_t>(indices.size()));
    }
  }
  Edges read() const { return {static_cast<std::int64_t>(starts.size()) - 1, starts.data(), indices.data()}; }
};

// Sums, steps, the small systems of rows with few edges, and blocks of coordinates.
static void passes(const KernelTable& kernels, std::int64_t factors, float epsilon, bool splits) {
  const std::int64_t count = 37, others = 90;
  const Rows own(count, factors), other(others, factors);
  const RandomEdges liked(count, others, 0.6), unliked(count, others, 0.6);
  const std::vector<std::int64_t> leaves{0, 30, 55, others};
  Pass pass;
  pass.last = count;
  pass.own = pass.before = own.side();
  pass.other = other.side();
  pass.liked = liked.read();
  pass.unliked = unliked.read();
  if (splits) {
    pass.splits = leaves.data();
    pass.leaves = 3;
  }
  pass.bias = true;
  pass.constants.offset = -0.7f;
  pass.constants.likelihood_weight = 1.3f;
  pass.constants.tau = 9.0f;
  pass.constants.epsilon = epsilon;
  pass.own_is_user = !splits;
  std::vector<float> rows(own.rows.size()), mean(own.bias_mean.size()), variance(mean.size());
  RowsOut out;
  out.rows = rows.data();
  out.bias_mean = mean.data();
  out.bias_variance = variance.data();
  kernels.update_rows(pass, out);
  show("rows", rows);
  show("bias mean", mean);
  show("bias variance", variance);
  show("bound", &out.bound, 1);
  show("log moments", out.moments, 4);  // libm's log is of the machine

  const Pass block = nth_block(pass, 0, nullptr, nullptr, nullptr);
  const std::int64_t K = block.block_size ? block.block_size : factors;
  const std::vector<std::int32_t> which{36, 3, 20, 11, 30, 8, 9, 35, 28};
  std::vector<float> second(which.size() * static_cast<std::size_t>(triangle(K))),
      first(which.size() * static_cast<std::size_t>(K)), bias(which.size() * 2);
  SumsOut sums{second.data(), first.data(), bias.data(), 0};
  const auto chosen = static_cast<std::int64_t>(which.size());
  kernels.sum_rows(block, which.data(), chosen, 0, others, false, sums);
  show("second", second);
  show("first", first);
  show("bias sums", bias);
  kernels.solve_rows(block, which.data(), chosen, {second.data(), first.data(), bias.data()}, out);
  show("solved", rows);

  std::vector<std::int64_t> mine;
  std::vector<std::int32_t> theirs;
  for (int i = 0; i < 50; ++i) {
    mine.push_back(static_cast<std::int64_t>(generator.below(count)));
    theirs.push_back(static_cast<std::int32_t>(generator.below(others)));
  }
  std::vector<float> logit(50), spread(50);
  kernels.pair_moments(pass.own, pass.other, 50, mine.data(), theirs.data(), logit.data(), spread.data());
  show("pair means", logit);
  show("pair variances", spread);
}

// The closed form: the items' sums by group, the users' step with them, and the users' sums.
static void groups(const KernelTable& kernels, std::int64_t factors) {
  const std::int64_t users = 21, items = 60, groups = 5, grid = 40;
  const Rows own(users, factors), other(items, factors);
  const RandomEdges liked(users, items, 0.5);
  std::vector<std::int32_t> group_of_item;
  std::vector<double> beta, temperature(static_cast<std::size_t>(users), 0.4), table;
  for (std::int64_t n = 0; n < items; ++n) {
    group_of_item.push_back(static_cast<std::int32_t>(n % groups));
    beta.push_back(n == 7 ? 0.0 : 0.2 + generator.uniform());
  }
  for (std::int64_t b = 0; b < groups; ++b)
    for (std::int64_t x = 0; x < grid; ++x) {
      table.push_back(0.2 * static_cast<double>(x + b));
      table.push_back(0.2);
    }
  const auto T = static_cast<std::size_t>(triangle(factors)), K = static_cast<std::size_t>(factors),
             B = std::size_t{2 * groups};
  std::vector<double> second(B * T), first(B * K), first_bias(B * K), scalars(B * 4);
  const Groups of_items{items, groups, group_of_item.data(), beta.data()};
  kernels.item_group_sums(other.side(), -0.3f, of_items, second.data(), first.data(), first_bias.data(),
                          scalars.data());
  show("item group second", second);
  show("item group first", first);
  show("item group biased", first_bias);
  show("item group scalars", scalars);

  const auto cells = static_cast<std::size_t>(users * groups);
  std::vector<float> alpha(cells), floor(cells), curvature(cells);
  Expected expected;
  expected.shares = {users, groups, temperature.data(), alpha.data(), floor.data(), curvature.data()};
  expected.groups = of_items;
  expected.items = {groups, factors, second.data(), first.data(), first_bias.data(), scalars.data()};
  expected.masses = {groups, grid, table.data(), -6, 0.3};
  Pass pass;
  pass.last = users;
  pass.own = own.side();
  pass.other = other.side();
  pass.liked = liked.read();
  pass.bias = true;
  pass.constants.offset = -0.3f;
  pass.expected = &expected;
  std::vector<float> rows(own.rows.size()), mean(own.bias_mean.size()), variance(mean.size());
  RowsOut out;
  out.rows = rows.data();
  out.bias_mean = mean.data();
  out.bias_variance = variance.data();
  kernels.update_rows(pass, out);
  show("log alpha", alpha);  // from log T
  show("log floor", floor);
  show("log curvature", curvature);
  show("log expected rows", rows);
  std::vector<double> user_second(B * T), user_first(B * 3 * K), user_scalars(B * 3);
  kernels.group_sums(pass, user_second.data(), user_first.data(), user_scalars.data());
  show("log user second", user_second);
  show("log user first", user_first);
  show("log user scalars", user_scalars);
}

// Ranking: the best of all items with and without lift, held-out items among rows of scores.
static void ranking(const KernelTable& kernels, std::int64_t factors) {
  const std::int64_t users = 9, strips = 6, items = strips * 16, k = 10;
  const auto all = static_cast<std::size_t>(items);
  std::vector<float> vectors, item_vectors, base, shares, rest, inverse(all, static_cast<float>(items));
  std::vector<std::int64_t> which, starts{0};
  std::vector<std::int32_t> neighbours;
  for (std::int64_t i = 0; i < users * factors; ++i) vectors.push_back(normal(0.5f));
  for (std::int64_t i = 0; i < items * factors; ++i) item_vectors.push_back(normal(0.5f));
  for (std::int64_t n = 0; n < items; ++n) {
    base.push_back(n > 90 ? -std::numeric_limits<float>::infinity() : normal(1.0f));
    for (std::int64_t to = n % 7; to < items; to += 7) {
      neighbours.push_back(static_cast<std::int32_t>(to));
      shares.push_back(static_cast<float>(generator.uniform() / 20));
    }
    starts.push_back(static_cast<std::int64_t>(neighbours.size()));
    rest.push_back(0.1f);
  }
  for (std::int64_t m = 0; m < users; ++m) which.push_back(m);
  const RandomEdges liked(users, 90, 0.3);
  const LiftTable table{items, starts.data(), neighbours.data(), shares.data(), rest.data(), inverse.data(), 0.05};
  std::vector<float> scores(static_cast<std::size_t>(users * k)), lifts(static_cast<std::size_t>(users * items));
  std::vector<std::int32_t> best(scores.size());
  for (const bool with_lift : {false, true}) {
    TopK ask;
    ask.factors = ask.user_stride = factors;
    ask.strips = strips;
    ask.count = users;
    ask.k = k;
    ask.users = vectors.data();
    ask.rows = which.data();
    ask.items = item_vectors.data();
    ask.base = base.data();
    ask.seen_starts = ask.liked_starts = liked.starts.data();
    ask.seen = ask.liked = liked.indices.data();
    if (with_lift) {
      ask.lift_table = &table;
      ask.lift = 1.5f;
    }
    ask.scores_out = scores.data();
    ask.items_out = best.data();
    kernels.top_items(ask);
    show("top scores", scores);
    show("top items", best);
  }
  kernels.walk_lifts(table, liked.starts.data(), liked.indices.data(), users, lifts.data());
  show("lifts", lifts);

  std::vector<float> logits, log_pi;
  for (std::int64_t i = 0; i < users * items; ++i) logits.push_back(std::round(normal(4.0f)) / 4);  // with ties
  for (std::int64_t n = 0; n < items; ++n) log_pi.push_back(std::round(normal(4.0f)) / 4);
  const RandomEdges held(users, items, 0.1);
  std::vector<std::int64_t> above(held.indices.size() * 2), ties(above.size());
  std::vector<std::int32_t> first(static_cast<std::size_t>(users * k));
  RankRows ranks;
  ranks.rows = users;
  ranks.items = items;
  ranks.k = k;
  ranks.scores = logits.data();
  ranks.starts = held.starts.data();
  ranks.held = held.indices.data();
  ranks.seen_starts = liked.starts.data();
  ranks.seen = liked.indices.data();
  ranks.above = above.data();
  ranks.ties = ties.data();
  ranks.best = first.data();
  kernels.count_ranks(ranks);
  kernels.best_of_rows(ranks);
  show("above", above);
  show("ties", ties);
  show("best", first);
  const std::vector<float> weights{0.5f, 0.0f, 1.0f, 1.5f};
  const WeightedRows weighted{items, 2, logits.data(), log_pi.data(), logits.data(), weights.data(), ranks};
  kernels.count_weighted_ranks(weighted);
  show("weighted above", above);
  show("weighted ties", ties);
}

// Draws by popularity and by the walk, which are whole numbers, and the alias tables that they read.
static void draws() {
  const std::int64_t users = 25, items = 100;
  std::vector<double> weights;
  std::vector<float> shares, rest;
  std::vector<std::int64_t> starts{0};
  std::vector<std::int32_t> neighbours;
  for (std::int64_t n = 0; n < items; ++n) {
    weights.push_back(0.01 + generator.uniform());
    for (std::int64_t to = n % 9; to < items; to += 9) {
      neighbours.push_back(static_cast<std::int32_t>(to));
      shares.push_back(static_cast<float>(generator.uniform() / 15));
    }
    starts.push_back(static_cast<std::int64_t>(neighbours.size()));
    rest.push_back(0.2f);
  }
  std::vector<std::uint64_t> thresholds(weights.size()), highest;
  std::vector<std::int32_t> aliases(weights.size());
  build_alias(weights.data(), items, thresholds.data(), aliases.data());
  for (const std::uint64_t threshold : thresholds) highest.push_back(threshold >> 11);  // what a double holds
  show("alias thresholds", highest);
  show("aliases", aliases);
  std::vector<WalkSlot> slots(neighbours.size() + weights.size());
  for (std::int64_t n = 0; n < items; ++n) {
    const std::int64_t from = starts[static_cast<std::size_t>(n)], to = starts[static_cast<std::size_t>(n) + 1];
    build_slots(neighbours.data() + from, shares.data() + from, to - from, 0.2f, 0.05, slots.data() + from + n);
  }
  const WalkTable walk{{starts.data(), neighbours.data()}, shares.data(), rest.data(), slots.data(), 0.05};
  const RandomEdges liked(users, items, 0.5);
  for (const WalkTable* table : {static_cast<const WalkTable*>(nullptr), &walk}) {
    const DrawSettings settings{1, 2, 1.7, weights.data(), {thresholds.data(), aliases.data(), items}, items, table};
    Drawer drawer(settings);
    for (std::int64_t m = 0; m < users; ++m) {
      const std::int64_t from = liked.starts[static_cast<std::size_t>(m)];
      const std::int64_t degree = liked.starts[static_cast<std::size_t>(m) + 1] - from;
      const std::int64_t count = negatives_of(settings, liked.indices.data() + from, degree, m);
      std::vector<std::int32_t> drawn(static_cast<std::size_t>(count));
      drawer.draw(m, liked.indices.data() + from, degree, count, drawn.data());
      show(table ? "drawn by the walk" : "drawn by popularity", drawn);
    }
  }
}

int main() {
  const KernelTable& kernels = table_baseline;
  for (const std::int64_t factors : {3, 8, 20, 32, 45, 64, 70, 128})
    for (const float epsilon : {1.0f, 0.4f}) {
      passes(kernels, factors, epsilon, false);
      passes(kernels, factors, epsilon, true);
    }
  for (const std::int64_t factors : {5, 20, 70}) groups(kernels, factors);
  for (const std::int64_t factors : {5, 20}) ranking(kernels, factors);
  draws();
  std::vector<float> x, one(200), two(200);
  for (int i = 0; i < 200; ++i) x.push_back(static_cast<float>(i * i) / 50 + 1e-6f);
  kernels.logistic(200, x.data(), one.data(), two.data());
  show("curvature", one);
  show("height", two);
  kernels.logarithms(200, x.data(), one.data(), two.data());
  show("logarithms", one);
  show("below", two);
  return 0;
}
