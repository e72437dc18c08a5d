#include "arrays.hpp"
#include "dispatch.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace considerate {

std::int64_t most_together = 64;

static RowsOut rows_out(const Held<Pass>& pass, const InOut<float>& rows, const MaybeInOut<float>& bias_mean,
                        const MaybeInOut<float>& bias_variance) {
  RowsOut out;
  require(static_cast<std::int64_t>(rows.size()) == pass.own.count * 2 * padded(pass.own.factors),
          "rows: another shape than own");
  out.rows = rows.data();
  if (pass.bias) {
    require(bias_mean && bias_variance, "bias_mean and bias_variance are missing: the pass steps biases");
    require(static_cast<std::int64_t>(bias_mean->size()) == pass.own.count, "bias_mean: another length than own");
    require(static_cast<std::int64_t>(bias_variance->size()) == pass.own.count,
            "bias_variance: another length than own");
    out.bias_mean = bias_mean->data();
    out.bias_variance = bias_variance->data();
  }
  return out;
}

// The pass over one block of coordinates. Blocks after the first read the rows that earlier ones stepped.
static Pass block_of(const Held<Pass>& pass, std::int64_t block, const Maybe<float>& rows,
                     const Maybe<float>& bias_mean, const Maybe<float>& bias_variance) {
  require(block >= 0 && block < block_count(pass.own.factors), "block: out of range");
  require(block == 0 || rows.has_value(), "a block after the first reads the rows of the one before");
  return nth_block(pass, block, rows ? rows->data() : nullptr, bias_mean ? bias_mean->data() : nullptr,
                   bias_variance ? bias_variance->data() : nullptr);
}

template <class Array>
static void check_sums(const Pass& pass, std::size_t count, const Array& second, const Array& first,
                       const Array& bias) {
  const auto K = static_cast<std::size_t>(pass.block_size ? pass.block_size : pass.own.factors);
  require(second.size() == count * K * (K + 1) / 2 && first.size() == count * K && bias.size() == count * 2,
          "second, first or bias: another shape than the rows");
}

// Whether the shares of a pass over users are given, so that it must not write to them.
static bool reads_given_shares(const Pass& pass) {
  return pass.expected && pass.own_is_user && pass.expected->shares.given;
}

static void check_user_sums(const Pass& pass) {
  require(!pass.expected || pass.own_is_user || pass.expected->users.factors,
          "the closed form of items needs the users' sums of each group");
}

static void check_rows(const Pass& pass, const In<std::int32_t>& rows, std::int64_t first, std::int64_t last) {
  for (std::int64_t r = first; r < last; ++r)
    require(rows.data()[r] >= 0 && rows.data()[r] < pass.own.count, "a row is out of range");
}
static void check_rows(const Pass& pass, const In<std::int32_t>& rows) {
  check_rows(pass, rows, 0, static_cast<std::int64_t>(rows.size()));
}

static std::array<double, 4> moments_of(const RowsOut& out) {
  return {out.moments[0], out.moments[1], out.moments[2], out.moments[3]};
}

