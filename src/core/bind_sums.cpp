#include "arrays.hpp"
#include "dispatch.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace considerate {

std::int64_t most_together = 64;

template <class T>
using Maybe = std::optional<In<T>>;

// Keeps the arrays alive whose addresses it takes, and checks their sizes once.
template <class T>
static const T* hold(std::vector<nb::object>& held, const In<T>& array, std::int64_t size, const char* what) {
  require(static_cast<std::int64_t>(array.size()) >= size, what);
  held.push_back(nb::cast(array));
  return array.data();
}

struct PyExpected {
  Expected raw;
  std::vector<nb::object> held;
  std::int64_t users = 0, items = 0, corrected = 0;  // edges whose corrections are given
};

struct PyPass {
  Pass raw;
  std::vector<nb::object> held;
  nb::object expected;
  std::int64_t own_rows = 0, other_rows = 0;
};

static RowsOut rows_out(const PyPass& pass, const InOut<float>& rows, const std::optional<InOut<float>>& bias_mean,
                        const std::optional<InOut<float>>& bias_variance) {
  RowsOut out;
  require(static_cast<std::int64_t>(rows.size()) == pass.own_rows * 2 * padded(pass.raw.factors),
          "rows: another shape than own");
  out.rows = rows.data();
  if (pass.raw.bias) {
    require(bias_mean && bias_variance, "biases are updated but not taken");
    require(static_cast<std::int64_t>(bias_mean->size()) == pass.own_rows, "bias_mean: another length than own");
    require(static_cast<std::int64_t>(bias_variance->size()) == pass.own_rows,
            "bias_variance: another length than own");
    out.bias_mean = bias_mean->data();
    out.bias_variance = bias_variance->data();
  }
  return out;
}

// The pass over one block of coordinates, reading the rows that earlier blocks stepped where they are given.
static Pass block_of(const PyPass& pass, std::int64_t block, const Maybe<float>& rows, const Maybe<float>& bias_mean,
                     const Maybe<float>& bias_variance) {
  require(block >= 0 && block < block_count(pass.raw.factors), "block");
  require(block == 0 || rows.has_value(), "a block after the first reads the rows of the one before");
  return nth_block(pass.raw, block, rows ? rows->data() : nullptr, bias_mean ? bias_mean->data() : nullptr,
                   bias_variance ? bias_variance->data() : nullptr);
}

template <class Array>
static void check_sums(const Pass& pass, std::size_t count, const Array& second, const Array& first,
                       const Array& bias) {
  const auto K = static_cast<std::size_t>(pass.block_size ? pass.block_size : pass.factors);
  require(second.size() == count * K * (K + 1) / 2 && first.size() == count * K && bias.size() == count * 2,
          "sums of another shape");
}

// Whether a pass over users may write to alpha.
static bool makes_alpha(const Pass& pass) { return !(pass.expected && pass.own_is_user && pass.expected->given); }

static std::array<double, 4> moments_of(const RowsOut& out) {
  return {out.moments[0], out.moments[1], out.moments[2], out.moments[3]};
}

