#include "arrays.hpp"
#include "dispatch.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cmath>
#include <optional>

namespace considerate {

using Matrix = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu, nb::ro>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Rows of scores with the items that each row has seen, checked.
static RankRows rank_rows(const Matrix& scores, const In<std::int64_t>& seen_starts, const In<std::int32_t>& seen) {
  RankRows task;
  task.is_double = scores.dtype() == nb::dtype<double>();
  require(task.is_double || scores.dtype() == nb::dtype<float>(), "scores are float32 or float64");
  task.rows = static_cast<std::int64_t>(scores.shape(0));
  task.items = static_cast<std::int64_t>(scores.shape(1));
  require(task.items < (std::int64_t{1} << 31), "too many items");
  task.scores = scores.data();
  require(static_cast<std::int64_t>(seen_starts.size()) == task.rows + 1, "seen_starts");
  task.seen_starts = seen_starts.data();
  task.seen = seen.data();
  std::int64_t before = 0;
  for (std::int64_t row = 0; row <= task.rows; ++row) {
    require(task.seen_starts[row] >= before && task.seen_starts[row] <= static_cast<std::int64_t>(seen.size()),
            "seen_starts");
    before = task.seen_starts[row];
  }
  for (std::size_t i = 0; i < seen.size(); ++i)
    require(seen.data()[i] >= 0 && seen.data()[i] < task.items, "a seen item is out of range");
  return task;
}

// The held items of each row, checked.
static void take_held(RankRows& task, const In<std::int64_t>& starts, const In<std::int32_t>& held) {
  require(static_cast<std::int64_t>(starts.size()) == task.rows + 1, "starts");
  for (std::int64_t row = 0; row < task.rows; ++row)
    require(starts.data()[row] >= 0 && starts.data()[row] <= starts.data()[row + 1], "starts");
  require(starts.data()[0] == 0 && starts.data()[task.rows] == static_cast<std::int64_t>(held.size()), "starts");
  for (std::size_t e = 0; e < held.size(); ++e)
    require(held.data()[e] >= 0 && held.data()[e] < task.items, "a held item is out of range");
  task.starts = starts.data();
  task.held = held.data();
}

void bind_rank(nb::module_& m) {
  m.def(
      "count_ranks",
      [](Matrix scores, In<std::int64_t> starts, In<std::int32_t> held, In<std::int64_t> seen_starts,
         In<std::int32_t> seen) {
        RankRows task = rank_rows(scores, seen_starts, seen);
        take_held(task, starts, held);
        auto above = new_array<std::int64_t>({held.size()});
        auto ties = new_array<std::int64_t>({held.size()});
        task.above = above.data();
        task.ties = ties.data();
        std::int64_t bad;
        {
          nb::gil_scoped_release release;
          bad = kernels_in_use()->count_ranks(task);
        }
        return std::make_tuple(above, ties, bad);
      },
      nb::arg("scores"), nb::arg("starts"), nb::arg("held"), nb::arg("seen_starts"), nb::arg("seen"),
      "(above, ties, bad): for each held item of a row, the number of others with a higher score and with the same "
      "score, without seen items. `bad` is the first row with a NaN, else -1; rows after it are not set.");
  m.def(
      "count_weighted_ranks",
      [](Rows logits, In<float> log_pi, std::optional<Rows> lifts, Rows weights, In<std::int64_t> starts,
         In<std::int32_t> held, In<std::int64_t> seen_starts, In<std::int32_t> seen) {
        WeightedRows task;
        task.rows = rank_rows(Matrix(logits), seen_starts, seen);
        take_held(task.rows, starts, held);
        task.items = task.rows.items;
        require(static_cast<std::int64_t>(log_pi.size()) == task.items, "log_pi");
        require(!lifts || (lifts->shape(0) == logits.shape(0) && lifts->shape(1) == logits.shape(1)), "lifts");
        require(weights.shape(1) == 2, "weights");
        for (std::size_t i = 0; i < 2 * weights.shape(0); ++i)
          require(std::isfinite(weights.data()[i]), "a weight is not finite");
        for (std::size_t i = 0; i < log_pi.size(); ++i)
          require(std::isfinite(log_pi.data()[i]), "log_pi is not finite");
        task.pairs = static_cast<std::int64_t>(weights.shape(0));
        task.logits = logits.data();
        task.log_pi = log_pi.data();
        task.lifts = lifts ? lifts->data() : nullptr;
        task.weights = weights.data();
        auto above = new_array<std::int64_t>({weights.shape(0), held.size()});
        auto ties = new_array<std::int64_t>({weights.shape(0), held.size()});
        task.rows.above = above.data();
        task.rows.ties = ties.data();
        std::int64_t bad;
        {
          nb::gil_scoped_release release;
          bad = kernels_in_use()->count_weighted_ranks(task);
        }
        return std::make_tuple(above, ties, bad);
      },
      nb::arg("logits"), nb::arg("log_pi"), nb::arg("lifts").none(), nb::arg("weights"), nb::arg("starts"),
      nb::arg("held"), nb::arg("seen_starts"), nb::arg("seen"),
      "(above [pairs, held], ties [pairs, held], bad): count_ranks of the scores logits + k * log_pi + theta * lifts "
      "for each row (k, theta) of weights.");
  m.def(
      "best_of_rows",
      [](Matrix scores, std::int64_t k, In<std::int64_t> seen_starts, In<std::int32_t> seen) {
        RankRows task = rank_rows(scores, seen_starts, seen);
        require(k > 0, "k");
        auto ids = new_array<std::int32_t>({static_cast<std::size_t>(task.rows), static_cast<std::size_t>(k)});
        task.k = k;
        task.best = ids.data();
        std::int64_t bad;
        {
          nb::gil_scoped_release release;
          bad = kernels_in_use()->best_of_rows(task);
        }
        return std::make_tuple(ids, bad);
      },
      nb::arg("scores"), nb::arg("k"), nb::arg("seen_starts"), nb::arg("seen"),
      "(ids [rows, k], bad): the k best items of each row without seen ones (ascending), the lower index first if "
      "scores tie, and -1 if fewer remain. `bad` is the first row with a NaN, else -1; rows after it are not set.");
}

}  // namespace considerate
