#include "arrays.hpp"
#include "graph.hpp"

#include <cstdlib>
#include <optional>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

namespace considerate {

template <class T>
static void check_range(In<T> values, std::int64_t count, const char* what) {
  bool outside = false;  // no early exit, so that the loop vectorises
  for (std::size_t e = 0; e < values.size(); ++e) outside |= static_cast<std::uint32_t>(values.data()[e]) >= count;
  require(!outside, what);
}

void bind_graph(nb::module_& m) {
  m.def(
      "give_back_memory",
      [] {
        nb::gil_scoped_release release;
#ifdef __GLIBC__
        malloc_trim(0);
#endif
      },
      "Give memory that the allocator keeps for later back to the system, if it can.");
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
                            starts.data(), indices.data());
        }
        return std::make_tuple(starts, indices, kept);
      },
      nb::arg("rows"), nb::arg("columns"), nb::arg("row_count"), nb::arg("column_count"),
      "Sort pairs by row then column, and drop repeated ones: (starts, indices, kept).");
  m.def(
      "keep_columns",
      [](In<std::int64_t> starts, In<std::int32_t> indices, In<bool> keep) {
        check_range(indices, static_cast<std::int64_t>(keep.size()), "a column is out of range");
        const std::size_t rows = starts.size() - 1;
        require(starts.size() > 0 && starts.data()[0] >= 0 &&
                    starts.data()[rows] <= static_cast<std::int64_t>(indices.size()),
                "starts");
        auto counts = new_array<std::int32_t>({rows});
        std::vector<std::int32_t> kept(indices.size() + 1);
        std::int64_t count = 0;
        {
          nb::gil_scoped_release release;
          count = keep_columns(starts.data(), indices.data(), static_cast<std::int64_t>(rows), keep.data(),
                               counts.data(), kept.data());
        }
        auto columns = new_array<std::int32_t>({static_cast<std::size_t>(count)});
        std::copy(kept.begin(), kept.begin() + count, columns.data());
        return std::make_tuple(counts, columns);
      },
      nb::arg("starts"), nb::arg("indices"), nb::arg("keep"),
      "Keep the edges to some columns: (number of them in each row, their columns).");
  m.def(
      "count_columns",
      [](In<std::int32_t> indices, InOut<std::int64_t> counts, int shift) {
        require(shift >= 0 && shift <= 16, "a bucket has at most 2^16 columns");
        check_range(indices, static_cast<std::int64_t>(counts.size()) << shift, "a column is out of range");
        nb::gil_scoped_release release;
        count_columns(indices.data(), static_cast<std::int64_t>(indices.size()), shift, counts.data());
      },
      nb::arg("indices"), nb::arg("counts").noconvert(), nb::arg("shift") = 0, "counts += bincount(indices >> shift)");
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
      "Turn the counts of slices into the start of each slice's part of each bucket, and set the buckets' starts.");
  m.def(
      "scatter_rows",
      [](In<std::int64_t> starts, In<std::int32_t> indices, std::int64_t first, std::int64_t last, int shift,
         InOut<std::int64_t> places, InOut<std::int32_t> rows_out, std::optional<InOut<std::uint16_t>> low) {
        require(first >= 0 && first <= last && last < static_cast<std::int64_t>(starts.size()), "rows out of range");
        require(low ? low->size() == rows_out.size() : shift == 0, "the low bits of the columns need a place");
        nb::gil_scoped_release release;
        scatter_rows(starts.data(), indices.data(), first, last, shift, places.data(), rows_out.data(),
                     low ? low->data() : nullptr);
      },
      nb::arg("starts"), nb::arg("indices"), nb::arg("first"), nb::arg("last"), nb::arg("shift"),
      nb::arg("places").noconvert(), nb::arg("rows_out").noconvert(), nb::arg("low").noconvert() = nb::none(),
      "Put rows first..last under the buckets of their columns, with the low bits of the columns; places moves on.");
  m.def(
      "sort_bucket",
      [](In<std::uint16_t> low, InOut<std::int32_t> rows, std::int64_t begin, InOut<std::int64_t> starts) {
        require(low.size() == rows.size(), "rows and low bits differ in length");
        check_range(low, static_cast<std::int64_t>(starts.size()), "a column is out of range");
        nb::gil_scoped_release release;
        sort_bucket(low.data(), rows.data(), static_cast<std::int64_t>(rows.size()), begin, starts.data(),
                    static_cast<std::int64_t>(starts.size()));
      },
      nb::arg("low"), nb::arg("rows").noconvert(), nb::arg("begin"), nb::arg("starts").noconvert(),
      "rows = rows[argsort(low, stable)]; starts = begin + the start of each column among them.");
  m.def(
      "add_to_edges",
      [](In<std::int64_t> starts, In<std::int32_t> indices, In<std::int32_t> rows, In<std::int32_t> columns,
         In<std::int64_t> amounts) {
        require(rows.size() == columns.size() && rows.size() == amounts.size(), "pairs and amounts differ in length");
        require(starts.size() > 0 && starts.data()[starts.size() - 1] == static_cast<std::int64_t>(indices.size()),
                "starts");
        check_range(rows, static_cast<std::int64_t>(starts.size()) - 1, "a row is out of range");
        auto sums = new_array<std::int64_t>({indices.size()});
        std::fill(sums.data(), sums.data() + sums.size(), 0);
        bool found = false;
        {
          nb::gil_scoped_release release;
          found = add_to_edges(starts.data(), indices.data(), rows.data(), columns.data(), amounts.data(),
                               static_cast<std::int64_t>(rows.size()), sums.data());
        }
        require(found, "a pair is no edge");
        return sums;
      },
      nb::arg("starts"), nb::arg("indices"), nb::arg("rows"), nb::arg("columns"), nb::arg("amounts"),
      "Sum of the amounts of all pairs of an edge: [edges].");
  m.def(
      "transpose_weights",
      [](In<std::int32_t> indices, In<float> weights, In<std::int64_t> starts_out) {
        const auto columns = static_cast<std::int64_t>(starts_out.size()) - 1;
        const auto edges = static_cast<std::int64_t>(indices.size());
        require(columns >= 0 && weights.size() == indices.size(), "weights and indices differ in length");
        check_range(indices, columns, "a column is out of range");
        std::vector<std::int64_t> counts(static_cast<std::size_t>(columns), 0);
        count_columns(indices.data(), edges, 0, counts.data());
        for (std::int64_t n = 0, at = 0; n <= columns; at += n < columns ? counts[static_cast<std::size_t>(n)] : 0, ++n)
          require(starts_out.data()[n] == at, "the columns of the other orientation begin elsewhere");
        auto out = new_array<float>({indices.size()});
        {
          nb::gil_scoped_release release;
          transpose_weights(indices.data(), weights.data(), edges, starts_out.data(), columns, out.data());
        }
        return out;
      },
      nb::arg("indices"), nb::arg("weights"), nb::arg("starts_out"),
      "Weights of edges in the order of the other orientation; starts_out are the starts of its columns.");
}

}  // namespace considerate
