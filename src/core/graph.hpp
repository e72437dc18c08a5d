// Adjacency: sorting pairs, and the other orientation of what is sorted.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace considerate {

// Pairs sorted by row then column, double ones folded. Two counting sorts. NumPy: unique(rows * columns + column).
inline std::int64_t sort_pairs(const std::int32_t* rows, const std::int32_t* columns, std::int64_t edges,
                               std::int64_t row_count, std::int64_t column_count, std::int64_t* starts,
                               std::int32_t* indices) {
  std::vector<std::int64_t> column_starts(static_cast<std::size_t>(column_count) + 1, 0);
  for (std::int64_t e = 0; e < edges; ++e) ++column_starts[static_cast<std::size_t>(columns[e]) + 1];
  for (std::size_t n = 0; n < static_cast<std::size_t>(column_count); ++n) column_starts[n + 1] += column_starts[n];
  std::vector<std::int32_t> row_of(static_cast<std::size_t>(edges)), column_of(static_cast<std::size_t>(edges));
  for (std::int64_t e = 0; e < edges; ++e) {
    const auto at = static_cast<std::size_t>(column_starts[static_cast<std::size_t>(columns[e])]++);
    row_of[at] = rows[e];
    column_of[at] = columns[e];
  }
  std::fill(starts, starts + row_count + 1, 0);
  for (std::int64_t e = 0; e < edges; ++e) ++starts[rows[e] + 1];
  for (std::int64_t m = 0; m < row_count; ++m) starts[m + 1] += starts[m];
  std::vector<std::int64_t> at(starts, starts + row_count);
  for (std::size_t e = 0; e < static_cast<std::size_t>(edges); ++e)
    indices[at[static_cast<std::size_t>(row_of[e])]++] = column_of[e];
  std::int64_t kept = 0;
  for (std::int64_t m = 0, begin = 0; m < row_count; ++m) {
    const std::int64_t end = starts[m + 1];
    starts[m] = kept;
    for (std::int64_t e = begin; e < end; ++e)
      if (e == begin || indices[e] != indices[e - 1]) {
        const std::int32_t keep = indices[e];
        indices[kept++] = keep;
      }
    begin = end;
  }
  starts[row_count] = kept;
  return kept;
}

// How often each column occurs in a block of rows.
inline void count_columns(const std::int32_t* indices, std::int64_t edges, std::int64_t* counts) {
  for (std::int64_t e = 0; e < edges; ++e) ++counts[indices[e]];
}

// Turn the counts of each slice of rows, [slices, columns], into where its part of each column begins, and say where
// each column begins. NumPy: starts = [0, cumsum(counts.sum(0))]; counts = starts[:-1] + cumsum(counts, 0) - counts.
inline void counts_to_places(std::int64_t* counts, std::int64_t slices, std::int64_t columns, std::int64_t* starts) {
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < columns; ++n) {
    starts[n] = at;
    for (std::int64_t* count = counts + n; count < counts + slices * columns; count += columns) {
      const std::int64_t next = at + *count;
      *count = at;
      at = next;
    }
  }
  starts[columns] = at;
}

// Put a slice's rows under their columns; `places` says where the slice's part of each column begins, and moves on.
inline void scatter_rows(const std::int64_t* starts, const std::int32_t* indices, std::int64_t first, std::int64_t last,
                         std::int64_t* places, std::int32_t* rows_out) {
  for (std::int64_t m = first; m < last; ++m)
    for (std::int64_t e = starts[m]; e < starts[m + 1]; ++e)
      rows_out[places[indices[e]]++] = static_cast<std::int32_t>(m);
}

}  // namespace considerate
