#include "arrays.hpp"
#include "dispatch.hpp"
#include "lists.hpp"

#include <nanobind/stl/tuple.h>

namespace considerate {

void bind_score(nb::module_& m) {
  nb::class_<Held<LiftTable>>(m, "LiftTable", "Rows of the walk, for the lift of users who like some items.")
      .def(
          "__init__",
          [](Held<LiftTable>* self, In<std::int64_t> starts, In<std::int32_t> items, In<float> shares, In<float> rest,
             In<float> inverse, double mix, int sharpness, Maybe<std::int32_t> unknown) {
            const auto count = static_cast<std::int64_t>(rest.size()),
                       entries = static_cast<std::int64_t>(items.size());
            require(mix >= 0.0 && mix <= 1.0, "mix: not between 0 and 1");
            require(sharpness >= 1 && sharpness <= 8, "sharpness: not between 1 and 8");
            Held<LiftTable>& table = *new (self) Held<LiftTable>();
            table.items_count = count;
            table.starts = table.hold(starts, count + 1, "starts: not one more than rest");
            table.items = table.hold(items, entries, "items");
            table.shares = table.hold(shares, entries, "shares: another length than items");
            table.rest = table.hold(rest, count, "rest");
            table.inverse = table.hold(inverse, (count + 15) / 16 * 16, "inverse: not padded to a multiple of 16");
            table.mix = mix;
            table.sharpness = sharpness;
            if (!unknown) return;
            table.unknown_count = static_cast<std::int64_t>(unknown->size());
            table.unknown = table.hold(*unknown, table.unknown_count, "unknown");
            for (std::int64_t i = 0; i < table.unknown_count; ++i)
              require(table.unknown[i] >= (i ? table.unknown[i - 1] : 0) && table.unknown[i] < count,
                      "unknown: not ascending, or out of range");
          },
          nb::arg("starts"), nb::arg("items"), nb::arg("shares"), nb::arg("rest"), nb::arg("inverse"), nb::arg("mix"),
          nb::arg("sharpness") = 1, nb::arg("unknown") = nb::none(),
          "The rows are trusted; `Consideration.read` checks those of a file.")
      .def(
          "log_ratios",
          [](const Held<LiftTable>& self, In<std::int64_t> liked_starts, In<std::int32_t> liked) {
            const Lists likes = lists(liked_starts, liked, self.items_count, "liked");
            const std::size_t users = liked_starts.size() - 1;
            auto out = new_array<float>({users, static_cast<std::size_t>(self.items_count)});
            {
              nb::gil_scoped_release release;
              kernels_in_use()->walk_lifts(self, likes.starts, likes.indices, static_cast<std::int64_t>(users),
                                           out.data());
            }
            return out;
          },
          nb::arg("liked_starts"), nb::arg("liked"), "log(w / p) of users against all items, from their likes.")
      .def(
          "log_ratios_of",
          [](const Held<LiftTable>& self, In<std::int64_t> liked_starts, In<std::int32_t> liked,
             In<std::int64_t> pair_starts, In<std::int32_t> pair_items) {
            const Lists likes = lists(liked_starts, liked, self.items_count, "liked");
            const Lists pairs = lists(pair_starts, pair_items, self.items_count, "pair_items");
            require(pair_starts.size() == liked_starts.size(), "pair_starts");
            auto out = new_array<float>({pair_items.size()});
            {
              nb::gil_scoped_release release;
              kernels_in_use()->walk_lifts_of(self, likes.starts, likes.indices,
                                              static_cast<std::int64_t>(liked_starts.size()) - 1, pairs.starts,
                                              pairs.indices, out.data());
            }
            return out;
          },
          nb::arg("liked_starts"), nb::arg("liked"), nb::arg("pair_starts"), nb::arg("pair_items"),
          "log(w / p) of users against some items each, from their likes.");
  m.def(
      "logarithms",
      [](In<float> x) {
        auto exact = new_array<float>({x.size()});
        auto below = new_array<float>({x.size()});
        kernels_in_use()->logarithms(static_cast<std::int64_t>(x.size()), x.data(), exact.data(), below.data());
        return std::make_tuple(exact, below);
      },
      nb::arg("x"), "(log(x), a lower bound at most 0.0601 below it) of positive numbers from 2^-126 on.");
  m.def(
      "top_items",
      [](std::int64_t factors, In<float> users, std::int64_t user_stride, In<std::int64_t> rows, In<float> items,
         In<float> base, std::int64_t k, Maybe<std::int64_t> seen_starts, Maybe<std::int32_t> seen,
         const Held<LiftTable>* lift_table, float lift, Maybe<std::int64_t> liked_starts, Maybe<std::int32_t> liked) {
        TopK task;
        task.factors = factors;
        task.user_stride = user_stride;
        task.strips = static_cast<std::int64_t>(base.size()) / 16;
        task.count = static_cast<std::int64_t>(rows.size());
        task.k = k;
        require(factors > 0 && k > 0 && user_stride >= factors, "factors, k or user_stride");
        require(base.size() % 16 == 0 && static_cast<std::int64_t>(items.size()) == task.strips * factors * 16,
                "strips");
        const std::int64_t user_count = static_cast<std::int64_t>(users.size()) / user_stride;
        for (std::int64_t i = 0; i < task.count; ++i)
          require(rows.data()[i] >= 0 && rows.data()[i] < user_count, "a row is out of range");
        task.users = users.data();
        task.rows = rows.data();
        task.items = items.data();
        task.base = base.data();
        if (seen_starts) {
          require(seen && static_cast<std::int64_t>(seen_starts->size()) == task.count + 1, "seen");
          require(seen_starts->data()[task.count] <= static_cast<std::int64_t>(seen->size()), "seen");
          task.seen_starts = seen_starts->data();
          task.seen = seen->data();
        }
        if (lift_table && lift != 0.0f) {
          const std::int64_t items_count = lift_table->items_count;
          require(task.strips == (items_count + 15) / 16, "the table is of another number of items");
          require(liked_starts && liked && liked_starts->size() == rows.size() + 1, "liked");
          const Lists likes = lists(*liked_starts, *liked, items_count, "liked");
          task.lift_table = lift_table;
          task.lift = lift;
          task.liked_starts = likes.starts;
          task.liked = likes.indices;
        }
        auto ids = new_array<std::int32_t>({rows.size(), static_cast<std::size_t>(k)});
        auto scores = new_array<float>({rows.size(), static_cast<std::size_t>(k)});
        task.items_out = ids.data();
        task.scores_out = scores.data();
        {
          nb::gil_scoped_release release;
          kernels_in_use()->top_items(task);
        }
        return std::make_tuple(ids, scores);
      },
      nb::arg("factors"), nb::arg("users"), nb::arg("user_stride"), nb::arg("rows"), nb::arg("items"), nb::arg("base"),
      nb::arg("k"), nb::arg("seen_starts") = nb::none(), nb::arg("seen") = nb::none(),
      nb::arg("lift_table") = nb::none(), nb::arg("lift") = 0.0f, nb::arg("liked_starts") = nb::none(),
      nb::arg("liked") = nb::none(),
      "The k best items of some users by base + u'v, without seen ones: (ids, scores), with -1 and NaN if fewer "
      "remain. With a table, lift * log(w / p) is added, with w from each user's likes.");
  m.def(
      "pair_moments",
      [](const Held<Side>& own, const Held<Side>& other, In<std::int64_t> own_rows, In<std::int32_t> other_rows) {
        require(own.factors == other.factors, "own and other have different numbers of factors");
        require(own_rows.size() == other_rows.size(), "own_rows and other_rows differ in length");
        for (std::size_t e = 0; e < own_rows.size(); ++e) {
          require(own_rows.data()[e] >= 0 && own_rows.data()[e] < own.count, "a row of own is out of range");
          require(other_rows.data()[e] >= -1 && other_rows.data()[e] < other.count, "a row of other is out of range");
        }
        auto mean = new_array<float>({own_rows.size()});
        auto variance = new_array<float>({own_rows.size()});
        {
          nb::gil_scoped_release release;
          kernels_in_use()->pair_moments(own, other, static_cast<std::int64_t>(own_rows.size()), own_rows.data(),
                                         other_rows.data(), mean.data(), variance.data());
        }
        return std::make_tuple(mean, variance);
      },
      nb::arg("own"), nb::arg("other"), nb::arg("own_rows"), nb::arg("other_rows"),
      "(E[a], var[a]) of pairs, without the offset; NaN if other_rows is -1.");
}

}  // namespace considerate
