// The pass over rows whose covariances are kept.
#include "arrays.hpp"
#include "dispatch.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <vector>

namespace considerate {

template <class T>
using Maybe = std::optional<In<T>>;

struct PyFullPass {
  FullPass raw;
  std::vector<nb::object> held;
  std::int64_t own_rows = 0;

  template <class T>
  const T* hold(const Maybe<T>& array, std::int64_t size, const char* what) {
    if (!array) return nullptr;
    require(static_cast<std::int64_t>(array->size()) == size, what);
    held.push_back(nb::cast(*array));
    return array->data();
  }

  std::int64_t hold_side(Side& side, const Maybe<float>& rows, const Maybe<float>& bias_mean,
                         const Maybe<float>& bias_variance) {
    const std::int64_t width = 2 * padded(raw.factors), count = static_cast<std::int64_t>(rows->size()) / width;
    side.rows = hold(rows, count * width, "rows of another width");
    require(bias_mean.has_value() == bias_variance.has_value(), "a bias has a mean and a variance");
    side.bias_mean = hold(bias_mean, count, "bias_mean");
    side.bias_variance = hold(bias_variance, count, "bias_variance");
    return count;
  }

  void hold_edges(Adjacency& edges, const Maybe<std::int64_t>& starts, const Maybe<std::int32_t>& indices,
                  std::int64_t others) {
    if (!starts) return;
    edges.starts = hold(starts, own_rows + 1, "starts of another length than own");
    require(edges.starts[0] >= 0 && indices.has_value(), "edges");
    for (std::int64_t r = 0; r < own_rows; ++r) require(edges.starts[r] <= edges.starts[r + 1], "starts descend");
    require(edges.starts[own_rows] <= static_cast<std::int64_t>(indices->size()), "fewer edges than starts say");
    edges.indices = hold(indices, static_cast<std::int64_t>(indices->size()), "edges");
    for (std::int64_t e = edges.starts[0]; e < edges.starts[own_rows]; ++e)
      require(edges.indices[e] >= 0 && edges.indices[e] < others, "an edge is out of range");
  }
};

void bind_full(nb::module_& m) {
  nb::class_<PyFullPass>(m, "FullPass", "All that a pass over the rows of one side reads, with covariances.")
      .def(
          "__init__",
          [](PyFullPass* self, std::int64_t factors, Maybe<float> own, Maybe<float> own_bias_mean,
             Maybe<float> own_bias_variance, Maybe<float> own_covariance, Maybe<float> other,
             Maybe<float> other_bias_mean, Maybe<float> other_bias_variance, Maybe<float> other_covariance,
             Maybe<std::int64_t> liked_starts, Maybe<std::int32_t> liked, Maybe<float> liked_weights,
             Maybe<std::int64_t> unliked_starts, Maybe<std::int32_t> unliked, Maybe<float> prior_precision,
             Maybe<float> prior_pull, Maybe<float> own_offset, Maybe<float> other_offset, double offset, double weight,
             double tau_bias, double epsilon, bool quadrature) {
            new (self) PyFullPass();
            FullPass& raw = self->raw;
            require(factors > 0, "factors");
            require(own && other && liked_starts && prior_precision && prior_pull, "an array is missing");
            raw.factors = factors;
            self->own_rows = self->hold_side(raw.own, own, own_bias_mean, own_bias_variance);
            const std::int64_t others = self->hold_side(raw.other, other, other_bias_mean, other_bias_variance);
            const std::int64_t T = triangle(factors);
            raw.own_covariance = self->hold(own_covariance, self->own_rows * T, "own_covariance");
            raw.other_covariance = self->hold(other_covariance, others * T, "other_covariance");
            self->hold_edges(raw.liked, liked_starts, liked, others);
            if (liked_weights)
              raw.liked.weights = self->hold(liked_weights, raw.liked.starts[self->own_rows], "liked_weights");
            self->hold_edges(raw.unliked, unliked_starts, unliked, others);
            raw.prior_precision = self->hold(prior_precision, T, "prior_precision");
            raw.prior_pull = self->hold(prior_pull, factors, "prior_pull");
            raw.own_offset = self->hold(own_offset, self->own_rows, "own_offset");
            raw.other_offset = self->hold(other_offset, others, "other_offset");
            raw.bias = own_bias_mean.has_value();
            raw.quadrature = quadrature;
            raw.offset = static_cast<float>(offset);
            raw.weight = static_cast<float>(weight);
            raw.tau_bias = static_cast<float>(tau_bias);
            raw.epsilon = static_cast<float>(epsilon);
          },
          nb::kw_only(), nb::arg("factors"), nb::arg("own"), nb::arg("own_bias_mean").none(),
          nb::arg("own_bias_variance").none(), nb::arg("own_covariance").none(), nb::arg("other"),
          nb::arg("other_bias_mean").none(), nb::arg("other_bias_variance").none(), nb::arg("other_covariance").none(),
          nb::arg("liked_starts"), nb::arg("liked"), nb::arg("liked_weights").none(), nb::arg("unliked_starts").none(),
          nb::arg("unliked").none(), nb::arg("prior_precision"), nb::arg("prior_pull"),
          nb::arg("own_offset") = nb::none(), nb::arg("other_offset") = nb::none(), nb::arg("offset") = 0.0,
          nb::arg("weight") = 1.0, nb::arg("tau_bias") = 1.0, nb::arg("epsilon") = 1.0, nb::arg("quadrature") = false);

  m.def(
      "update_full_rows",
      [](const PyFullPass& pass, std::int64_t first, std::int64_t last, std::optional<InOut<float>> rows,
         std::optional<InOut<float>> bias_mean, std::optional<InOut<float>> bias_variance,
         std::optional<InOut<float>> covariance) {
        require(first >= 0 && first <= last && last <= pass.own_rows, "rows out of range");
        const auto check = [&](const std::optional<InOut<float>>& array, std::int64_t width, const char* what) {
          require(!array || static_cast<std::int64_t>(array->size()) == pass.own_rows * width, what);
          return array ? array->data() : nullptr;
        };
        FullOut out;
        out.rows = check(rows, 2 * padded(pass.raw.factors), "rows: another shape than own");
        out.bias_mean = check(bias_mean, 1, "bias_mean: another length than own");
        out.bias_variance = check(bias_variance, 1, "bias_variance: another length than own");
        out.covariance = check(covariance, triangle(pass.raw.factors), "covariance: another shape than own");
        require(!out.rows || !pass.raw.bias || (out.bias_mean && out.bias_variance),
                "biases are updated but not taken");
        {
          nb::gil_scoped_release release;
          kernels_in_use()->update_full_rows(pass.raw, first, last, out);
        }
        const std::array<double, 4> moments = {out.moments[0], out.moments[1], out.moments[2], out.moments[3]};
        return std::make_tuple(out.bound, out.bad, moments);
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"), nb::arg("rows").noconvert() = nb::none(),
      nb::arg("bias_mean").noconvert() = nb::none(), nb::arg("bias_variance").noconvert() = nb::none(),
      nb::arg("covariance").noconvert() = nb::none(),
      "Sums and steps of rows first..last, written into rows, biases and covariance: (the edges' part of the bound "
      "before, a bad row or -1, moments of the new rows, with log det of a covariance). Without rows the bound alone. "
      "Without a covariance the factorised q is recovered (eq. 18).");
}

}  // namespace considerate
