// The pass over rows with covariances.
#include "arrays.hpp"
#include "dispatch.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>

#include <array>

namespace considerate {

void bind_full(nb::module_& m) {
  m.def(
      "update_full_rows",
      [](const Held<FullPass>& pass, std::int64_t first, std::int64_t last, MaybeInOut<float> rows,
         MaybeInOut<float> bias_mean, MaybeInOut<float> bias_variance, MaybeInOut<float> covariance) {
        require_range(first, last, pass.own.count);
        const auto check = [&](const MaybeInOut<float>& array, std::int64_t width, const char* what) {
          require(!array || static_cast<std::int64_t>(array->size()) == pass.own.count * width, what);
          return array ? array->data() : nullptr;
        };
        FullOut out;
        out.rows = check(rows, 2 * padded(pass.own.factors), "rows: another shape than own");
        out.bias_mean = check(bias_mean, 1, "bias_mean: another length than own");
        out.bias_variance = check(bias_variance, 1, "bias_variance: another length than own");
        out.covariance = check(covariance, triangle(pass.own.factors), "covariance: another shape than own");
        require(!out.rows || !pass.bias || (out.bias_mean && out.bias_variance),
                "bias_mean and bias_variance are missing: the pass steps biases");
        {
          nb::gil_scoped_release release;
          kernels_in_use()->update_full_rows(pass, first, last, out);
        }
        const std::array<double, 4> moments = {out.moments[0], out.moments[1], out.moments[2], out.moments[3]};
        return std::make_tuple(out.bound, out.bad, moments);
      },
      nb::arg("pass_"), nb::arg("first"), nb::arg("last"), nb::arg("rows").noconvert() = nb::none(),
      nb::arg("bias_mean").noconvert() = nb::none(), nb::arg("bias_variance").noconvert() = nb::none(),
      nb::arg("covariance").noconvert() = nb::none(),
      "Sum and step rows first..last into rows, biases and covariance: (the edges' part of the bound before the step, "
      "a bad row or -1, moments of the new rows, with log det of a covariance). Without rows it computes the bound "
      "alone. Without a covariance it recovers the factorised q (eq. 18).");
}

}  // namespace considerate
