#include "arrays.hpp"
#include "dispatch.hpp"
#include "walk_table.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>

namespace considerate {

struct PyLiftTable {
  LiftTable raw;
  std::vector<nb::object> held;  // the arrays stay as long as this
};

void bind_score(nb::module_& m) {
  nb::class_<PyLiftTable>(m, "LiftTable", "Who considers what, as scores read it.")
      .def(
          "__init__",
          [](PyLiftTable* self, In<std::int64_t> starts, In<std::int32_t> items, In<float> shares, In<float> rest,
             In<float> inverse, double mix, int sharpness, std::optional<In<std::int32_t>> unknown) {
            const auto count = static_cast<std::int64_t>(rest.size());
            require(shares.size() == items.size() && starts.size() == rest.size() + 1, "shares");
            require(inverse.size() == (rest.size() + 15) / 16 * 16, "inverse");
            require(mix >= 0.0 && mix <= 1.0, "mix");
            require(sharpness >= 1 && sharpness <= 8, "sharpness");
            new (self) PyLiftTable{
                {count, starts.data(), items.data(), shares.data(), rest.data(), inverse.data(), mix, sharpness},
                {nb::cast(starts), nb::cast(items), nb::cast(shares), nb::cast(rest), nb::cast(inverse)}};
            if (unknown) {
              for (std::size_t i = 0; i < unknown->size(); ++i)
                require(unknown->data()[i] >= (i ? unknown->data()[i - 1] : 0) && unknown->data()[i] < count,
                        "unknown");
              self->raw.unknown = unknown->data();
              self->raw.unknown_count = static_cast<std::int64_t>(unknown->size());
              self->held.push_back(nb::cast(*unknown));
            }
          },
          nb::arg("starts"), nb::arg("items"), nb::arg("shares"), nb::arg("rest"), nb::arg("inverse"), nb::arg("mix"),
          nb::arg("sharpness") = 1, nb::arg("unknown") = nb::none(),
          "The rows are trusted: `Consideration.read` says when those of a file are checked.")
      .def(
          "log_ratios",
          [](const PyLiftTable& self, In<std::int64_t> liked_starts, In<std::int32_t> liked) {
            const Lists likes = lists(liked_starts, liked, self.raw.items_count, "liked");
            const std::size_t users = liked_starts.size() - 1;
            auto out = new_array<float>({users, static_cast<std::size_t>(self.raw.items_count)});
            {
              nb::gil_scoped_release release;
              kernels_in_use()->walk_lifts(self.raw, likes.starts, likes.indices, static_cast<std::int64_t>(users),
                                           out.data());
            }
            return out;
          },
          nb::arg("liked_starts"), nb::arg("liked"), "log(w / p) of users against all items, from their likes.")
      .def(
          "log_ratios_of",
          [](const PyLiftTable& self, In<std::int64_t> liked_starts, In<std::int32_t> liked,
             In<std::int64_t> pair_starts, In<std::int32_t> pair_items) {
            const Lists likes = lists(liked_starts, liked, self.raw.items_count, "liked");
            const Lists pairs = lists(pair_starts, pair_items, self.raw.items_count, "pair_items");
            require(pair_starts.size() == liked_starts.size(), "pair_starts");
            auto out = new_array<float>({pair_items.size()});
            {
              nb::gil_scoped_release release;
              kernels_in_use()->walk_lifts_of(self.raw, likes.starts, likes.indices,
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
      nb::arg("x"), "(log(x), what is at most 0.0601 below it) of positive numbers from 2^-126 on.");
  m.def(
      "top_items",
      [](std::int64_t factors, In<float> users, std::int64_t user_stride, In<std::int64_t> rows, In<float> items,
         In<float> base, std::int64_t k, std::optional<In<std::int64_t>> seen_starts,
         std::optional<In<std::int32_t>> seen, const PyLiftTable* lift_table, float lift,
         std::optional<In<std::int64_t>> liked_starts, std::optional<In<std::int32_t>> liked) {
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
          const std::int64_t items_count = lift_table->raw.items_count;
          require(task.strips == (items_count + 15) / 16, "the table is of another number of items");
          require(liked_starts && liked && liked_starts->size() == rows.size() + 1, "liked");
          const Lists likes = lists(*liked_starts, *liked, items_count, "liked");
          task.lift_table = &lift_table->raw;
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
      "The k best items of some users by base + u'v, those seen left out: (ids, scores), -1 and NaN where fewer "
      "remain. With a table, lift * log(w / p) is added, w from what each user liked.");
  m.def(
      "pair_moments",
      [](std::int64_t factors, In<float> own, std::optional<In<float>> own_bias_mean,
         std::optional<In<float>> own_bias_variance, In<float> other, std::optional<In<float>> other_bias_mean,
         std::optional<In<float>> other_bias_variance, In<std::int64_t> own_rows, In<std::int32_t> other_rows) {
        Pass pass;
        const std::int64_t width = 2 * padded(factors);
        const std::int64_t owns = static_cast<std::int64_t>(own.size()) / width;
        const std::int64_t others = static_cast<std::int64_t>(other.size()) / width;
        require(own_rows.size() == other_rows.size(), "own_rows and other_rows differ in length");
        for (std::size_t e = 0; e < own_rows.size(); ++e) {
          require(own_rows.data()[e] >= 0 && own_rows.data()[e] < owns, "a row of own is out of range");
          require(other_rows.data()[e] >= -1 && other_rows.data()[e] < others, "a row of other is out of range");
        }
        pass.factors = factors;
        pass.own.rows = own.data();
        pass.other.rows = other.data();
        if (own_bias_mean && own_bias_variance) {
          pass.own.bias_mean = own_bias_mean->data();
          pass.own.bias_variance = own_bias_variance->data();
        }
        if (other_bias_mean && other_bias_variance) {
          pass.other.bias_mean = other_bias_mean->data();
          pass.other.bias_variance = other_bias_variance->data();
        }
        auto mean = new_array<float>({own_rows.size()});
        auto variance = new_array<float>({own_rows.size()});
        {
          nb::gil_scoped_release release;
          kernels_in_use()->pair_moments(pass, static_cast<std::int64_t>(own_rows.size()), own_rows.data(),
                                         other_rows.data(), mean.data(), variance.data());
        }
        return std::make_tuple(mean, variance);
      },
      nb::arg("factors"), nb::arg("own"), nb::arg("own_bias_mean").none(), nb::arg("own_bias_variance").none(),
      nb::arg("other"), nb::arg("other_bias_mean").none(), nb::arg("other_bias_variance").none(), nb::arg("own_rows"),
      nb::arg("other_rows"), "(E[a], var[a]) of pairs, without the offset; NaN where other_rows is -1.");
}

}  // namespace considerate
