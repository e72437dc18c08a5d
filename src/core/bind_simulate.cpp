#include "arrays.hpp"
#include "half_edges.hpp"
#include "simulate.hpp"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace considerate {
namespace {

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// These functions refuse only arguments that would write outside the arrays; considerate.simulation.simulate checks the
// rest.

bool within(const Input<std::int32_t>& degrees, std::size_t most) {
  return std::all_of(degrees.data(), degrees.data() + degrees.size(),
                     [most](std::int32_t d) { return d >= 0 && static_cast<std::size_t>(d) <= most; });
}

template <class T>
Out<T> copy_of(const Input<T>& array) {
  auto copy = new_array<T>({array.size()});
  std::copy_n(array.data(), array.size(), copy.data());
  return copy;
}

std::vector<std::int64_t> row_starts(const Input<std::int32_t>& degrees) {
  std::vector<std::int64_t> row(degrees.size() + 1, 0);
  for (std::size_t m = 0; m < degrees.size(); ++m) row[m + 1] = row[m] + degrees.data()[m];
  return row;
}

// The user of each edge.
Out<std::int32_t> repeat_users(const std::vector<std::int64_t>& row) {
  auto users = new_array<std::int32_t>({static_cast<std::size_t>(row.back())});
  for (std::size_t m = 0; m + 1 < row.size(); ++m)
    std::fill(users.data() + row[m], users.data() + row[m + 1], static_cast<std::int32_t>(m));
  return users;
}

auto equalise(Input<std::int32_t> user_degrees, Input<std::int32_t> item_degrees, Input<double> user_cdf,
              std::int64_t user_minimum, Input<double> item_cdf, std::int64_t item_minimum, std::uint64_t seed,
              std::uint64_t attempt, std::int64_t free, std::int64_t homing) {
  require(user_degrees.size() && item_degrees.size() && user_cdf.size() && item_cdf.size(), "empty array");
  const auto users = copy_of(user_degrees), items = copy_of(item_degrees);
  Equalised done;
  {
    nb::gil_scoped_release release;
    const InverseCdf user_law(user_cdf.data(), user_cdf.size());
    const InverseCdf item_law(item_cdf.data(), item_cdf.size());
    done = equalise_degrees(users.data(), users.size(), items.data(), items.size(), user_law, user_minimum, item_law,
                            item_minimum, seed, attempt, free, homing);
  }
  return std::make_tuple(users, items, done.redraws, done.gap);
}

auto join(Input<std::int32_t> user_degrees, Input<std::int32_t> item_degrees, std::uint64_t seed,
          std::uint64_t attempt) {
  require(within(user_degrees, item_degrees.size()) && within(item_degrees, user_degrees.size()),
          "a degree exceeds the other side");
  const auto row = row_starts(user_degrees);
  require(row.back() == row_starts(item_degrees).back(), "the sums of the degrees differ");
  const auto items = new_array<std::int32_t>({static_cast<std::size_t>(row.back())});
  Joined done;
  {
    nb::gil_scoped_release release;
    done = Joiner(row, item_degrees.data(), item_degrees.size(), items.data(), seed, attempt).run();
  }
  return std::make_tuple(repeat_users(row), items, done.repairs, done.rebuilt);
}

auto consider(Input<std::int32_t> counts, Input<double> weights, std::uint64_t seed) {
  const auto positive = std::count_if(weights.data(), weights.data() + weights.size(), [](double w) { return w > 0; });
  require(weights.size() && within(counts, static_cast<std::size_t>(positive)), "more items than positive weights");
  const auto row = row_starts(counts);
  const auto items = new_array<std::int32_t>({static_cast<std::size_t>(row.back())});
  {
    nb::gil_scoped_release release;
    draw_considered(row, weights.data(), weights.size(), items.data(), seed);
  }
  return std::make_tuple(repeat_users(row), items);
}

auto join_around_likes(Input<std::int32_t> user_counts, Input<std::int32_t> item_counts,
                       Input<std::int64_t> liked_starts, Input<std::int32_t> liked, std::uint64_t seed,
                       std::uint64_t sweep, int tries) {
  const auto users = static_cast<std::int64_t>(user_counts.size()),
             items = static_cast<std::int64_t>(item_counts.size());
  require(within(user_counts, item_counts.size()) && within(item_counts, user_counts.size()),
          "a count exceeds the other side");
  require(static_cast<std::int64_t>(liked_starts.size()) == users + 1 && liked_starts.data()[0] == 0 &&
              liked_starts.data()[users] == static_cast<std::int64_t>(liked.size()),
          "starts");
  for (std::size_t e = 0; e < liked.size(); ++e)
    require(liked.data()[e] >= 0 && liked.data()[e] < items, "an item is out of range");
  JoinedAround done;
  {
    nb::gil_scoped_release release;
    done = join_around(user_counts.data(), users, item_counts.data(), items, liked_starts.data(), liked.data(), seed,
                       sweep, tries);
  }
  return std::make_tuple(copied(done.users), copied(done.items), done.redraws, done.left_out);
}

}  // namespace

void bind_simulate(nb::module_& m) {
  using namespace nb::literals;
  m.def("equalise_degrees", &equalise, "user_degrees"_a, "item_degrees"_a, "user_cdf"_a, "user_minimum"_a, "item_cdf"_a,
        "item_minimum"_a, "seed"_a, "attempt"_a, "free"_a, "homing"_a,
        "Redraw one user and one item at a time until the sums agree; see simulate_reference.equalise_degrees.");
  m.def("join_half_edges", &join, "user_degrees"_a, "item_degrees"_a, "seed"_a, "attempt"_a,
        "A random graph with these degrees and no double edge; see simulate_reference.join_half_edges.");
  m.def("join_around", &join_around_likes, "user_counts"_a, "item_counts"_a, "liked_starts"_a, "liked"_a, "seed"_a,
        "sweep"_a, "tries"_a,
        "Half-edges joined at random, no pair twice and none that is liked: (users, items, redraws, left out).");
  m.def("draw_considered", &consider, "counts"_a, "weights"_a, "seed"_a,
        "Items by popularity without replacement; see simulate_reference.draw_considered.");
}

}  // namespace considerate
