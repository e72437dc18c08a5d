#include "arrays.hpp"
#include "graph.hpp"

#include <nanobind/stl/tuple.h>

namespace considerate {

static void check_range(In<std::int32_t> values, std::int64_t count, const char* what) {
  for (std::size_t e = 0; e < values.size(); ++e) require(values.data()[e] >= 0 && values.data()[e] < count, what);
}

void bind_graph(nb::module_& m) {
  m.def(
      "sort_pairs",
      [](In<std::int32_t> rows, In<std::int32_t> columns, std::int64_t row_count, std::int64_t column_count) {
        require(rows.size() == columns.size(), "rows and columns differ in length");
        check_range(rows, row_count, "a row is out of range");
        check_range(columns, column_count, "a column is out of range");
        auto starts = new_array<std::int64_t>({static_cast<std::size_t>(row_count) + 1});
        auto indices = new_array<std::int32_t>({rows.size()});
        std::int64_t kept = 0;
        {
          nb::gil_scoped_release release;
          kept = sort_pairs(rows.data(), columns.data(), static_cast<std::int64_t>(rows.size()), row_count,
                            column_count, starts.data(), indices.data());
        }
        return std::make_tuple(starts, indices, kept);
      },
      nb::arg("rows"), nb::arg("columns"), nb::arg("row_count"), nb::arg("column_count"),
      "Pairs sorted by row then column, double ones folded: (starts, indices, kept).");
  m.def(
      "count_columns",
      [](In<std::int32_t> indices, InOut<std::int64_t> counts) {
        check_range(indices, static_cast<std::int64_t>(counts.size()), "a column is out of range");
        nb::gil_scoped_release release;
        count_columns(indices.data(), static_cast<std::int64_t>(indices.size()), counts.data());
      },
      nb::arg("indices"), nb::arg("counts").noconvert(), "counts += bincount(indices)");
  m.def(
      "counts_to_places",
      [](InOut<std::int64_t> counts, InOut<std::int64_t> starts) {
        require(counts.ndim() == 2 && starts.ndim() == 1 && starts.shape(0) == counts.shape(1) + 1,
                "starts must have one entry more than counts has columns");
        nb::gil_scoped_release release;
        counts_to_places(counts.data(), static_cast<std::int64_t>(counts.shape(0)),
                         static_cast<std::int64_t>(counts.shape(1)), starts.data());
      },
      nb::arg("counts").noconvert(), nb::arg("starts").noconvert(),
      "Counts of slices become where each slice's part of each column begins; starts are the columns'.");
  m.def(
      "scatter_rows",
      [](In<std::int64_t> starts, In<std::int32_t> indices, std::int64_t first, std::int64_t last,
         InOut<std::int64_t> places, InOut<std::int32_t> rows_out) {
        require(first >= 0 && first <= last && last < static_cast<std::int64_t>(starts.size()), "rows out of range");
        nb::gil_scoped_release release;
        scatter_rows(starts.data(), indices.data(), first, last, places.data(), rows_out.data());
      },
      nb::arg("starts"), nb::arg("indices"), nb::arg("first"), nb::arg("last"), nb::arg("places").noconvert(),
      nb::arg("rows_out").noconvert(), "Put rows first..last under their columns; places moves on.");
}

}  // namespace considerate