void bind_sums(nb::module_& m) {
  m.def(
      "update_rows",
      [](const Held<Pass>& pass, std::int64_t first, std::int64_t last, InOut<float> rows, MaybeInOut<float> bias_mean,
         MaybeInOut<float> bias_variance, Maybe<std::int32_t> which) {
        const std::int64_t rows_given = which ? static_cast<std::int64_t>(which->size()) : pass.own.count;
        require_range(first, last, rows_given);
        require(!pass.constants.slope && !reads_given_shares(pass), "such a pass gives sums alone");
        check_user_sums(pass);
        require(!which || !pass.own_is_user, "users are stepped in ranges");
        RowsOut out = rows_out(pass, rows, bias_mean, bias_variance);
        Pass raw = pass;
        raw.first = first;
        raw.last = last;
        if (which) {
          check_rows(pass, *which, first, last);
          raw.which = which->data();
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
      "Sum and step rows first..last, or which[first..last], into rows: (the edges' part of the bound before the step, "
      "a bad row or -1, moments of the new rows).");
  m.def(
      "edge_bound",
      [](const Held<Pass>& pass, std::int64_t first, std::int64_t last) {
        require_range(first, last, pass.own.count);
        require(pass.own_is_user && !pass.splits && !reads_given_shares(pass), "the bound is summed by users");
        Pass raw = pass;
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
      "The edges' part of the bound of users first..last, without a step.");
  m.def(
      "sum_rows",
      [](const Held<Pass>& pass, In<std::int32_t> which, std::int64_t low, std::int64_t high, bool with_groups,
         InOut<float> second, InOut<float> first, InOut<float> bias, std::int64_t block, Maybe<float> rows,
         Maybe<float> bias_mean, Maybe<float> bias_variance) {
        const Pass raw = block_of(pass, block, rows, bias_mean, bias_variance);
        check_rows(pass, which);
        require(!with_groups || !reads_given_shares(raw), "the closed form of users needs shares that it may write to");
        if (with_groups) check_user_sums(raw);
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
      "Sum the rows `which` over their edges to other[low, high), for one block of coordinates. Returns the edges' "
      "part of the bound if the rows are users.");
  m.def(
      "solve_rows",
      [](const Held<Pass>& pass, In<std::int32_t> which, In<float> second, In<float> first, In<float> bias,
         InOut<float> rows, MaybeInOut<float> bias_mean, MaybeInOut<float> bias_variance, std::int64_t block) {
        require(block >= 0 && block < block_count(pass.own.factors), "block: out of range");
        const Pass raw = nth_block(pass, block, rows.data(), bias_mean ? bias_mean->data() : nullptr,
                                   bias_variance ? bias_variance->data() : nullptr);
        check_rows(pass, which);
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
      "Step rows from given sums: (a bad row or -1, moments of the new rows).");
  m.def(
      "liked_sums",
      [](const Held<Pass>& pass, std::int64_t first, std::int64_t last) {
        require(pass.expected && pass.own_is_user, "not a pass over users with a closed form");
        require_range(first, last, pass.own.count);
        const auto groups = static_cast<std::size_t>(pass.expected->shares.groups);
        auto out = new_array<double>({static_cast<std::size_t>(last - first), groups, kLikedSums});
        Pass raw = nth_block(pass, 0, nullptr, nullptr, nullptr);
        raw.first = first;
        raw.last = last;
        {
          nb::gil_scoped_release release;
          kernels_in_use()->liked_sums(raw, out.data());
        }
        return out;
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"),
      "The liked items' part of the groups' sums of users first..last, [users, groups, 7]: E[h]; then, weighted by "
      "beta and by 1, the weight and the logit's two moments.");
  m.def(
      "edge_corrections",
      [](const Held<Expected>& expected, In<std::int32_t> counts, In<std::int32_t> items) {
        std::int64_t edges = 0;
        for (std::size_t m = 0; m < counts.size(); ++m) {
          require(counts.data()[m] >= 0, "counts");
          edges += counts.data()[m];
        }
        require(static_cast<std::int64_t>(counts.size()) == expected.shares.users &&
                    edges == static_cast<std::int64_t>(items.size()),
                "counts");
        for (std::size_t e = 0; e < items.size(); ++e)
          require(items.data()[e] >= 0 && items.data()[e] < expected.groups.items, "an item is out of range");
        auto out = new_array<float>({items.size(), 2});
        {
          nb::gil_scoped_release release;
          kernels_in_use()->edge_corrections(expected, expected.shares.users, counts.data(), items.data(), out.data());
        }
        return out;
      },
      nb::arg("expected"), nb::arg("counts"), nb::arg("items"),
      "E[h] and E[h] l of some edges of each user, from the alpha, floor and l of the last update.");
  m.def(
      "group_sums",
      [](const Held<Pass>& pass, std::int64_t first, std::int64_t last) {
        require(pass.expected && pass.own_is_user, "not a pass over users with a closed form");
        require_range(first, last, pass.own.count);
        const auto groups = static_cast<std::size_t>(pass.expected->shares.groups);
        const auto K = static_cast<std::size_t>(pass.own.factors);
        auto second = new_array<double>({2 * groups, K * (K + 1) / 2});
        auto firsts = new_array<double>({2 * groups, 3, K});
        auto scalars = new_array<double>({2 * groups, 3});
        std::fill(second.data(), second.data() + second.size(), 0.0);
        std::fill(firsts.data(), firsts.data() + firsts.size(), 0.0);
        std::fill(scalars.data(), scalars.data() + scalars.size(), 0.0);
        Pass raw = pass;
        raw.first = first;
        raw.last = last;
        {
          nb::gil_scoped_release release;
          kernels_in_use()->group_sums(raw, second.data(), firsts.data(), scalars.data());
        }
        return std::make_tuple(second, firsts, scalars);
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"),
      "The arrays of UserSums, from the alpha, floor and l of the last update.");
  m.def(
      "item_group_sums",
      [](const Held<Side>& items, double offset, const Held<Groups>& groups) {
        require(items.count == groups.items, "groups of another number of items");
        const auto B = static_cast<std::size_t>(2 * groups.count), K = static_cast<std::size_t>(items.factors);
        auto second = new_array<double>({B, K * (K + 1) / 2});
        auto first = new_array<double>({B, K});
        auto first_bias = new_array<double>({B, K});
        auto scalars = new_array<double>({B, 4});
        for (auto* array : {&second, &first, &first_bias, &scalars})
          std::fill(array->data(), array->data() + array->size(), 0.0);
        {
          nb::gil_scoped_release release;
          kernels_in_use()->item_group_sums(items, static_cast<float>(offset), groups, second.data(), first.data(),
                                            first_bias.data(), scalars.data());
        }
        return std::make_tuple(second, first, first_bias, scalars);
      },
      nb::arg("items"), nb::arg("offset"), nb::arg("groups"),
      "The arrays of ItemSums: sums over the items of each group.");
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
      nb::arg("factors"), "Sizes of the blocks of coordinates that a row is stepped in.");
  m.def(
      "step_together",
      [](std::int64_t most) {
        require(most >= 8 && most % 8 == 0, "blocks of coordinates are multiples of eight");
        return std::exchange(most_together, most);
      },
      nb::arg("most"),
      "Set the most coordinates that are stepped together, for benchmarks. Returns the number before.");
  m.def("instruction_set", [] { return std::string(kernels_in_use()->name); }, "Name of the kernels in use.");
  m.def(
      "instruction_sets",
      [] {
        const KernelTable* found[3];
        const int count = runnable_kernels(found);
        std::vector<std::string> names;
        for (int i = 0; i < count; ++i) names.emplace_back(found[i]->name);
        return names;
      },
      "Names of the instruction sets that this machine can run, best first.");
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
      nb::arg("name"), "Choose an instruction set, for tests and for bits that agree between machines.");
}

}  // namespace considerate