void bind_sums(nb::module_& m) {
  nb::class_<PyExpected>(m, "Expected", "The closed-form part of the expectation over q(H).")
      .def(
          "__init__",
          [](PyExpected* self, std::int64_t factors, In<std::int32_t> group_of_item, In<double> beta,
             std::optional<InOut<float>> alpha, std::optional<InOut<float>> floor,
             std::optional<InOut<float>> curvature, In<double> second, In<double> first, In<double> first_bias,
             In<double> scalars, In<double> temperature, In<double> table, double grid_start, double grid_step,
             Maybe<double> user_second, Maybe<double> user_first, Maybe<double> user_scalars, Maybe<double> liked,
             Maybe<float> given_alpha, Maybe<float> given_floor, Maybe<float> given_curvature,
             Maybe<float> corrections) {
            new (self) PyExpected();
            Expected& ex = self->raw;
            const auto groups = static_cast<std::int64_t>(scalars.size()) / 8;
            const auto items = static_cast<std::int64_t>(beta.size());
            ex.groups = groups;
            ex.group_of_item = hold(self->held, group_of_item, items, "group_of_item");
            for (std::int64_t n = 0; n < items; ++n)
              require(ex.group_of_item[n] >= 0 && ex.group_of_item[n] < groups, "a group is out of range");
            ex.beta = hold(self->held, beta, items, "beta");
            const auto users = static_cast<std::int64_t>(temperature.size());
            self->users = users;
            self->items = items;
            if (corrections) {
              self->corrected = static_cast<std::int64_t>(corrections->size()) / 2;
              ex.corrections = hold(self->held, *corrections, 0, "corrections");
            }
            ex.given = given_alpha.has_value();
            if (ex.given) {  // read-only: the kernels write to alpha only where it is not given
              require(given_floor && given_curvature && !alpha && !floor && !curvature,
                      "alpha is given or made, not both");
              ex.alpha = const_cast<float*>(hold(self->held, *given_alpha, users * groups, "given_alpha"));
              ex.floor = const_cast<float*>(hold(self->held, *given_floor, users * groups, "given_floor"));
              ex.curvature = const_cast<float*>(hold(self->held, *given_curvature, users * groups, "given_curvature"));
            } else {
              for (auto* array : {&alpha, &floor, &curvature}) {
                require(*array && static_cast<std::int64_t>((*array)->size()) == users * groups,
                        "alpha, floor or curvature");
                self->held.push_back(nb::cast(**array));
              }
              ex.alpha = alpha->data();
              ex.floor = floor->data();
              ex.curvature = curvature->data();
            }
            if (liked) ex.liked = hold(self->held, *liked, users * groups * kLikedSums, "liked");
            ex.second = hold(self->held, second, 2 * groups * triangle(factors), "second");
            ex.first = hold(self->held, first, 2 * groups * factors, "first");
            ex.first_bias = hold(self->held, first_bias, 2 * groups * factors, "first_bias");
            ex.scalars = hold(self->held, scalars, groups * 8, "scalars");
            ex.temperature = hold(self->held, temperature, users, "temperature");
            require(groups > 0 && table.size() % (2 * static_cast<std::size_t>(groups)) == 0, "table");
            ex.grid = static_cast<std::int64_t>(table.size()) / (2 * groups);
            require(ex.grid >= 2, "table");
            ex.table = hold(self->held, table, groups * ex.grid * 2, "table");
            ex.grid_start = grid_start;
            ex.grid_step = grid_step;
            if (user_second) {
              require(user_first && user_scalars, "user sums");
              ex.user_second = hold(self->held, *user_second, 2 * groups * triangle(factors), "user_second");
              ex.user_first = hold(self->held, *user_first, groups * 6 * factors, "user_first");
              ex.user_scalars = hold(self->held, *user_scalars, groups * 6, "user_scalars");
            }
          },
          nb::kw_only(), nb::arg("factors"), nb::arg("group_of_item"), nb::arg("beta"),
          nb::arg("alpha").noconvert() = nb::none(), nb::arg("floor").noconvert() = nb::none(),
          nb::arg("curvature").noconvert() = nb::none(), nb::arg("second"), nb::arg("first"), nb::arg("first_bias"),
          nb::arg("scalars"), nb::arg("temperature"), nb::arg("table"), nb::arg("grid_start"), nb::arg("grid_step"),
          nb::arg("user_second") = nb::none(), nb::arg("user_first") = nb::none(), nb::arg("user_scalars") = nb::none(),
          nb::arg("liked") = nb::none(), nb::arg("given_alpha") = nb::none(), nb::arg("given_floor") = nb::none(),
          nb::arg("given_curvature") = nb::none(), nb::arg("corrections") = nb::none());

  nb::class_<PyPass>(m, "Pass", "All that a pass over the rows of one side reads.")
      .def(
          "__init__",
          [](PyPass* self, std::int64_t factors, In<float> own, Maybe<float> own_bias_mean,
             Maybe<float> own_bias_variance, In<float> other, Maybe<float> other_bias_mean,
             Maybe<float> other_bias_variance, In<std::int64_t> liked_starts, In<std::int32_t> liked,
             Maybe<std::int64_t> unliked_starts, Maybe<std::int32_t> unliked, Maybe<std::int64_t> splits, bool bias,
             double offset, double weight, double tau, double tau_bias, double epsilon, nb::object expected,
             bool own_is_user, bool slope, Maybe<float> user_offset, Maybe<float> prior_mean,
             Maybe<float> prior_precision, Maybe<float> prior_bias_mean, Maybe<float> prior_bias_precision,
             Maybe<float> liked_weights, Maybe<float> unliked_weights) {
            new (self) PyPass();
            Pass& raw = self->raw;
            auto& held = self->held;
            require(factors > 0, "factors");
            const std::int64_t width = 2 * padded(factors);
            require(own.size() % static_cast<std::size_t>(width) == 0, "own: rows of another width");
            require(other.size() % static_cast<std::size_t>(width) == 0, "other: rows of another width");
            raw.factors = factors;
            const std::int64_t rows = raw.rows = self->own_rows = static_cast<std::int64_t>(own.size()) / width;
            const std::int64_t others = raw.other_rows = self->other_rows =
                static_cast<std::int64_t>(other.size()) / width;
            raw.own.rows = hold(held, own, rows * width, "own");
            raw.other.rows = hold(held, other, others * width, "other");
            if (own_bias_mean && own_bias_variance) {
              raw.own.bias_mean = hold(held, *own_bias_mean, rows, "own_bias_mean");
              raw.own.bias_variance = hold(held, *own_bias_variance, rows, "own_bias_variance");
            }
            if (other_bias_mean && other_bias_variance) {
              raw.other.bias_mean = hold(held, *other_bias_mean, others, "other_bias_mean");
              raw.other.bias_variance = hold(held, *other_bias_variance, others, "other_bias_variance");
            }
            raw.liked.starts = hold(held, liked_starts, rows + 1, "liked_starts");
            raw.liked.indices = hold(held, liked, raw.liked.starts[rows], "liked");
            if (liked_weights) raw.liked.weights = hold(held, *liked_weights, raw.liked.starts[rows], "liked_weights");
            if (unliked_starts) {
              require(unliked.has_value(), "unliked");
              raw.unliked.starts = hold(held, *unliked_starts, rows + 1, "unliked_starts");
              raw.unliked.indices = hold(held, *unliked, raw.unliked.starts[rows], "unliked");
              if (unliked_weights) {
                require(!expected.is_none(), "unliked edges have weights where there is a closed form");
                raw.unliked.weights = hold(held, *unliked_weights, raw.unliked.starts[rows], "unliked_weights");
              }
            }
            if (splits) {
              raw.leaves = static_cast<std::int64_t>(splits->size()) - 1;
              require(raw.leaves >= 1 && splits->data()[0] == 0 && splits->data()[raw.leaves] == others, "splits");
              raw.splits = hold(held, *splits, raw.leaves + 1, "splits");
            }
            raw.bias = bias;
            require(!bias || raw.own.bias_mean, "a side without biases cannot update them");
            raw.offset = static_cast<float>(offset);
            raw.weight = static_cast<float>(weight);
            raw.tau = static_cast<float>(tau);
            raw.tau_bias = static_cast<float>(tau_bias);
            raw.epsilon = static_cast<float>(epsilon);
            raw.own_is_user = own_is_user;
            raw.slope = slope;
            if (user_offset) raw.user_offset = hold(held, *user_offset, own_is_user ? rows : others, "user_offset");
            const auto hold_prior = [&](const Maybe<float>& given, std::int64_t size, const char* what) {
              require(!given || static_cast<std::int64_t>(given->size()) == size, what);
              return given ? hold(held, *given, size, what) : nullptr;
            };
            raw.prior.mean = hold_prior(prior_mean, rows * width / 2, "prior_mean");
            raw.prior.precision = hold_prior(prior_precision, rows * width / 2, "prior_precision");
            raw.prior.bias_mean = hold_prior(prior_bias_mean, rows, "prior_bias_mean");
            raw.prior.bias_precision = hold_prior(prior_bias_precision, rows, "prior_bias_precision");
            if (!expected.is_none()) {
              const PyExpected& given = nb::cast<PyExpected&>(expected);
              const std::int64_t edges =
                  raw.liked.starts[rows] + (raw.unliked.starts ? raw.unliked.starts[rows] : std::int64_t{0});
              require(!given.raw.corrections || (!own_is_user && !splits && given.corrected == edges),
                      "corrections are those of the items' edges, in one leaf");
              raw.expected = &given.raw;
              self->expected = expected;
            }
          },
          nb::kw_only(), nb::arg("factors"), nb::arg("own"), nb::arg("own_bias_mean") = nb::none(),
          nb::arg("own_bias_variance") = nb::none(), nb::arg("other"), nb::arg("other_bias_mean") = nb::none(),
          nb::arg("other_bias_variance") = nb::none(), nb::arg("liked_starts"), nb::arg("liked"),
          nb::arg("unliked_starts") = nb::none(), nb::arg("unliked") = nb::none(), nb::arg("splits") = nb::none(),
          nb::arg("bias") = false, nb::arg("offset") = 0.0, nb::arg("weight") = 1.0, nb::arg("tau") = 1.0,
          nb::arg("tau_bias") = 1.0, nb::arg("epsilon") = 1.0, nb::arg("expected") = nb::none(),
          nb::arg("own_is_user") = true, nb::arg("slope") = false, nb::arg("user_offset") = nb::none(),
          nb::arg("prior_mean") = nb::none(), nb::arg("prior_precision") = nb::none(),
          nb::arg("prior_bias_mean") = nb::none(), nb::arg("prior_bias_precision") = nb::none(),
          nb::arg("liked_weights") = nb::none(), nb::arg("unliked_weights") = nb::none());

  m.def(
      "update_rows",
      [](const PyPass& pass, std::int64_t first, std::int64_t last, InOut<float> rows,
         std::optional<InOut<float>> bias_mean, std::optional<InOut<float>> bias_variance, Maybe<std::int32_t> which) {
        const std::int64_t rows_given = which ? static_cast<std::int64_t>(which->size()) : pass.own_rows;
        require(first >= 0 && first <= last && last <= rows_given, "rows out of range");
        require(!pass.raw.slope && makes_alpha(pass.raw), "such a pass gives sums alone");
        require(!which || !pass.raw.own_is_user, "users are stepped in ranges");
        RowsOut out = rows_out(pass, rows, bias_mean, bias_variance);
        Pass raw = pass.raw;
        raw.first = first;
        raw.last = last;
        if (which) {
          raw.which = which->data();
          for (std::int64_t r = first; r < last; ++r)
            require(raw.which[r] >= 0 && raw.which[r] < pass.own_rows, "a row is out of range");
        }
        {
          nb::gil_scoped_release release;
          kernels_in_use()->update_rows(raw, out);
        }
        return std::make_tuple(out.bound, out.bad, moments_of(out));
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"), nb::arg("rows").noconvert(),
      nb::arg("bias_mean").noconvert() = nb::none(), nb::arg("bias_variance").noconvert() = nb::none(),
      nb::arg("which") = nb::none(),
      "Sums and steps of rows first..last, or which[first..last], written into rows: (the edges' part of the bound "
      "before, a bad row or -1, moments of the new rows).");
  m.def(
      "edge_bound",
      [](const PyPass& pass, std::int64_t first, std::int64_t last) {
        require(first >= 0 && first <= last && last <= pass.own_rows, "rows out of range");
        require(pass.raw.own_is_user && !pass.raw.splits && makes_alpha(pass.raw), "the bound is summed by users");
        Pass raw = pass.raw;
        raw.first = first;
        raw.last = last;
        RowsOut out;
        {
          nb::gil_scoped_release release;
          kernels_in_use()->update_rows(raw, out);
        }
        return out.bound;
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"),
      "The edges' part of the bound, of users first..last, with no step.");
  m.def(
      "sum_rows",
      [](const PyPass& pass, In<std::int32_t> which, std::int64_t low, std::int64_t high, bool with_groups,
         InOut<float> second, InOut<float> first, InOut<float> bias, std::int64_t block, Maybe<float> rows,
         Maybe<float> bias_mean, Maybe<float> bias_variance) {
        const Pass raw = block_of(pass, block, rows, bias_mean, bias_variance);
        for (std::size_t r = 0; r < which.size(); ++r)
          require(which.data()[r] >= 0 && which.data()[r] < pass.own_rows, "a row is out of range");
        require(!with_groups || makes_alpha(raw), "the closed form of users needs alpha to be made");
        check_sums(raw, which.size(), second, first, bias);
        SumsOut out{second.data(), first.data(), bias.data(), 0};
        {
          nb::gil_scoped_release release;
          kernels_in_use()->sum_rows(raw, which.data(), static_cast<std::int64_t>(which.size()), low, high, with_groups,
                                     out);
        }
        return out.bound;
      },
      nb::arg("pass_"), nb::arg("which"), nb::arg("low"), nb::arg("high"), nb::arg("with_groups"),
      nb::arg("second").noconvert(), nb::arg("first").noconvert(), nb::arg("bias").noconvert(), nb::arg("block") = 0,
      nb::arg("rows") = nb::none(), nb::arg("bias_mean") = nb::none(), nb::arg("bias_variance") = nb::none(),
      "Sums alone, of the rows `which`, over their edges to other[low, high), for one block of coordinates: the edges' "
      "part of the bound, where the rows are users.");
  m.def(
      "solve_rows",
      [](const PyPass& pass, In<std::int32_t> which, In<float> second, In<float> first, In<float> bias,
         InOut<float> rows, std::optional<InOut<float>> bias_mean, std::optional<InOut<float>> bias_variance,
         std::int64_t block) {
        require(block >= 0 && block < block_count(pass.raw.factors), "block");
        const Pass raw = nth_block(pass.raw, block, rows.data(), bias_mean ? bias_mean->data() : nullptr,
                                   bias_variance ? bias_variance->data() : nullptr);
        for (std::size_t r = 0; r < which.size(); ++r)
          require(which.data()[r] >= 0 && which.data()[r] < pass.own_rows, "a row is out of range");
        check_sums(raw, which.size(), second, first, bias);
        const SumsIn sums{second.data(), first.data(), bias.data()};
        RowsOut out = rows_out(pass, rows, bias_mean, bias_variance);
        {
          nb::gil_scoped_release release;
          kernels_in_use()->solve_rows(raw, which.data(), static_cast<std::int64_t>(which.size()), sums, out);
        }
        return std::make_tuple(out.bad, moments_of(out));
      },
      nb::arg("pass_"), nb::arg("which"), nb::arg("second"), nb::arg("first"), nb::arg("bias"),
      nb::arg("rows").noconvert(), nb::arg("bias_mean").noconvert() = nb::none(),
      nb::arg("bias_variance").noconvert() = nb::none(), nb::arg("block") = 0,
      "Steps from sums that are given: (a bad row or -1, moments of the new rows).");
  m.def(
      "liked_sums",
      [](const PyPass& pass, std::int64_t first, std::int64_t last) {
        require(pass.raw.expected && pass.raw.own_is_user && first >= 0 && first <= last && last <= pass.own_rows,
                "rows out of range");
        const auto groups = static_cast<std::size_t>(pass.raw.expected->groups);
        auto out = new_array<double>({static_cast<std::size_t>(last - first), groups, kLikedSums});
        Pass raw = nth_block(pass.raw, 0, nullptr, nullptr, nullptr);
        raw.first = first;
        raw.last = last;
        {
          nb::gil_scoped_release release;
          kernels_in_use()->liked_sums(raw, out.data());
        }
        return out;
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"),
      "What the groups hold of the liked items of users first..last: E[h]; by beta and by 1, the weight and the "
      "logit's two moments.");
  m.def(
      "edge_corrections",
      [](const PyExpected& expected, In<std::int32_t> counts, In<std::int32_t> items) {
        std::int64_t edges = 0;
        for (std::size_t m = 0; m < counts.size(); ++m) {
          require(counts.data()[m] >= 0, "counts");
          edges += counts.data()[m];
        }
        require(static_cast<std::int64_t>(counts.size()) == expected.users &&
                    edges == static_cast<std::int64_t>(items.size()),
                "counts");
        for (std::size_t e = 0; e < items.size(); ++e)
          require(items.data()[e] >= 0 && items.data()[e] < expected.items, "an item is out of range");
        auto out = new_array<float>({items.size(), 2});
        {
          nb::gil_scoped_release release;
          kernels_in_use()->edge_corrections(expected.raw, expected.users, counts.data(), items.data(), out.data());
        }
        return out;
      },
      nb::arg("expected"), nb::arg("counts"), nb::arg("items"),
      "E[h] and E[h] l of some edges of each user, from the alpha, floor and l that the last update left.");
  m.def(
      "group_sums",
      [](const PyPass& pass, std::int64_t first, std::int64_t last) {
        require(pass.raw.expected && first >= 0 && first <= last && last <= pass.own_rows, "rows out of range");
        const auto groups = static_cast<std::size_t>(pass.raw.expected->groups);
        const auto K = static_cast<std::size_t>(pass.raw.factors);
        auto second = new_array<double>({2 * groups, K * (K + 1) / 2});
        auto firsts = new_array<double>({2 * groups, 3, K});
        auto scalars = new_array<double>({2 * groups, 3});
        std::fill(second.data(), second.data() + second.size(), 0.0);
        std::fill(firsts.data(), firsts.data() + firsts.size(), 0.0);
        std::fill(scalars.data(), scalars.data() + scalars.size(), 0.0);
        Pass raw = pass.raw;
        raw.first = first;
        raw.last = last;
        {
          nb::gil_scoped_release release;
          kernels_in_use()->group_sums(raw, second.data(), firsts.data(), scalars.data());
        }
        return std::make_tuple(second, firsts, scalars);
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"),
      "The users' sums for every group, from the alpha, floor and l that the last update left.");
  m.def(
      "item_group_sums",
      [](std::int64_t factors, In<float> rows, Maybe<float> bias_mean, Maybe<float> bias_variance, double offset,
         In<double> beta, In<std::int32_t> group_of_item, std::int64_t groups) {
        const auto items = static_cast<std::int64_t>(beta.size());
        require(static_cast<std::int64_t>(rows.size()) == items * 2 * padded(factors), "rows: another shape");
        require(group_of_item.size() == beta.size(), "group_of_item");
        for (std::int64_t n = 0; n < items; ++n)
          require(group_of_item.data()[n] >= 0 && group_of_item.data()[n] < groups, "a group is out of range");
        const auto B = static_cast<std::size_t>(2 * groups), K = static_cast<std::size_t>(factors);
        auto second = new_array<double>({B, K * (K + 1) / 2});
        auto first = new_array<double>({B, K});
        auto first_bias = new_array<double>({B, K});
        auto scalars = new_array<double>({B, 4});
        for (auto* array : {&second, &first, &first_bias, &scalars})
          std::fill(array->data(), array->data() + array->size(), 0.0);
        Pass pass;
        pass.factors = factors;
        pass.offset = static_cast<float>(offset);
        pass.own.rows = rows.data();
        if (bias_mean && bias_variance) {
          pass.own.bias_mean = bias_mean->data();
          pass.own.bias_variance = bias_variance->data();
        }
        {
          nb::gil_scoped_release release;
          kernels_in_use()->item_group_sums(pass, beta.data(), group_of_item.data(), items, groups, second.data(),
                                            first.data(), first_bias.data(), scalars.data());
        }
        return std::make_tuple(second, first, first_bias, scalars);
      },
      nb::arg("factors"), nb::arg("rows"), nb::arg("bias_mean").none(), nb::arg("bias_variance").none(),
      nb::arg("offset"), nb::arg("beta"), nb::arg("group_of_item"), nb::arg("groups"),
      "The items' sums for every group, weighted by beta and by 1: (second, first, first_bias, scalars).");
  m.def(
      "logistic",
      [](In<float> xi_squared) {
        auto curvature = new_array<float>({xi_squared.size()});
        auto height = new_array<float>({xi_squared.size()});
        kernels_in_use()->logistic(static_cast<std::int64_t>(xi_squared.size()), xi_squared.data(), curvature.data(),
                                   height.data());
        return std::make_tuple(curvature, height);
      },
      nb::arg("xi_squared"), "(2 lambda(xi), log sigma(xi) - xi / 2) of the square roots.");
  m.def(
      "inverse_factor",
      [](In<double> matrix) {
        require(matrix.ndim() == 2 && matrix.shape(0) == matrix.shape(1), "a matrix that is not square");
        const auto n = matrix.shape(0);
        std::vector<double> upper(matrix.data(), matrix.data() + n * n);
        auto inverse = new_array<double>({n, n});
        std::int64_t done;
        {
          nb::gil_scoped_release release;
          done = kernels_in_use()->inverse_factor(static_cast<std::int64_t>(n), upper.data(), inverse.data());
        }
        require(done == static_cast<std::int64_t>(n), "the matrix is not positive definite");
        return inverse;
      },
      nb::arg("matrix"), "L^-1, a lower triangle, of a symmetric positive definite matrix L L'.");
  m.def(
      "fma_loop",
      [](std::int64_t rounds) {
        nb::gil_scoped_release release;
#if defined(__x86_64__)
        const std::uint64_t begun = __builtin_ia32_rdtsc();
        const float value = kernels_in_use()->fma_loop(rounds);
        return std::make_tuple(value, static_cast<std::int64_t>(__builtin_ia32_rdtsc() - begun));
#else
        return std::make_tuple(kernels_in_use()->fma_loop(rounds), std::int64_t{0});
#endif
      },
      nb::arg("rounds"),
      "192 flops a round of independent multiply-adds, for benchmarks: (a value, clock ticks or 0).");
  m.def(
      "coordinate_blocks",
      [](std::int64_t factors) {
        std::vector<std::int64_t> sizes;
        const std::int64_t width = block_width(factors);
        for (std::int64_t first = 0; first < factors; first += width) sizes.push_back(std::min(width, factors - first));
        return sizes;
      },
      nb::arg("factors"), "The sizes of the blocks of coordinates that a row is stepped in.");
  m.def(
      "step_together",
      [](std::int64_t most) {
        require(most >= 8 && most % 8 == 0, "blocks of coordinates are multiples of eight");
        return std::exchange(most_together, most);
      },
      nb::arg("most"), "How many coordinates are stepped together at most, for benchmarks: the number before.");
  m.def("instruction_set", [] { return std::string(kernels_in_use()->name); }, "The build of the kernels in use.");
  m.def(
      "instruction_sets",
      [] {
        const KernelTable* found[3];
        const int count = runnable_kernels(found);
        std::vector<std::string> names;
        for (int i = 0; i < count; ++i) names.emplace_back(found[i]->name);
        return names;
      },
      "Those that this machine can run, best first.");
  m.def(
      "use_instruction_set",
      [](const std::string& name) {
        const KernelTable* found[3];
        const int count = runnable_kernels(found);
        for (int i = 0; i < count; ++i)
          if (name == found[i]->name) {
            kernels_in_use() = found[i];
            return;
          }
        throw std::invalid_argument("this machine does not run the instruction set " + name);
      },
      nb::arg("name"), "Choose one of them, for tests and for bits that agree between machines.");
}

}  // namespace considerate
