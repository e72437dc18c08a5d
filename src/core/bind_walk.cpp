#include "arrays.hpp"
#include "inclusion.hpp"
#include "lists.hpp"
#include "walk.hpp"
#include "walk_rows.hpp"

#include <nanobind/stl/tuple.h>

#include <algorithm>

namespace considerate {

// The likes of some users, both ways round.
struct HeldGraph : Held<WalkGraph> {
  std::int64_t rows = 0;       // number of rows of `users_of`
  std::vector<double> totals;  // A_m; empty if all likes pull alike

  const double* pulls() const { return totals.empty() ? nullptr : totals.data(); }
};

using PySums = std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<std::uint64_t>>;

// Memory for an array of unknown size. Pages beyond its end are never touched.
template <class T>
struct Room {
  T* data;
  nb::capsule owner;

  explicit Room(std::size_t most)
      : data(new T[most + 1]), owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }) {}
  Out<T> first(std::int64_t count) const { return Out<T>(data, {static_cast<std::size_t>(count)}, owner); }
};

static PySums arrays_of(const WalkSums& sums) { return {copied(sums.starts), copied(sums.items), copied(sums.sums)}; }

static SumsView view(const Lists& rows, const In<std::uint64_t>& sums, std::int64_t row) {
  return {rows.row(row), sums.data() + rows.starts[row], rows.size(row)};
}

// Cut rows of sums into rows of the table: (starts, items, shares, mass cut).
template <class SumsOf>
static std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<float>, Out<float>> cut_rows(
    std::int64_t rows, const double* p, std::int64_t items, std::int64_t keep, SumsOf sums_of) {
  std::vector<std::int64_t> starts{0};
  std::vector<std::int32_t> items_out;
  std::vector<float> shares, rest;
  {
    nb::gil_scoped_release release;
    RowCutter cutter(p, items, keep);
    for (std::int64_t row = 0; row < rows; ++row) {
      rest.push_back(static_cast<float>(cutter.cut(sums_of(row), items_out, shares)));
      starts.push_back(static_cast<std::int64_t>(items_out.size()));
    }
  }
  return {copied(starts), copied(items_out), copied(shares), copied(rest)};
}

void bind_walk(nb::module_& m) {
  nb::class_<HeldGraph>(m, "WalkGraph", "The likes of some users, both ways round.")
      .def(
          "__init__",
          [](HeldGraph* self, In<std::int64_t> item_starts, In<std::int32_t> users, In<std::int64_t> user_starts,
             In<std::int32_t> items, In<double> pull, std::int64_t most, std::int64_t first_user,
             std::int64_t first_item, Maybe<std::int32_t> numbers) {
            const auto item_count = static_cast<std::int64_t>(pull.size());
            const auto rows = static_cast<std::int64_t>(item_starts.size()) - 1;
            const auto user_count = static_cast<std::int64_t>(user_starts.size()) - 1;
            require(rows >= 0 && user_count >= 0 && most > 0, "starts: empty, or most is not positive");
            require(first_item >= 0 && first_item + rows <= item_count, "rows out of range");
            HeldGraph& graph = *new (self) HeldGraph();
            graph.rows = rows;
            graph.users_of = {graph.hold(item_starts, rows + 1, "item_starts"),
                              graph.hold(users, static_cast<std::int64_t>(users.size()), "users")};
            graph.likes_of = {graph.hold(user_starts, user_count + 1, "user_starts"),
                              graph.hold(items, static_cast<std::int64_t>(items.size()), "items")};
            graph.pull = graph.hold(pull, item_count, "pull");
            graph.items = item_count;
            graph.most = most;
            graph.first_user = first_user;
            graph.first_item = first_item;
            graph.numbers = graph.hold(numbers, user_count, "numbers: another length than the users");
            graph.totals.resize(static_cast<std::size_t>(graph.even() ? 0 : user_count));
            add_pulls(graph.likes_of, static_cast<std::int64_t>(graph.totals.size()), graph.pull, graph.totals.data());
          },
          nb::arg("item_starts"), nb::arg("users"), nb::arg("user_starts"), nb::arg("items"), nb::arg("pull"),
          nb::arg("most"), nb::arg("first_user") = 0, nb::arg("first_item") = 0, nb::arg("numbers") = nb::none(),
          "The edges are trusted. `numbers` are the users' numbers, unless they follow first_user.")
      .def(
          "work",
          [](const HeldGraph& self) {
            auto steps = new_array<std::int64_t>({static_cast<std::size_t>(self.rows)});
            nb::gil_scoped_release release;
            count_steps(self, self.rows, steps.data());
            return steps;
          },
          "Number of steps that the row of each item costs.")
      .def(
          "sums",
          [](const HeldGraph& self, std::int64_t first, std::int64_t last) {
            require_range(first, last, self.rows);
            WalkSums sums;
            {
              nb::gil_scoped_release release;
              WalkAdder adder(self, self.pulls());
              for (std::int64_t row = first; row < last; ++row) adder.row(row, sums);
            }
            return arrays_of(sums);
          },
          nb::arg("first"), nb::arg("last"),
          "Rows first..last of the walk from item to item, summed over these users in units of 2^-32: (starts, items, "
          "sums).")
      .def(
          "cut_rows",
          [](const HeldGraph& self, std::int64_t first, std::int64_t last, In<double> p, std::int64_t keep) {
            require_range(first, last, self.rows);
            require(static_cast<std::int64_t>(p.size()) == self.items && keep >= 0, "p");
            WalkAdder adder(self, self.pulls());
            return cut_rows(last - first, p.data(), self.items, keep,
                            [&](std::int64_t row) { return adder.walk_from(first + row); });
          },
          nb::arg("first"), nb::arg("last"), nb::arg("p"), nb::arg("keep"),
          "cut_walk of sums(first, last), if these users are all users.");
  m.def(
      "add_walk_sums",
      [](In<std::int64_t> a_starts, In<std::int32_t> a_items, In<std::uint64_t> a_sums, In<std::int64_t> b_starts,
         In<std::int32_t> b_items, In<std::uint64_t> b_sums) {
        constexpr std::int64_t any = std::int64_t{1} << 31;
        require(a_starts.size() == b_starts.size(), "rows of another number");
        require(a_sums.size() == a_items.size() && b_sums.size() == b_items.size(), "sums");
        const Lists a = lists(a_starts, a_items, any, "a"), b = lists(b_starts, b_items, any, "b");
        const auto rows = static_cast<std::int64_t>(a_starts.size()) - 1;
        auto starts = new_array<std::int64_t>({a_starts.size()});
        const Room<std::int32_t> items(a_items.size() + b_items.size());
        const Room<std::uint64_t> sums(a_items.size() + b_items.size());
        std::int64_t end = starts.data()[0] = 0;
        {
          nb::gil_scoped_release release;
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t more =
                add_row(view(a, a_sums, r), view(b, b_sums, r), items.data + end, sums.data + end);
            starts.data()[r + 1] = end += more;
          }
        }
        return PySums{starts, items.first(end), sums.first(end)};
      },
      nb::arg("a_starts"), nb::arg("a_items"), nb::arg("a_sums"), nb::arg("b_starts"), nb::arg("b_items"),
      nb::arg("b_sums"), "Add the sums of two sets of users, for the same rows.");
  m.def(
      "cut_walk",
      [](In<std::int64_t> starts, In<std::int32_t> items, In<std::uint64_t> sums, In<double> p, std::int64_t keep) {
        require(sums.size() == items.size() && keep >= 0, "sums");
        const auto item_count = static_cast<std::int64_t>(p.size());
        const Lists rows = lists(starts, items, item_count, "items");
        return cut_rows(static_cast<std::int64_t>(starts.size()) - 1, p.data(), item_count, keep,
                        [&](std::int64_t row) { return view(rows, sums, row); });
      },
      nb::arg("starts"), nb::arg("items"), nb::arg("sums"), nb::arg("p"), nb::arg("keep"),
      "Cut rows of sums to the `keep` largest by W log(W / p), as shares of 1: (starts, items, shares, mass cut).");
  m.def(
      "walk_slots",
      [](In<std::int64_t> starts, In<std::int32_t> items, In<float> shares, In<float> rest, double mix) {
        require(shares.size() == items.size() && starts.size() == rest.size() + 1, "shares");
        const Lists rows = lists(starts, items, static_cast<std::int64_t>(rest.size()), "items");
        auto slots = new_array<std::int32_t>({items.size() + rest.size(), 3});
        static_assert(sizeof(WalkSlot) == 12);
        auto* out = reinterpret_cast<WalkSlot*>(slots.data());
        {
          nb::gil_scoped_release release;
          for (std::size_t n = 0; n < rest.size(); ++n)
            build_slots(rows.indices + rows.starts[n], shares.data() + rows.starts[n],
                        rows.size(static_cast<std::int64_t>(n)), rest.data()[n], mix,
                        out + rows.starts[n] + static_cast<std::int64_t>(n));
        }
        return slots;
      },
      nb::arg("starts"), nb::arg("items"), nb::arg("shares"), nb::arg("rest"), nb::arg("mix"),
      "An alias table for each row: its entries, and last the mass that goes to pi, both cut and mixed in.");
  nb::class_<Held<WalkTable>>(m, "WalkTable", "Rows of the walk, with the slots of alias tables if it is for draws.")
      .def(
          "__init__",
          [](Held<WalkTable>* self, In<std::int64_t> starts, In<std::int32_t> items, In<float> shares, In<float> rest,
             double mix, Maybe<std::int32_t> slots) {
            const auto rows = static_cast<std::int64_t>(rest.size()), entries = static_cast<std::int64_t>(items.size());
            require(mix >= 0.0 && mix <= 1.0, "mix: not between 0 and 1");
            Held<WalkTable>& table = *new (self) Held<WalkTable>();
            table.rows = {table.hold(starts, rows + 1, "starts: not one more than rest"),
                          table.hold(items, entries, "items")};
            table.shares = table.hold(shares, entries, "shares: another length than items");
            table.rest = table.hold(rest, rows, "rest");
            table.slots =
                reinterpret_cast<const WalkSlot*>(table.hold(slots, 3 * (entries + rows), "slots: another size"));
            table.mix = mix;
            table.items = rows;
          },
          nb::arg("starts"), nb::arg("items"), nb::arg("shares"), nb::arg("rest"), nb::arg("mix"),
          nb::arg("slots") = nb::none(), "The rows are trusted.");
  m.def(
      "own_inclusion",
      [](const Held<WalkTable>& table, In<double> weights, double total, In<double> saturation, double grid_start,
         double grid_step, In<std::int64_t> starts, In<std::int32_t> liked, In<std::int64_t> pair_starts,
         In<std::int32_t> items, In<double> counts, Maybe<std::int64_t> closed_starts, Maybe<std::int32_t> closed,
         MaybeInOut<double> temperatures) {
        require(static_cast<std::int64_t>(weights.size()) == table.items, "weights");
        require(saturation.size() >= 4 && saturation.size() % 2 == 0, "saturation");
        const Popularity popularity{
            weights.data(),
            total,
            {saturation.data(), static_cast<std::int64_t>(saturation.size()) / 2, grid_start, grid_step}};
        require(pair_starts.size() == starts.size(), "pairs");
        require(counts.size() + 1 == starts.size(), "counts");
        require(closed_starts.has_value() == closed.has_value(), "closed");
        require(!temperatures || temperatures->size() + 1 == starts.size(), "temperatures");
        Lists shut{};
        if (closed_starts) {
          require(closed_starts->size() == starts.size(), "closed");
          shut = lists(*closed_starts, *closed, table.items, "closed");
        }
        const Lists likes = lists(starts, liked, table.items, "likes");
        const Lists pairs = lists(pair_starts, items, table.items, "pairs");
        auto out = new_array<double>({items.size()});
        {
          nb::gil_scoped_release release;
          OwnInclusion own(table, popularity, table.items);
          for (std::int64_t user = 0; user + 1 < static_cast<std::int64_t>(starts.size()); ++user) {
            const std::int64_t degree = likes.size(user);
            if (degree > 0 && (temperatures || pairs.size(user) > 0))
              own.solve(likes.row(user), degree, counts.data()[user], closed_starts ? shut.row(user) : nullptr,
                        closed_starts ? shut.size(user) : 0);
            for (std::int64_t e = pairs.starts[user]; e < pairs.starts[user + 1]; ++e)
              out.data()[e] = degree > 0 ? own.of(items.data()[e]) : NAN;
            if (temperatures) temperatures->data()[user] = degree > 0 ? own.temperature() : NAN;
          }
        }
        return out;
      },
      nb::arg("table"), nb::arg("weights"), nb::arg("total"), nb::arg("saturation"), nb::arg("grid_start"),
      nb::arg("grid_step"), nb::arg("starts"), nb::arg("liked"), nb::arg("pair_starts"), nb::arg("items"),
      nb::arg("counts"), nb::arg("closed_starts") = nb::none(), nb::arg("closed") = nb::none(),
      nb::arg("temperatures") = nb::none(),
      "The chance 1 - exp(-T w) that each pair of a user and an item is drawn, if users draw `counts` items. It is 0 "
      "for liked and closed items, and NaN for a user without likes. T of each user goes to `temperatures`: infinite "
      "if the user draws all items.");
}

}  // namespace considerate
